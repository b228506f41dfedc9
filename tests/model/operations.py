"""What happens in a run of the model test: operations as data, each carried out through the facade and
judged by the model.

An operation names entries by the operation that made them ("17", or "17.2" for the
third of a batch) and moments by what they are relative to, so that it means something
when others are taken out of the list: what it needs and is not there makes it do
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from memory.domain.versions import version_text
from tests.model import check
from tests.model.model import Asked
from tests.model.said import Said, Wrong, plain
from tests.model.sessions import check as sessions

if TYPE_CHECKING:
    from tests.model.run import Run


@dataclass(frozen=True)
class Operation:
    """One operation: after `wait` seconds, by worker `worker`, for `tenant`."""

    number: int
    kind: str
    tenant: str = "acme"
    worker: int = 0
    wait: float = 0
    args: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, line: str) -> Operation:
        return cls(**json.loads(line))


class Gone(Exception):
    """What the operation is about is not there: it was made by an operation that has
    been taken out.
    """


@dataclass(frozen=True)
class Joined:
    """A callback of compaction; None fails."""

    text: str | None

    def __call__(self, sources: list[Any]) -> str:
        if self.text is None:
            raise ValueError("no text today")
        return self.text


Performed = Callable[["Run", Operation], Awaitable[None]]
PERFORMED: dict[str, Performed] = {}
Carried = Callable[["Run", str, str, int], Awaitable[None]]
CARRIED: list[Carried] = []
"""What else is looked at of what was imported from a tenant for another, by a worker;
then it is taken away there.
"""
IMPORTED: list[Carried] = []
"""The same, before any of it is taken away."""


def operation(perform: Performed) -> Performed:
    PERFORMED[perform.__name__] = perform
    return perform


def carried(look: Carried) -> Carried:
    CARRIED.append(look)
    return look


def imported(look: Carried) -> Carried:
    IMPORTED.append(look)
    return look


async def perform(run: Run, op: Operation) -> None:
    run.clock.go_on(op.wait)
    run.begin(op)
    with contextlib.suppress(Gone):
        await PERFORMED[op.kind](run, op)


# -- what arguments mean ---------------------------------------------------------------


def _entry(run: Run, op: Operation, name: str = "entry") -> str:
    return _id(run, op.args[name])


def _id(run: Run, ref: str) -> str:
    if ref not in run.made:
        raise Gone
    return run.made[ref][1]


def _moment(run: Run, given: Any) -> datetime | None:
    if given is None:
        return None
    if "in" in given:
        return run.clock.now + timedelta(seconds=given["in"])
    if "before" in given:
        return run.moment_before(given["before"])
    if "link" in given:
        made = [
            of[link] for of in run.model.links.values() if (link := run.made_links.get(given["link"])) in of
        ]
        if not made:
            raise Gone
        return made[0].created_at + timedelta(microseconds=given["plus"])
    life = run.model.lives.get(run.made.get(given["own"], ("", "")))
    if life is None:
        raise Gone
    version = life.versions[given["version"] % len(life.versions)].fields
    return version[given.get("field", "updated_at")] + timedelta(microseconds=given["plus"])  # type: ignore[no-any-return]


MOMENTS = ("created_at", "expires_at", "when", "since", "before", "updated_before", "as_of", "known_at")


def resolved(run: Run, given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _moment(run, value) if name in MOMENTS else value for name, value in given.items()}


# -- writing ---------------------------------------------------------------------------


@operation
async def write(run: Run, op: Operation) -> None:
    draft = resolved(run, op.args["draft"])
    revive = bool(op.args.get("revive"))
    flag: dict[str, Any] = {"revive": True} if revive else {}
    said = await run.ask(op, "write", **draft, **flag)
    ids = run.model.written(_as_list(said), op.tenant, [draft], revive=revive)
    run.note(op, ids, draft=draft)


@operation
async def write_again(run: Run, op: Operation) -> None:
    """A keyed write repeated to the letter."""
    if op.args["draft_of"] not in run.drafts:
        raise Gone
    tenant, draft = run.drafts[op.args["draft_of"]]
    said = await run.ask(op, "write", tenant=tenant, **draft)
    run.model.written(_as_list(said), tenant, [draft])


@operation
async def write_many(run: Run, op: Operation) -> None:
    drafts = [resolved(run, draft) for draft in op.args["drafts"]]
    said = await run.ask(op, "write_many", drafts)
    run.note(op, run.model.written(said, op.tenant, drafts), batch=True)


@operation
async def update(run: Run, op: Operation) -> None:
    entry_id, changes = _entry(run, op), resolved(run, op.args["changes"])
    life, expected = run.model.life(op.tenant, entry_id), None
    if life is not None and op.number % 2:
        stale = version_text(op.number)
        refused = await run.ask(op, "update", entry_id, **changes, expected_version=stale)
        refused.refused("NotFound" if life.now.expired(refused.begun) else "VersionConflict")
        expected = life.now.fields["version"]
    said = await run.ask(op, "update", entry_id, **changes, expected_version=expected)
    run.model.updated(said, op.tenant, entry_id, changes)


@operation
async def retire(run: Run, op: Operation) -> None:
    entry_id, when = _entry(run, op), _moment(run, op.args["when"])
    said = await run.ask(op, "entries.invalidate", entry_id, when)
    history = await run.ask(op, "entries.history", entry_id, reading=True) if said.value is True else None
    run.model.retired(said, op.tenant, entry_id, when, plain(history.given()[-1]) if history else None)


@operation
async def delete(run: Run, op: Operation) -> None:
    entry_id = _entry(run, op)
    if op.number % 2:
        refused = await run.ask(op, "delete", entry_id, expected_version=version_text(op.number))
        refused.refused("VersionConflict")
    scopes = None if run.view is None else run.view.scopes
    run.model.deleted(await run.ask(op, "delete", entry_id), op.tenant, entry_id, scopes)


@operation
async def delete_scope(run: Run, op: Operation) -> None:
    run.model.erased(await run.ask(op, "admin.erase", op.args["scope"]), op.tenant, op.args["scope"])


def _as_list(said: Said) -> Said:
    return Said(said.call, said.begun, said.ended, None if said.failure else [said.value], said.failure)


# -- derived ---------------------------------------------------------------------------


@operation
async def promote(run: Run, op: Operation) -> None:
    entry_id, to, overrides, away = (
        _entry(run, op),
        op.args["to"],
        op.args.get("overrides", {}),
        op.args.get("delete_original", False),
    )
    said = await run.ask(op, "promote", entry_id, to, **overrides, delete_original=away)
    made = run.model.promoted(said, op.tenant, entry_id, to, overrides, delete_original=away)
    run.note(op, [made] if made else [])


@operation
async def compact(run: Run, op: Operation) -> None:
    ids, patch, text = (
        [_id(run, ref) for ref in op.args["entries"]],
        op.args.get("patch", {}),
        op.args["text"],
    )
    target, away = op.args.get("target"), op.args.get("delete_sources", False)
    said = await run.ask(op, "compact", ids, Joined(text), target_scope=target, delete_sources=away, **patch)
    made = run.model.compacted(said, op.tenant, ids, text, target, patch, delete_sources=away)
    run.note(op, [made] if made else [])


@operation
async def relate(run: Run, op: Operation) -> None:
    source, label, target = _entry(run, op, "source"), op.args["label"], _entry(run, op, "target")
    said = await run.ask(op, "relations.relate", source, label, target)
    run.made_links[str(op.number)] = run.model.related(said, op.tenant, source, label, target)


@operation
async def unrelate(run: Run, op: Operation) -> None:
    link = run.made_links.get(op.args["link"])
    if link is None:
        raise Gone
    run.model.unrelated(await run.ask(op, "relations.unrelate", link), op.tenant, link)


# -- tiers, maintenance, life ----------------------------------------------------------


@operation
async def move(run: Run, op: Operation) -> None:
    ids = list(dict.fromkeys(_id(run, ref) for ref in op.args["entries"]))
    run.model.moved(await run.ask(op, "admin.move", ids, op.args["to"]), op.tenant, ids, op.args["to"])


@operation
async def sweep(run: Run, op: Operation) -> None:
    await check.swept(run, op.worker)


@operation
async def reopen(run: Run, op: Operation) -> None:
    number = op.worker % len(run.workers)
    await run.forgets(number)
    await run.workers[number].reopen()
    run.talks.lets_go(number)


@operation
async def in_rounds(run: Run, op: Operation) -> None:
    """Maintenance in small rounds by all workers in turn; at times one dies over it."""
    first = op.worker % len(run.workers)
    workers = [*range(first, len(run.workers)), *range(first)]
    await check.in_rounds(run, workers, dies=op.args["dies"])


@operation
async def months(run: Run, op: Operation) -> None:
    """Months pass; two sweeps later nothing is left of what was deleted before.
    Whatever rules take they have taken by then: a session is ended by one, what was
    said in it is noted by the next, and what is noted goes from tier to tier by two
    more.
    """
    for _ in range(5):
        await check.swept(run, op.worker)
        run.clock.go_on(op.args["days"] * 86_400)
    await check.swept(run, op.worker)
    await check.swept(run, op.worker)
    await check.graves_are_gone(run)
    await check.words_are_gone_from_files(run)
    run.model.forget_graves(run.clock.now, keep=0)


@operation
async def boundary(run: Run, op: Operation) -> None:
    """Time goes on to the very moment an entry expires or its validity ends: what is
    seen then, and a moment later.
    """
    life = run.model.lives.get(run.made.get(op.args["entry"], ("", "")))
    end = None if life is None else life.now.fields[op.args["field"]]
    if life is None or end is None or end <= run.clock.now or end > run.clock.now + timedelta(days=2):
        raise Gone
    for later in (0, 1):
        run.clock.now = end + timedelta(microseconds=later)
        await check.get(run, op.tenant, life.id, worker=op.worker)
        await check.retrieve(run, Asked(op.tenant, (life.scope,)), worker=op.worker)
    run.clock.go_on(0)


@operation
async def place_hold(run: Run, op: Operation) -> None:
    """Over an entry, a scope, a user or all of the tenant, under a name that may hold
    other things too.
    """
    name, given = op.args["name"], dict(op.args["over"])
    over, of = next(iter(given.items()))
    of = op.tenant if over == "tenant" else _id(run, of) if over == "entry_id" else of
    said = await run.ask(
        op, "admin.legal_holds.add", name, reason="a case", more={over: True if over == "tenant" else of}
    )
    if over == "entry_id" and run.model.life(op.tenant, of) is None:
        said.refused("NotFound")
        return
    said.given()
    run.model.holds.setdefault((op.tenant, name), set()).add(("entry" if over == "entry_id" else over, of))
    await check.holds(run, op.tenant)


@operation
async def release_hold(run: Run, op: Operation) -> None:
    said = await run.ask(op, "admin.legal_holds.remove", op.args["name"])
    held = run.model.holds.pop((op.tenant, op.args["name"]), set())
    if sorted((one.over, one.of) for one in said.given()) != sorted(held):
        said.wrong("releases others", f"{said.value}, wanted {held}")
    await check.holds(run, op.tenant)


@operation
async def transfer_all(run: Run, op: Operation) -> None:
    """Everything of the tenant, retired entries too, is exported, imported twice as
    another tenant, compared, and erased there.
    """
    elsewhere = f"import-{op.number}"
    await check.swept(run, op.worker)  # what has expired is not exported
    talks = run.talks.of(op.tenant, run.clock.now)
    entries = (await run.ask(op, "entries.iterate", include_retired=True, reading=True)).given()
    links = (await run.ask(op, "relations.all", reading=True)).given()
    lines = (await run.ask(op, "admin.export", reading=True)).given()
    there = {entry.id for entry in entries}
    between = [link for link in links if {link.source_id, link.target_id} <= there]
    others = len(run.pads.of(op.tenant)) + sum(len(talk.tasks) + len(talk.runs) for talk in talks)
    documents = len(list(run.model.shelf.of(op.tenant, run.clock.now)))
    for first in (True, False):
        report = (await run.ask(op, "admin.import_", lines, tenant=elsewhere)).given()
        counted = (report.imported, report.already_there, report.relations, len(report.problems))
        wanted = (len(entries), 0, len(between), 0) if first else (0, len(entries), 0, 0)
        beside = (len(talks), others, documents) if first else (0, 0, 0)
        if (
            counted != wanted
            or (report.sessions, report.other_records, report.documents) != beside
            or (report.events and not first)
        ):
            raise Wrong(
                "an import counts otherwise",
                f"{report}, not {wanted} and {beside} sessions, others, documents",
            )
    there_now = (
        await run.ask(op, "entries.iterate", include_retired=True, tenant=elsewhere, reading=True)
    ).given()
    check.imported(entries, there_now, elsewhere)
    linked = (await run.ask(op, "relations.all", tenant=elsewhere, reading=True)).given()
    if sorted(link.created_at for link in linked) != sorted(link.created_at for link in between):
        raise Wrong("an import's links differ", f"{len(linked)} of {len(between)}")
    for look in IMPORTED:
        await look(run, op.tenant, elsewhere, op.worker)
    for scope in sorted(
        {entry.scope.text for entry in there_now}
    ):  # what was made of the entries of one may have gone with another
        there = (
            await run.ask(op, "entries.iterate", scope, include_retired=True, tenant=elsewhere, reading=True)
        ).given()
        (await run.ask(op, "admin.erase", scope, tenant=elsewhere)).equals(len(there))
    await sessions.imported(run, talks, elsewhere, worker=op.worker)
    for look in CARRIED:
        await look(run, op.tenant, elsewhere, op.worker)


# -- reading ---------------------------------------------------------------------------


@operation
async def get(run: Run, op: Operation) -> None:
    moments = resolved(run, op.args.get("moments", {}))
    await check.get(run, op.tenant, _entry(run, op), worker=op.worker, **moments)


@operation
async def foreign(run: Run, op: Operation) -> None:
    """One tenant asks for another's entry."""
    entry_id = _entry(run, op)
    if run.made[op.args["entry"]][0] == op.tenant:
        raise Gone
    for call, wanted in (("get", None), ("delete", False), ("entries.invalidate", False)):
        (await run.ask(op, call, entry_id)).equals(wanted)
    (await run.ask(op, "update", entry_id, content="stolen")).refused("NotFound")
    (await run.ask(op, "entries.history", entry_id)).refused("NotFound")


