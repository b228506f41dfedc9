"""Questions to sessions, each answered by the model too; and the look at all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memory.domain.scope import Scope
from memory.domain.session import HistoryItem, SessionInfo
from memory.domain.task import Run as TaskRun
from memory.domain.task import Task
from memory.facade.runtime.access import engine_of
from memory.orchestrator.conversations.sessions import END
from memory.orchestrator.storage.collections import CLAIMS, MESSAGES, RUNS, SESSIONS, TASKS
from memory.ports.collections import Collection
from memory.ports.record import Record
from tests.model.said import Said, Wrong, plain
from tests.model.sessions.calls import Of
from tests.model.sessions.talk import (
    Line,
    Talk,
    arranged,
    completed,
    fitting,
    from_user,
    made_of,
    notes_of,
    shown,
    told_of,
)

if TYPE_CHECKING:
    from memory.domain.entry import Entry
    from memory.domain.promotion_report import PromotionReport
    from tests.model.model import Id
    from tests.model.run import Run

COLLECTIONS = (SESSIONS, MESSAGES, TASKS, RUNS, CLAIMS)
MOST = 1_000
LISTED = (
    "id",
    "status",
    "user",
    "agent",
    "namespace",
    "title",
    "tags",
    "metadata",
    "created_at",
    "expires_at",
)


def _same(label: str, talk: Talk, found: object, wanted: object) -> None:
    if found != wanted:
        raise Wrong(f"{label} is otherwise", f"{talk.id} of {talk.tenant}: {_differing(found, wanted)}")


def _differing(found: object, wanted: object) -> str:
    """What differs: of long lists the part from the first difference on."""
    if isinstance(found, list) and isinstance(wanted, list):
        start = next(
            (n for n, pair in enumerate(zip(found, wanted, strict=False)) if pair[0] != pair[1]),
            min(len(found), len(wanted)),
        )
        return (
            f"{len(found)} of {len(wanted)}, from {start} on {found[start : start + 3]}, wanted"
            f" {wanted[start : start + 3]}"
        )
    return f"{found}, wanted {wanted}"


async def _ask(run: Run, talk: Talk, method: str, *args: Any, worker: int, **kwargs: Any) -> Any:
    return (await run.talks.ask(run, None, method, talk, *args, worker=worker, **kwargs)).given()


# -- the window ------------------------------------------------------------------------


def _system(talk: Talk) -> list[tuple[str, str | None]]:
    return [] if talk.system is None else [("system", talk.system)]


def _told(lines: Sequence[Line]) -> list[tuple[str, str | None]]:
    return [(line.id, line.text) for line in lines]


async def window(run: Run, talk: Talk, *, worker: int = 0) -> None:
    """All of it: the system message, summaries, then the rest, results behind their
    calls.
    """
    context = await _ask(run, talk, "context", worker=worker)
    found = completed(arranged(talk.window))
    _same(
        "a window",
        talk,
        [(message.id, message.content) for message in context.messages],
        _system(talk) + _told(found.order),
    )
    wanted = [line.said for line in found.order]
    _same(
        "what a window shows",
        talk,
        [shown(message) for message in context.messages[len(_system(talk)) :]],
        wanted,
    )
    _same("what answers no call", talk, context.invalid, [line.id for line in found.orphans])
    _same(
        "what was not answered",
        talk,
        sorted(context.interrupted),
        sorted(call for _, call in found.open_calls),
    )
    _same("what is left out", talk, (context.left_out, context.over_budget), (0, 0))


async def part_of_window(run: Run, talk: Talk, last: int, share: float, *, worker: int = 0) -> None:
    """The newest so many; what has room in a share of what all of it takes; and all
    summaries with the newest.
    """
    whole = await _ask(run, talk, "context", worker=worker)
    found, system = completed(arranged(talk.window)), _system(talk)
    pinned = [line for line in found.order if line.is_pinned]
    context = await _ask(run, talk, "context", last=last, worker=worker)
    flat = [line for block in found.movable for line in block]
    newest = flat[len(flat) - last :] if 0 < last <= len(flat) else flat * bool(last)
    wanted = [line for block in found.movable if block[0] in newest for line in block]
    _same(
        f"the newest {last}",
        talk,
        [(m.id, m.content) for m in context.messages],
        system + _told([*pinned, *wanted]),
    )

    tokens = whole.tokens[len(system) :]
    costs = {line.at: cost for line, cost in zip(found.order, tokens, strict=True)}
    of_system = sum(whole.tokens[: len(system)])
    budget = int(share * whole.total_tokens)
    context = await _ask(run, talk, "context", budget, worker=worker)
    fits, over = fitting(found.order, costs, budget - of_system)
    fits = from_user(fits)
    _same(
        f"what has room in {budget}",
        talk,
        [(m.id, m.content) for m in context.messages],
        system + _told(fits),
    )
    unseen = len(found.orphans) - len(
        context.invalid
    )  # results that answer no call, further back than was looked, are left out like others
    left_out = sum(line.at >= 0 for line in found.order) - sum(line.at >= 0 for line in fits)
    _same("how much is too much", talk, (context.over_budget, context.left_out), (over, left_out + unseen))

    context = await _ask(run, talk, "context", layered=True, last=last, worker=worker)
    summaries = [
        made.line for made in talk.compactions if not made.line.is_redacted and made.line.excluded is None
    ]
    layers = [line for line in summaries if not line.in_window] + pinned
    _same(
        "the layers", talk, [(m.id, m.content) for m in context.messages], system + _told([*layers, *wanted])
    )


# -- the history -----------------------------------------------------------------------


async def history(
    run: Run,
    talk: Talk,
    *,
    worker: int = 0,
    first: int | None = None,
    last: int | None = None,
    roles: Sequence[str] = (),
    summaries: bool = True,
    refs: Sequence[str] | None = None,
    compaction: int | None = None,
    order: str = "oldest",
    limit: int = MOST,
    offset: int = 0,
) -> None:
    """What of it is asked for, page by page."""
    lines = [
        line
        for line in talk.history
        if (first or 0) <= (line.number or 0) and (last is None or (line.number or 0) <= last)
    ]
    asked: dict[str, Any] = {
        "first": first,
        "last": last,
        "order": order,
        "limit": limit,
        "summaries": summaries,
    }
    has_system = talk.system is not None and (first or 1) <= 1 and last != 0
    if roles:
        asked["roles"], lines, has_system = (
            roles,
            [line for line in lines if line.role in roles],
            has_system and "system" in roles,
        )
    if not summaries:
        lines = [line for line in lines if not line.is_summary]
    if refs is not None:
        named = [line.id for line in talk.lines if line.ref in refs]
        asked["ids"], has_system = named, False
        lines = [line for line in lines if line.id in named]
        if any(line.is_redacted for line in talk.lines):
            return  # whose id is free: another may have it
    if compaction is not None and talk.compactions:
        made = talk.compactions[compaction % len(talk.compactions)]
        asked["archived_by"], has_system = made.id, False
        lines = [line for line in lines if line in made.archived and line not in made.rolled_back]
    wanted = _items(talk, lines, has_system=has_system)
    wanted = wanted if order == "oldest" else wanted[::-1]
    found, cursor = list[HistoryItem](), None
    while True:
        page = await _ask(
            run, talk, "history", worker=worker, offset=0 if cursor else offset, cursor=cursor, **asked
        )
        found += page.items
        if (cursor := page.cursor) is None or len(found) > len(wanted):
            break
    _same(
        f"a history ({', '.join(sorted(name for name, value in asked.items() if value))})",
        talk,
        list(map(_item, found)),
        wanted[offset:],
    )


def _items(talk: Talk, lines: Sequence[Line], *, has_system: bool) -> list[tuple[Any, ...]]:
    first = [("system", talk.system, 1, 0, False, None, None, False)] if has_system else []
    return first + [
        (
            None if line.is_redacted else line.id,
            line.text,
            line.number,
            line.turn,
            line.is_summary,
            line.excluded,
            line.archived_by,
            line.is_redacted,
        )
        for line in lines
    ]


def _item(item: HistoryItem) -> tuple[Any, ...]:
    name = None if item.is_redacted else item.message.id
    return (
        name,
        item.message.content,
        item.number,
        item.turn,
        item.is_summary,
        item.excluded,
        item.archived_by,
        item.is_redacted,
    )


async def compactions(run: Run, talk: Talk, *, worker: int = 0) -> None:
    found = [
        (
            made.id,
            made.summary.content,
            made.archived_ids,
            (made.messages_before, made.messages_after),
            made.reason,
        )
        for made in await _ask(run, talk, "compactions", worker=worker)
    ]
    wanted = [
        (made.id, made.line.text, [] if made.line.is_redacted else made.names, made.counts, made.reason)
        for made in talk.compactions
    ]
    _same("the compactions", talk, found, wanted)


# -- the session -----------------------------------------------------------------------


async def info(run: Run, talk: Talk, *, worker: int = 0) -> None:
    """Exact, whoever wrote last."""
    found = await _ask(run, talk, "info", worker=worker)
    _same("a session", talk, _facts(found), _wanted(talk))
    last = talk.compactions[-1].id if talk.compactions else None
    _same("the last compaction", talk, found.last_compaction_id, last)


def _facts(found: SessionInfo) -> dict[str, Any]:
    return {name: getattr(found, name) for name in (*LISTED, "message_count", "compaction_count")}


def _wanted(talk: Talk) -> dict[str, Any]:
    facts = {name: getattr(talk, name) for name in LISTED}
    return facts | {"message_count": talk.count, "compaction_count": len(talk.compactions)}


async def hidden(run: Run, talk: Talk, *, worker: int = 0) -> None:
    """A session that has expired is nowhere."""
    of = await run.talks.handle(run, talk.tenant, talk.id, worker)
    (await run.ask(None, "session.info", of, tenant=talk.tenant, worker=worker)).refused("NotFound")
    (await run.ask(None, "sessions.get", talk.id, tenant=talk.tenant, worker=worker)).equals(None)
    await listed(run, talk.tenant, {}, MOST, worker=worker)
    for line in talk.lines[-3:]:
        await search(run, talk.tenant, line.text, None, {}, worker=worker)


async def listed(run: Run, tenant: str, asked: dict[str, Any], limit: int, *, worker: int = 0) -> None:
    """The sessions of a tenant by when they were created, page by page. Every worker
    tells first what it wrote.
    """
    for number in range(len(run.workers)):
        await run.ask(None, "sessions.list", tenant=tenant, worker=number, limit=1)
    found, cursor, now = list[SessionInfo](), None, run.clock.now
    while True:
        page = (
            await run.ask(
                None,
                "sessions.list",
                tenant=tenant,
                worker=worker,
                by="created",
                limit=limit,
                cursor=cursor,
                **asked,
            )
        ).given()
        found += page.sessions
        if (cursor := page.cursor) is None or len(found) > MOST:
            break
    wanted = [talk for talk in run.talks.of(tenant, now) if _is_asked(talk, asked)]
    wanted.sort(key=lambda talk: talk.created_at, reverse=True)
    told = [_facts(one) | {"preview": one.preview} for one in found]
    facts = [_wanted(talk) | {"preview": talk.preview} for talk in wanted]
    if told != facts:
        raise Wrong("a list of sessions is otherwise", f"{asked}: {_differing(told, facts)}")


def _is_asked(talk: Talk, asked: dict[str, Any]) -> bool:
    tags = set(asked.get("tags", ())) <= set(talk.tags)
    return tags and all(getattr(talk, name) == value for name, value in asked.items() if name != "tags")


async def beside(run: Run, talk: Talk, *, worker: int = 0) -> None:
    """Its tasks and its runs, by when they were created, and by status."""
    for status in (None, "pending"):
        named = {"status": status} if status else {}
        found = (await _ask(run, talk, "tasks.list", worker=worker, **named)).tasks
        wanted = sorted(
            (each["created_at"], name)
            for name, each in talk.tasks.items()
            if status in (None, each["status"])
        )
        _same("the tasks", talk, [one.id for one in found], [name for _, name in wanted])
        for one in found:
            task(one, one.id, talk)
    runs = (await _ask(run, talk, "runs.list", worker=worker)).runs
    _same(
        "the runs",
        talk,
        [one.id for one in runs],
        [name for _, name in sorted((each["created_at"], name) for name, each in talk.runs.items())],
    )
    for one in runs:
        run_of(one, one.id, talk)


def task(found: Task, name: str, talk: Talk) -> None:
    says = {
        key: getattr(found, key)
        for key in ("title", "status", "parent_id", "result", "metadata", "created_at")
    }
    _same(
        "a task",
        talk,
        (found.id, found.session_id, says),
        (name, talk.id, {"parent_id": None, "result": None, "metadata": {}} | talk.tasks[name]),
    )


def run_of(found: TaskRun, name: str, talk: Talk) -> None:
    says = {key: getattr(found, key) for key in ("child_id", "status", "mode", "message_count", "created_at")}
    _same("a run", talk, (found.id, found.session_id, says), (name, talk.id, talk.runs[name]))


# -- found -----------------------------------------------------------------------------


async def search(
    run: Run, tenant: str, word: str, talk: Talk | None, asked: dict[str, Any], *, worker: int = 0
) -> None:
    """A word of its own finds the messages that say it: archived ones too, not those
    that were excluded or erased.
    """
    if talk is not None:
        found = await _ask(run, talk, "search", word, limit=100, worker=worker)
        among = [talk]
    else:
        found = (
            await run.ask(None, "search_messages", word, tenant=tenant, worker=worker, limit=100, **asked)
        ).given()
        among = [
            one
            for one in run.talks.of(tenant, run.clock.now)
            if all(getattr(one, name) == value for name, value in asked.items())
        ]
    words = word.split()
    wanted = {
        (one.id, line.number): line
        for one in among
        for line in one.history
        if line.is_found and set(words) & set(line.text.split())
    }
    told = [(hit.session_id, hit.item.number) for hit in found]
    if len(wanted) > 100 or len(words) > 1:
        strangers = [of for of, _ in told if of not in {one.id for one in among}]
        if strangers:
            raise Wrong("a search of messages shows what it must not", f"{word} in {asked}: {strangers}")
        return
    if sorted(told) != sorted(wanted):
        what = (
            "shows what it must not"
            if set(told) - wanted.keys()
            else "shows a message twice"
            if len(told) > len(wanted)
            else "misses"
        )
        raise Wrong(
            f"a search of messages {what}", f"{word} in {asked or among}: {told}, wanted {list(wanted)}"
        )
    for hit in found:
        line = wanted[hit.session_id, hit.item.number]
        if (hit.message.content, hit.item.archived_by) != (line.text, line.archived_by):
            raise Wrong("a search of messages shows another", f"{hit}, wanted {line}")


# -- onward ----------------------------------------------------------------------------


Owing = Sequence[tuple[Talk, Sequence[tuple[list[Line], Line | None]]]]
"""Sessions, each with what left it together and has not been noted."""


def owing(run: Run, said: Said) -> Owing:
    """What is to be noted at a sweep: of what ends in it only the next one hears. Of
    what has expired nothing is noted any more.
    """
    found = [
        (talk, talk.owed) for talk in run.talks.all.values() if talk.owed and not talk.is_over(said.begun)
    ]
    for talk in run.talks.all.values():
        talk.owed = []
    return found


async def noted(run: Run, said: Said, owing: Owing, *, more: bool = False) -> list[Id]:
    """What was to be noted of these sessions is, each text once; the ids of the
    entries, which are known from now on. `more`: later sweeps have been, which noted
    what this one let go; where that is looked for, or all entries are, others are
    found.
    """
    made: list[Id] = []
    for talk, owed in owing:
        texts = [
            (text, made_of(lines, summary)) for lines, summary in owed for text in notes_of(told_of(lines))
        ]
        scope = f"session:{talk.id}" if talk.user is None else f"user:{talk.user}"
        if not texts:
            continue
        entries = (await run.ask(None, "entries.iterate", scope, tenant=talk.tenant)).given()
        fresh = [
            e
            for e in entries
            if (talk.tenant, e.id) not in run.model.lives
            and e.metadata.get("created_in_session_id") == talk.id
        ]
        fresh = [entry for entry in fresh if entry.promoted_from_id is None]
        found, wanted = Counter(entry.content for entry in fresh), Counter(text for text, _ in texts)
        if wanted - found or (found - wanted and not more):
            raise Wrong(
                "what is noted is otherwise",
                f"{talk.id}: {[entry.content for entry in fresh]}, wanted {[text for text, _ in texts]}",
            )
        for text, lines in texts:
            entry = next(entry for entry in fresh if entry.content == text)
            fresh.remove(entry)
            run.model.noted(said, talk.tenant, scope, text, talk.id, plain(entry))
            run.talks.has_noted(talk, entry.id, lines)
            made.append((talk.tenant, entry.id))
    return made


# -- over ------------------------------------------------------------------------------


async def touched(run: Run, *, worker: int = 0) -> None:
    """When something was last done in each session is its own to say."""
    for talk in list(run.talks.all.values()):
        if not talk.is_over(run.clock.now):
            last = (await _ask(run, talk, "info", worker=worker)).updated_at
            if not talk.created_at <= last <= run.clock.now or (
                talk.touched is not None and last < talk.touched
            ):
                raise Wrong(
                    "a session was touched at another time",
                    f"{talk.id} of {talk.tenant}: {last}, created {talk.created_at}, before {talk.touched}",
                )
            talk.touched = last


@dataclass(slots=True)
class Retired:
    """How many sessions rules have ended and deleted, and how many are held.
    `perhaps_held`: it is held, or waits for what is noted of it.
    """

    ended: int = 0
    deleted: int = 0
    held: int = 0
    perhaps_held: int = 0


async def owed_ends(run: Run, said: Said) -> None:
    """The ends of sessions that are pending are carried out; that comes before the
    rules.
    """
    for talk in [
        talk for talk in run.talks.all.values() if talk.owes_its_end and not talk.is_over(said.begun)
    ]:
        talk.end_owed -= 1
        await session_over(run, said, talk.tenant, talk.id)


async def ended_at_once(run: Run, said: Said) -> None:
    """An end that waited for what is noted may have come again in the same sweep: then
    it is pending no more, and has done all of it.
    """
    for talk in [talk for talk in run.talks.all.values() if talk.owes_its_end and talk.end_owed == 1]:
        events = await engine_of(run.memory).session_closing._pending_events(
            talk.tenant, Scope.session(talk.id)
        )
        if not any(owed.step == END for event in events for owed in event.owed):
            talk.end_owed = 0
            await session_over(run, said, talk.tenant, talk.id)


async def retired(run: Run, said: Said, owing: Owing) -> Retired:
    """Rules end sessions and delete those that have ended and of which nothing is to be
    noted, each session one of these in a sweep.

    Those that are deleted first: what is read of the others' entries, behind the sweep,
    is pinned to none of them any more.
    """
    done, waits = Retired(), [talk for talk, _ in owing]
    taken = [(rule, talk) for talk in run.talks.all.values() if (rule := talk.taken(said.begun)) is not None]
    for _, talk in sorted(
        taken, key=lambda one: (one[1].status != "ended", one[0] != "quiet", one[1].created_at)
    ):
        if talk.status != "ended":
            talk.ended()
            talk.end_owed = 2 if talk.owed else 0
            done.ended += 1
            await session_over(run, said, talk.tenant, talk.id)
        elif run.model.holds_all(talk.tenant, f"session:{talk.id}"):
            done.held += talk not in waits
            done.perhaps_held += talk in waits
        elif (
            talk not in waits
            or (await run.ask(None, "sessions.get", talk.id, tenant=talk.tenant)).given() is None
        ):
            run.talks.goes(run.model, talk)
            done.deleted += 1
    return done


async def session_over(
    run: Run, said: Said, tenant: str, session: str, report: PromotionReport | None = None
) -> list[str]:
    """What the end of a session does with the entries of its scope; copies are known
    from now on: their ids.
    """
    copying = run.model.to_copy(tenant, session, said.begun)
    found: dict[tuple[str | None, str], Entry] = {}
    for scope in sorted({to for _, to in copying if to is not None}):
        entries = (await run.ask(None, "entries.iterate", scope, tenant=tenant, include_retired=True)).given()
        found |= {
            (entry.promoted_from_id, scope): entry
            for entry in entries
            if (tenant, entry.id) not in run.model.lives
        }
    made = run.model.session_over(said, tenant, session, report, copying, found)
    run.made |= {
        f"{run.begun[-1][0]}.{session}{place}": (tenant, entry_id) for place, entry_id in enumerate(made)
    }
    return made


# -- the whole -------------------------------------------------------------------------


async def whole(run: Run, tenants: Sequence[str]) -> None:
    """Every session, at one moment, each as one of the workers has it."""
    number = run.begun[-1][0]
    for tenant in tenants:
        await listed(run, tenant, {}, MOST, worker=number)
        for worker, talk in enumerate(run.talks.of(tenant, run.clock.now), start=number):
            await window(run, talk, worker=worker)
            await history(run, talk, worker=worker)
            await info(run, talk, worker=worker)
            await compactions(run, talk, worker=worker)
            await beside(run, talk, worker=worker)


def stored(run: Run, rows: dict[Collection, list[Record]]) -> None:
    """Every record of every session: places without a hole, counts as the log says, and
    nothing of sessions that are gone.
    """
    logs: dict[tuple[str, str], list[Record]] = {}
    for row in rows[MESSAGES]:
        logs.setdefault((row.key.tenant, str(row.fields["conversation_id"])), []).append(row)
    records = {(row.key.tenant, str(row.fields["session_id"])): row for row in rows[SESSIONS]}
    talks = run.talks.all
    if records.keys() != talks.keys() or len(records) != len(rows[SESSIONS]) or logs.keys() - talks.keys():
        raise Wrong("stored sessions are others", f"{list(records)} with {list(logs)}, wanted {list(talks)}")
    for key, talk in talks.items():
        log = sorted(logs.get(key, []), key=_place)
        _same("the places of a log", talk, [_place(row) for row in log], list(range(2, 2 + len(log))))
        numbers = [number for row in log if (number := row.fields.get("number_in_conversation")) is not None]
        _same("the numbers of a log", talk, numbers, [line.number for line in talk.history])
        _same(
            "the times of a log",
            talk,
            sorted({row.created_at for row in log}),
            [row.created_at for row in log],
        )
        _record(talk, records[key])
    for collection, of in ((TASKS, "tasks"), (RUNS, "runs"), (CLAIMS, "tasks")):
        name = "run_id" if collection is RUNS else "task_id"
        found = sorted((row.key.tenant, *_named(row, collection, name)) for row in rows[collection])
        wanted = sorted(
            (t, s, *([] if collection is CLAIMS else [one]))
            for (t, s), talk in talks.items()
            for one in getattr(talk, of)
        )
        if found != wanted:
            raise Wrong(f"stored {collection.name} are others", f"{found}, wanted {wanted}")


def _named(row: Record, collection: Collection, name: str) -> list[str]:
    return (
        [str(row.fields["session_id"])]
        if collection is CLAIMS
        else [row.scope.partition(":")[2], str(row.fields[name])]
    )


def _place(row: Record) -> int:
    place: Any = row.fields["place"]
    return int(place)


def _record(talk: Talk, record: Record) -> None:
    """What the session's own record says once maintenance was there and every process
    has told.
    """
    body: Any = record.body
    told = (
        record.fields["status"],
        body.get("messages", int(talk.system is not None)),
        body.get("compactions", 0),
    )
    _same("a session's record", talk, told, (talk.status, talk.count, len(talk.compactions)))


# -- carried elsewhere -----------------------------------------------------------------


async def imported(run: Run, talks: Sequence[Talk], tenant: str, *, worker: int = 0) -> None:
    """Sessions that were imported as another tenant's say what they said here; then
    they are deleted there.
    """
    for talk in talks:
        of = Of(talk.id, fresh=True)
        asked: dict[str, Any] = {"tenant": tenant, "worker": worker}
        info_there = (await run.ask(None, "session.info", of, **asked)).given()
        _same("an imported session", talk, _facts(info_there), _wanted(talk))
        made = [one.id for one in (await run.ask(None, "session.compactions", of, **asked)).given()]
        items = (await run.ask(None, "session.history", of, limit=MOST, **asked)).given().items
        found = [
            (
                *_item(item)[1:6],
                None if item.archived_by is None else made.index(item.archived_by),
                item.is_redacted,
            )
            for item in items
        ]
        ids = [one.id for one in talk.compactions]
        lines = _items(talk, talk.history, has_system=talk.system is not None)
        _same(
            "an imported history",
            talk,
            found,
            [(*line[1:6], None if line[6] is None else ids.index(line[6]), line[7]) for line in lines],
        )
        context = (await run.ask(None, "session.context", of, **asked)).given()
        texts = [text for _, text in _system(talk) + _told(completed(arranged(talk.window)).order)]
        _same("an imported window", talk, [message.content for message in context.messages], texts)
        for one in (await run.ask(None, "session.tasks.list", of, **asked)).given().tasks:
            task(one, one.id, talk)
        for one in (await run.ask(None, "session.runs.list", of, **asked)).given().runs:
            run_of(one, one.id, talk)
        (await run.ask(None, "sessions.delete", talk.id, **asked)).equals(True)
