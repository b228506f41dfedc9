"""What somebody does with sessions in a run of the model test: each carried out through the facade and
judged by the model.

A message is named by the operation that said it and its number there ("17.2"). Where
session or message are not there, nothing is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from memory.policies.compaction_thresholds import MessageThreshold, TurnThreshold
from memory.policies.window import TokenThreshold
from tests.model.operations import Gone, Operation, operation, resolved
from tests.model.said import Said, Wrong
from tests.model.sessions import check
from tests.model.sessions.calls import Of, Summed
from tests.model.sessions.talk import (
    Line,
    Shown,
    Talk,
    archived_by_hand,
    archived_by_policy,
    arranged,
    given,
    shown,
    unanswered,
)

if TYPE_CHECKING:
    from tests.model.run import Run


def _talk(run: Run, op: Operation) -> Talk:
    talk = run.talks.get(op.tenant, op.args["session"], run.clock.now)
    if talk is None:
        raise Gone
    return talk


def _line(talk: Talk, ref: str) -> Line:
    line = next((line for line in talk.lines if line.ref == ref), None)
    if line is None:
        raise Gone
    return line


async def _ask(run: Run, op: Operation, method: str, talk: Talk, *args: Any, **kwargs: Any) -> Said:
    return await run.talks.ask(run, op, method, talk, *args, **kwargs)


def _refs(op: Operation, messages: Sequence[Any]) -> list[str]:
    return [f"{op.number}.{n}" for n in range(len(messages))]


def _remembered(run: Run, *texts: str | None) -> None:
    for text in texts:
        run.talks.wrote(text or "")


def _handed(run: Run, messages: Sequence[dict[str, Any]]) -> list[Shown]:
    _remembered(run, *(message["content"] for message in messages))
    return [given(message) for message in messages]


# -- births ----------------------------------------------------------------------------


@operation
async def create(run: Run, op: Operation) -> None:
    session_id, draft = op.args["session"], resolved(run, op.args["draft"])
    there = run.talks.get(op.tenant, session_id, run.clock.now)
    said = await run.ask(op, "sessions.create", session_id, **draft)
    if run.talks.hides(run, op.tenant, session_id):
        said.refused("LegalHoldActive")
        return
    if there is not None:
        said.refused("Conflict")
        return
    said.equals(session_id)
    await _begun(run, op, said, session_id, draft)


async def _begun(
    run: Run, op: Operation, said: Said, session_id: str, draft: dict[str, Any], *, held: bool = False
) -> Talk:
    info = (await run.ask(op, "session.info", Of(session_id, fresh=not held), reading=True)).given()
    talk = run.talks.begun(run.model, said, op.tenant, session_id, draft, info)
    run.talks.holds(run, talk, op.worker)
    _remembered(run, talk.system)
    return talk


@operation
async def fork(run: Run, op: Operation) -> None:
    """A session that begins with what the window was behind a message, less what was
    excluded since.
    """
    talk, to = _talk(run, op), op.args["to"]
    at = None if op.args["at"] is None else _line(talk, op.args["at"])
    if at is not None and (at.is_redacted or not at.window):
        raise Gone
    there = run.talks.get(op.tenant, to, run.clock.now)
    said = await _ask(run, op, "fork", talk, None if at is None else at.id, to)
    if run.talks.hides(run, op.tenant, to):
        said.refused("LegalHoldActive")
        return
    if there is not None:
        said.refused("Conflict")
        return
    said.equals(to)
    lines = talk.window if at is None else [talk.lines[place] for place in at.window]
    lines = [line for line in lines if not line.is_redacted and (line.excluded is None or line is at)]
    forked_from = {"session_id": talk.id, "message_id": None if at is None else at.id}
    like = {name: getattr(talk, name) for name in ("user", "agent", "namespace", "title", "system")}
    draft = like | {"tags": list(talk.tags), "metadata": talk.metadata | {"forked_from": forked_from}}
    new = await _begun(run, op, said, to, draft)
    for line in sorted(lines, key=lambda line: (not line.is_summary, line.at)):
        new.copies(line)
    await check.window(run, new, worker=op.worker)


# -- saying ----------------------------------------------------------------------------


@operation
async def say(run: Run, op: Operation) -> None:
    """Messages appended, by a handle that creates the session where there is none."""
    session_id, messages, draft = op.args["session"], op.args["messages"], resolved(run, op.args["draft"])
    handed, in_history = _handed(run, messages), op.args.get("in_history", True)
    talk = run.talks.get(op.tenant, session_id, run.clock.now)
    of = (
        Of(session_id, draft)
        if talk is None
        else await run.talks.handle(run, op.tenant, session_id, op.worker)
    )
    said = await run.ask(
        op, "session.append", of, messages if op.args.get("several") else messages[0], in_history=in_history
    )
    if run.talks.hides(run, op.tenant, session_id):
        said.refused("LegalHoldActive")
        return
    if talk is None:
        said.given()
        talk = await _begun(run, op, said, session_id, draft, held=True)
    talk.appended(said, handed, _refs(op, messages), in_history=in_history)


@operation
async def say_again(run: Run, op: Operation) -> None:
    """A message told again under its id, alone or before a new one: as it was, or
    otherwise.
    """
    talk = _talk(run, op)
    line = _line(talk, op.args["message"])
    if line.is_redacted or line.said["calls"] or line.role == "tool" or line.said["is_summary"]:
        raise Gone
    told = {
        "id": line.id,
        "role": line.role,
        "content": line.text if op.args["content"] is None else op.args["content"],
    }
    messages = [told, *op.args["messages"]]
    said = await _ask(run, op, "append", talk, messages)
    if _is_held(run, talk) and line.loses(given(told)):
        said.refused("LegalHoldActive")
        return
    talk.appended(said, _handed(run, messages), [None, *_refs(op, messages)])


@operation
async def stream(run: Run, op: Operation) -> None:
    talk, pieces, name, breaks = _talk(run, op), op.args["pieces"], f"m{op.number}", op.args["breaks"]
    text = "".join(pieces)
    _remembered(run, text)
    said = await _ask(run, op, "stream", talk, name, pieces, breaks=breaks)
    if not text or talk.status != "active":
        said.refused("Conflict") if text else said.equals(None)
        return
    said.equals(None)
    ended = {"finish_reason": "interrupted"} if breaks else {}
    talk.says(given({"id": name, "role": "assistant", "content": text, **ended}), f"{op.number}.0")


@operation
async def mend(run: Run, op: Operation) -> None:
    """Calls that were never answered are, once each."""
    talk = _talk(run, op)
    found = arranged(talk.window)
    calls = [call for _, call in found.open_calls]
    made = [unanswered(call) for call in calls]
    said = await _ask(run, op, "repair_tool_calls", talk)
    talk.appended(said, made, [f"{op.number}.{n}" for n in range(len(made))])
    if not made or talk.status == "active":
        for line in found.orphans:
            line.leaves("invalid_response")


@operation
async def say_together(run: Run, op: Operation) -> None:
    """Workers append at once, one of them excludes: each message is there once, all
    agree on one order, and nobody's change undoes another's.
    """
    talk, messages = _talk(run, op), op.args["messages"]
    if talk.status != "active":
        raise Gone
    handed = _handed(run, messages)
    for worker in range(len(messages)):
        await _ask(run, op, "info", talk, worker=worker, reading=True)
    asked = [_ask(run, op, "append", talk, message, worker=worker) for worker, message in enumerate(messages)]
    out = next((line for line in talk.lines if line.ref == op.args["out"] and not line.is_redacted), None)
    if out is not None:
        asked.append(_ask(run, op, "exclude", talk, out.id, "at once"))
    first = talk.count + 1
    answers = await asyncio.gather(*asked)
    if out is not None:
        answers.pop().equals(out.in_window)
        if out.in_window:
            out.leaves("at once")
    order = [
        item.message.id
        for item in (await _ask(run, op, "history", talk, first=first, limit=1_000, reading=True))
        .given()
        .items
    ]
    pairs = dict(zip(_refs(op, messages), zip(answers, handed, strict=True), strict=True))
    stored = {said.given()[0].id: (ref, said, message) for ref, (said, message) in pairs.items()}
    if sorted(order) != sorted(stored):
        raise Wrong("what was appended at once is otherwise", f"{order}, wanted {list(stored)}")
    for message_id in order:
        ref, said, message = stored[message_id]
        for line in talk.appended(said, [message], [ref]):
            line.window = (
                () if out is not None else line.window
            )  # whether that was still in it nobody was told


# -- changing --------------------------------------------------------------------------


@operation
async def amend(run: Run, op: Operation) -> None:
    """What a message says, or the system message, is changed."""
    talk, text = _talk(run, op), op.args["content"]
    _remembered(run, text)
    if op.args["message"] == "system":
        said = await _ask(run, op, "update", talk, "system", content=text)
        if talk.system is None:
            said.refused("NotFound")
        elif _is_held(run, talk) and talk.system != text:
            said.refused("LegalHoldActive")
        elif said.given().content != text:
            said.wrong("answers another message", said.value.content)
        else:
            talk.before.append(talk.system)
            talk.system = text
        return
    line = _line(talk, op.args["message"])
    said = await _ask(run, op, "update", talk, line.id, content=text)
    if line.is_redacted:
        said.refused("NotFound")
        return
    if _is_held(run, talk) and line.text != text:
        said.refused("LegalHoldActive")
        return
    talk.says_instead(line, line.said | {"content": text})
    if shown(said.given()) != line.said:
        said.wrong("answers another message", f"{shown(said.value)}, wanted {line.said}")


@operation
async def exclude(run: Run, op: Operation) -> None:
    talk = _talk(run, op)
    line = _line(talk, op.args["message"])
    (await _ask(run, op, "exclude", talk, line.id, op.args["reason"])).equals(line.in_window)
    if line.in_window:
        line.leaves(op.args["reason"])


@operation
async def restore(run: Run, op: Operation) -> None:
    talk = _talk(run, op)
    line = _line(talk, op.args["message"])
    comes_back = not (line.in_window or line.is_redacted or line.archived_by is not None)
    (await _ask(run, op, "restore", talk, line.id)).equals(comes_back)
    if comes_back:
        line.in_window, line.excluded = True, None


@operation
async def clear(run: Run, op: Operation) -> None:
    talk = _talk(run, op)
    (await _ask(run, op, "clear", talk)).equals(len(talk.window))
    talk.leave(talk.window, "manual")


@operation
async def mark(run: Run, op: Operation) -> None:
    talk = _talk(run, op)
    made = (await _ask(run, op, "checkpoint", talk, op.args["name"])).given()
    run.talks.marks[str(op.number)] = talk.serial, len(talk.lines), [line.at for line in talk.window], made


@operation
async def roll_back(run: Run, op: Operation) -> None:
    """To a check-point of this session; one of another is refused."""
    talk = _talk(run, op)
    if op.args["mark"] not in run.talks.marks:
        raise Gone
    serial, place, window, made = run.talks.marks[op.args["mark"]]
    said = await _ask(run, op, "roll_back", talk, made, op.args["reason"])
    if serial != talk.serial:
        said.refused("InvalidInput")
        return
    said.equals(talk.rolled_back(place, window, op.args["reason"]))


@operation
async def replace_window(run: Run, op: Operation) -> None:
    """The window becomes what was read of it, in part, some of it edited, and new
    messages; what others said meanwhile stays.
    """
    talk, keep, messages, meanwhile = (
        _talk(run, op),
        op.args["keep"],
        op.args["messages"],
        op.args["meanwhile"],
    )
    if talk.status != "active":
        raise Gone
    await check.window(run, talk, worker=op.worker)
    known = list(talk.window)
    if meanwhile is not None and len(run.workers) > 1:
        said = await _ask(run, op, "append", talk, meanwhile, worker=op.worker + 1)
        talk.appended(said, _handed(run, [meanwhile]), [f"{op.number}.m"])
    kept = [line for n, line in enumerate(arranged(known).order) if keep[n % len(keep)]]
    edited = [
        line
        for line in kept[-1:]
        if op.args["edit"] is not None
        and not line.said["calls"]
        and line.role != "tool"
        and not line.is_pinned
    ]
    named = [
        {
            "id": line.id,
            "role": line.role,
            "content": op.args["edit"] if line in edited else line.text,
            **_carried(line),
        }
        for line in kept
    ]
    handed = _handed(run, [*named, *messages])
    said = await _ask(run, op, "replace", talk, [*named, *messages])
    if _is_held(run, talk) and any(line.loses(message) for line, message in zip(kept, handed, strict=False)):
        said.refused("LegalHoldActive")
        return
    answers = said.given()
    if [shown(one) for one in answers] != [
        one | {"id": answer.id} for one, answer in zip(handed, answers, strict=True)
    ]:
        said.wrong("answers other messages", f"{[shown(one) for one in answers]}, wanted {handed}")
    for line, message in zip(kept, handed, strict=False):
        talk.says_instead(line, message)
    talk.replaced([line for line in known if line not in kept])
    for number, answer in enumerate(answers[len(kept) :]):
        talk.says(shown(answer), f"{op.number}.{number}")
    await check.window(run, talk, worker=op.worker)


def _carried(line: Line) -> dict[str, Any]:
    """What else of a message has to be handed back for it to be the same."""
    calls = [{"id": call, "name": name, "arguments": "{}"} for call, name in line.said["calls"]]
    names = ("name", "tool_call_id", "is_error", "is_summary", "finish_reason")
    return {name: line.said[name] for name in names if line.said[name]} | (
        {"tool_calls": calls} if calls else {}
    )


@operation
async def erase_message(run: Run, op: Operation) -> None:
    """Nothing is left of what it said: not in summaries, not in entries that were made
    of it.
    """
    talk = _talk(run, op)
    line = _line(talk, op.args["message"])
    said = await _ask(run, op, "erase", talk, line.id)
    if _is_held(run, talk):
        said.refused("LegalHoldActive")
        return
    said.equals(not line.is_redacted)
    if not line.is_redacted:
        run.model.unmake_said(op.tenant, talk.erased(line, _reaches(run)), said.ended)


# -- compacting ------------------------------------------------------------------------


@operation
async def summarise(run: Run, op: Operation) -> None:
    """A compaction, by hand or where a policy says so; one whose summariser fails
    changes nothing.
    """
    talk, text, policy = _talk(run, op), op.args["text"], op.args["policy"]
    window, keep_last = talk.window, op.args["keep_last"]
    _remembered(run, text)
    if policy is None:
        archived, reason = archived_by_hand(window, keep_last), "by hand"
        said = await _ask(run, op, "compact", talk, Summed(text), keep_last=keep_last, reason=reason)
    else:
        archived, reason = _due(talk, policy, keep_last), "token_limit" if policy == "tokens" else "auto"
        said = await _ask(run, op, "compact_if_needed", talk, _policy(policy, keep_last), Summed(text))
        if not archived:
            said.equals(None)
            return
    if text is None or talk.status != "active":
        said.refused("CompactionError" if text is None else "Conflict")
        return
    made = said.given()
    size = len(window) + (talk.system is not None)
    found = (shown(made.summary), made.archived_ids, made.messages_before, made.messages_after, made.reason)
    summary = given({"role": "system", "content": text, "is_summary": True})
    counts = size, size - len(archived) + 1
    if found != (summary | {"id": made.id}, [line.id for line in archived], *counts, reason):
        said.wrong(
            "answers another compaction",
            f"{found}, wanted {text}, {[line.id for line in archived]}, {counts}, {reason}",
        )
    talk.compacted(made.id, summary, archived, counts, reason, f"{op.number}.s")


def _policy(policy: str, keep_last: int) -> Any:
    most = keep_last + 3
    if policy == "tokens":
        return TokenThreshold(max_tokens=1, keep_last=keep_last)
    return TurnThreshold(most, keep_last) if policy == "turns" else MessageThreshold(most, keep_last)


def _due(talk: Talk, policy: str, keep_last: int) -> list[Line]:
    """What leaves by a policy: of tokens there are always too many, turns and messages
    are to be three more than are kept.
    """
    found = arranged(talk.window)
    counted = [line for line in talk.window if not line.is_pinned]
    if policy == "turns":
        turns = found.turns
        kept = sum(map(len, turns[max(0, len(turns) - keep_last) :]))
        return archived_by_policy(talk.window, kept) if len(turns) > keep_last + 3 else []
    most = keep_last + (0 if policy == "tokens" else 3)
    return archived_by_policy(talk.window, keep_last) if len(counted) > most else []


# -- its life --------------------------------------------------------------------------


@operation
async def end_session(run: Run, op: Operation) -> None:
    """What was said goes onward, and the promotion rules move what the session's
    entries are to become, or copy it. At times a copy is deleted, and the session is
    ended once more.
    """
    made = await _ended(run, op)
    if op.args.get("again") and made:
        run.model.deleted(await run.ask(op, "delete", made[0]), op.tenant, made[0])
        await _ended(run, op)


async def _ended(run: Run, op: Operation) -> list[str]:
    said = await run.ask(op, "sessions.end", op.args["session"])
    talk, report = run.talks.get(op.tenant, op.args["session"], said.begun), said.given()
    if talk is not None:
        talk.ended()
        owed, talk.owed = talk.owed, []
        noted = await check.noted(run, said, [(talk, owed)])
        if sorted(report.derived) != sorted(entry_id for _, entry_id in noted) or report.waiting:
            said.wrong("notes others", f"{report}, wanted {noted}")
    return await check.session_over(run, said, op.tenant, op.args["session"], report)


@operation
async def put_away(run: Run, op: Operation) -> None:
    talk = _talk(run, op)
    (await _ask(run, op, "archive", talk)).equals(talk.status != "archived")
    talk.status = "archived"


@operation
async def resume(run: Run, op: Operation) -> None:
    talk = _talk(run, op)
    (await _ask(run, op, "resume", talk)).equals(talk.status != "active")
    talk.status = "active"


@operation
async def describe(run: Run, op: Operation) -> None:
    """Title, tags, metadata, expiry."""
    changes = resolved(run, op.args["changes"])
    talk = run.talks.get(op.tenant, op.args["session"], run.clock.now)
    said = await run.ask(op, "sessions.update", op.args["session"], **changes)
    if talk is None:
        said.refused("NotFound")
        return
    if _is_held(run, talk) and any(
        (now := getattr(talk, name)) and changes.get(name, now) != now for name in ("title", "metadata")
    ):
        said.refused("LegalHoldActive")
        return
    said.given()
    for name, value in changes.items():
        setattr(talk, name, value)


@operation
async def drop(run: Run, op: Operation) -> None:
    """A session is deleted, by its handle or by its id, with the entries of its scope
    and those made of it.
    """
    session_id = op.args["session"]
    talk = run.talks.get(op.tenant, session_id, run.clock.now)
    said = await run.ask(op, "sessions.delete", session_id)
    if run.model.holds_any(op.tenant, f"session:{session_id}"):
        said.refused("LegalHoldActive")
        return
    scoped = run.talks.deleted(run, op.tenant, session_id, said.ended)
    said.equals(talk is not None or scoped > 0)


@operation
async def erase_user(run: Run, op: Operation) -> None:
    """The user's sessions, expired ones too, what the user said in others, and the
    entries of the user's scope; what is held stays, and the answer says so.
    """
    user, now = op.args["user"], run.clock.now
    said = await run.ask(op, "admin.erase_user", user)
    if run.model.holds_all(op.tenant, f"user:{user}"):
        said.refused("LegalHoldActive")
        return
    theirs = [talk for (owner, _), talk in run.talks.all.items() if owner == op.tenant and talk.user == user]
    free = [talk for talk in theirs if not run.model.holds_any(op.tenant, f"session:{talk.id}")]
    for talk in free:
        run.talks.deleted(run, op.tenant, talk.id, said.ended)
    lines = list(run.talks.speakers(op.tenant, user, now))
    erased = [
        (talk, place) for talk, place in lines if not run.model.holds_all(op.tenant, f"session:{talk.id}")
    ]
    for talk, line in [(talk, talk.lines[place]) for talk, place in erased]:
        if not line.is_redacted:
            run.model.unmake_said(op.tenant, talk.erased(line, _reaches(run)), said.ended)
    entries = [life.id for life in run.model.in_scopes(op.tenant, [f"user:{user}"])]
    stays = run.model.holds_any(op.tenant, f"user:{user}")
    told = said.given()
    wanted = (
        len(free),
        len(erased),
        0 if stays else len(entries),
        stays or len(free) < len(theirs) or len(erased) < len(lines),
    )
    if (told.sessions, told.messages, told.entries, bool(told.held)) != wanted:
        said.wrong("counts otherwise", f"{told}, wanted {wanted}")
    if not stays:
        run.model.erase(op.tenant, f"user:{user}", said.ended)


@operation
async def session_boundary(run: Run, op: Operation) -> None:
    """Time goes on to the very moment a session expires: it is there then, and hidden a
    moment later, everywhere.
    """
    talk = _talk(run, op)
    if talk.expires_at is None:
        raise Gone
    run.clock.now = talk.expires_at
    await check.info(run, talk, worker=op.worker)
    run.clock.now = talk.expires_at + (run.clock.now.resolution)
    await check.hidden(run, talk, worker=op.worker)
    run.clock.go_on(0)


# -- beside the log --------------------------------------------------------------------


@operation
async def save_task(run: Run, op: Operation) -> None:
    talk, name, task = _talk(run, op), op.args["task"], op.args["says"]
    _remembered(run, task["title"])
    said = await _ask(run, op, "tasks.save", talk, name, **task)
    if any(
        name in other.tasks
        for other in run.talks.all.values()
        if other is not talk and other.tenant == op.tenant
    ):
        said.refused("Conflict")
        return
    if _is_held(run, talk) and name in talk.tasks and talk.tasks[name]["title"] != task["title"]:
        said.refused("LegalHoldActive")
        return
    found = said.given()
    created = talk.tasks[name]["created_at"] if name in talk.tasks else found.created_at
    talk.before += [talk.tasks[name]["title"]] if name in talk.tasks else []
    talk.tasks[name] = task | {"created_at": created}
    check.task(found, name, talk)


@operation
async def delete_task(run: Run, op: Operation) -> None:
    talk = _talk(run, op)
    _deleted_beside(
        run, talk, await _ask(run, op, "tasks.delete", talk, op.args["task"]), talk.tasks, op.args["task"]
    )


@operation
async def save_run(run: Run, op: Operation) -> None:
    talk, name, says = _talk(run, op), op.args["run"], op.args["says"]
    found = (await _ask(run, op, "runs.save", talk, name, **says)).given()
    created = talk.runs[name]["created_at"] if name in talk.runs else found.created_at
    talk.runs[name] = says | {"created_at": created}
    check.run_of(found, name, talk)


@operation
async def delete_run(run: Run, op: Operation) -> None:
    talk = _talk(run, op)
    _deleted_beside(
        run, talk, await _ask(run, op, "runs.delete", talk, op.args["run"]), talk.runs, op.args["run"]
    )


def _is_held(run: Run, talk: Talk) -> bool:
    return run.model.holds_all(talk.tenant, f"session:{talk.id}")


def _reaches(run: Run) -> Callable[[Talk], bool]:
    """Whether an erasure elsewhere reaches a session: one that is there and not held."""
    return lambda other: run.talks.all.get((other.tenant, other.id)) is other and not _is_held(run, other)


def _deleted_beside(run: Run, talk: Talk, said: Said, among: dict[str, Any], name: str) -> None:
    """A task or a run is held with its session."""
    if name in among and _is_held(run, talk):
        said.refused("LegalHoldActive")
    else:
        said.equals(among.pop(name, None) is not None)


# -- reading ---------------------------------------------------------------------------


@operation
async def read_window(run: Run, op: Operation) -> None:
    talk = _talk(run, op)
    await check.window(run, talk, worker=op.worker)
    await check.part_of_window(run, talk, op.args["last"], op.args["share"], worker=op.worker)


@operation
async def read_history(run: Run, op: Operation) -> None:
    await check.history(run, _talk(run, op), worker=op.worker, **op.args["asked"])


@operation
async def read_session(run: Run, op: Operation) -> None:
    """Its record and counts, its compactions, its tasks and runs."""
    talk = _talk(run, op)
    await check.info(run, talk, worker=op.worker)
    await check.compactions(run, talk, worker=op.worker)
    await check.beside(run, talk, worker=op.worker)


@operation
async def search_said(run: Run, op: Operation) -> None:
    talk = _talk(run, op)
    await check.search(
        run, op.tenant, op.args["word"], talk if op.args["here"] else None, op.args["asked"], worker=op.worker
    )


@operation
async def list_sessions(run: Run, op: Operation) -> None:
    await check.listed(run, op.tenant, op.args["asked"], op.args["limit"], worker=op.worker)