@operation
async def history(run: Run, op: Operation) -> None:
    await check.history(run, op.tenant, _entry(run, op), worker=op.worker)


@operation
async def retrieve(run: Run, op: Operation) -> None:
    asked, extra = _asked(run, op)
    reading = check.paged if op.args.get("paged") else check.retrieve
    await reading(
        run,
        asked,
        order=op.args.get("order", "newest"),
        limit=op.args.get("limit", 20),
        worker=op.worker,
        **extra,
    )


@operation
async def search_word(run: Run, op: Operation) -> None:
    asked, extra = _asked(run, op)
    life = (run.whole_model or run.model).lives.get(run.made.get(op.args["word_of"], ("", "")))
    if life is None:
        raise Gone
    await check.search_word(
        run, asked, op.args["word"], worker=op.worker, preferred=op.args.get("preferred"), **extra
    )


@operation
async def search_topic(run: Run, op: Operation) -> None:
    asked, extra = _asked(run, op)
    await check.search_topic(
        run, asked, op.args["topic"], worker=op.worker, preferred=op.args.get("preferred"), **extra
    )


@operation
async def relations(run: Run, op: Operation) -> None:
    given: dict[str, Any] = {
        name: _id(run, op.args[name]) for name in ("source_id", "target_id") if name in op.args
    }
    given |= {"label": op.args["label"]} if "label" in op.args else {}
    await check.relations(run, op.tenant, op.args.get("limit", 200), worker=op.worker, **given)


@operation
async def whole(run: Run, op: Operation) -> None:
    await check.whole(run)


def _asked(run: Run, op: Operation) -> tuple[Asked, dict[str, Any]]:
    """The question, and how it is put where a session's entries come with the user's."""
    given = resolved(run, op.args["asked"])
    scopes = tuple(given.pop("scopes"))
    for name in {"tags", "types", "any_tags", "where"} & given.keys():
        given[name] = tuple(given[name])
    asked = Asked(op.tenant, scopes, metadata=tuple(given.pop("metadata", {}).items()), **given)
    with_session = op.args.get("session")
    return asked, {} if with_session is None else {"with_session": with_session}


# -- at once ---------------------------------------------------------------------------


@operation
async def together(run: Run, op: Operation) -> None:
    """The same call by several workers at once: it is as if they came one after the
    other, in the order that their answers tell.
    """
    await CONTESTED[op.args["call"]](run, op)


async def at_once(
    run: Run, op: Operation, calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]]
) -> list[Said]:
    """All answers are of one stretch of time: what one worker made, another may answer
    before the first is back with what its clock says.
    """
    asked = [
        run.ask(op, call, *args, worker=number, **kwargs) for number, (call, args, kwargs) in enumerate(calls)
    ]
    answers = await asyncio.gather(*asked)
    begun, ended = min(said.begun for said in answers), max(said.ended for said in answers)
    return [replace(said, begun=begun, ended=ended) for said in answers]


async def _updates(run: Run, op: Operation) -> None:
    entry_id, changes = _entry(run, op), [resolved(run, one) for one in op.args["changes"]]
    answers = await at_once(run, op, [("update", (entry_id,), one) for one in changes])
    pairs = sorted(
        zip(answers, changes, strict=True), key=lambda pair: 0 if pair[0].failure else pair[0].value.version
    )
    for said, one in pairs:
        run.model.updated(said, op.tenant, entry_id, one)


async def _writes(run: Run, op: Operation) -> None:
    """The same keyed write: one entry, and everybody gets it. One that has expired before
    it is written has a life per answer.
    """
    draft = resolved(run, op.args["draft"])
    answers = await at_once(run, op, [("write", (), draft)] * op.args["times"])
    made = []
    for said in sorted(answers, key=lambda said: "" if said.failure else said.value.version):
        made += run.model.written(_as_list(said), op.tenant, [draft])
    run.note(op, made[:1], draft=draft)


async def _deletes(run: Run, op: Operation) -> None:
    entry_id = _entry(run, op)
    for said in sorted(
        await at_once(run, op, [("delete", (entry_id,), {})] * op.args["times"]),
        key=lambda said: not said.value,
    ):
        run.model.deleted(said, op.tenant, entry_id)


async def _promotes(run: Run, op: Operation) -> None:
    entry_id, to = _entry(run, op), op.args["to"]
    made = [
        run.model.promoted(said, op.tenant, entry_id, to, {}, delete_original=False)
        for said in await at_once(run, op, [("promote", (entry_id, to), {})] * op.args["times"])
    ]
    run.note(op, [one for one in made[:1] if one])


async def _relates(run: Run, op: Operation) -> None:
    ends = (_entry(run, op, "source"), op.args["label"], _entry(run, op, "target"))
    answers = await at_once(run, op, [("relations.relate", ends, {})] * op.args["times"])
    for said in sorted(answers, key=lambda said: said.failure is not None):
        run.made_links[str(op.number)] = run.model.related(said, op.tenant, *ends)


CONTESTED: dict[str, Performed] = {
    "update": _updates,
    "write": _writes,
    "delete": _deletes,
    "promote": _promotes,
    "relate": _relates,
}
