"""The reading half of a worker: what its engine shows it is a sight of registers, and
goes into the history as that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import inf

from memory.domain.entry import Entry
from memory.domain.time import micros, moment
from memory.domain.versions import stored_version
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.tiering.moves import MoveResult
from memory.policies.entry_query import EntryQuery
from memory.policies.visibility import PRESENT
from memory.ports.record import Key
from tests.simulation.attempt import Attempts, Ended
from tests.simulation.faults import Process
from tests.simulation.history import ANY, Act, Event, History, KnownAt, Seen, Told
from tests.simulation.loop import START
from tests.simulation.workload import ALL_SCOPES, EXPIRY_EDITED, TENANTS, Operation
from tests.simulation.world import World

WORD = "memo"
"""In every text, so that a search for it finds every entry."""


@dataclass(frozen=True, slots=True)
class Text:
    """What is written: the register it is for and its marker, which is in every part of
    the entry.
    """

    register: str
    value: str
    padding: str = ""

    @property
    def content(self) -> str:
        return f"{self.register} {self.value} {WORD}{self.padding}"

    @property
    def parts(self) -> dict[str, object]:
        return {"content": self.content, "tags": [self.value], "metadata": {"marker": self.value}}


def value_of(entry: Entry) -> str:
    return entry.content.split(" ")[1]


class Reader:
    """Reads for one process, and knows the names of what it reads."""

    world: World
    process: Process
    history: History
    attempt: Attempts
    engine: Engine

    # -- reading -----------------------------------------------------------------------

    async def get(self, o: Operation) -> None:
        name, entry_id = self.about(o)
        done = await self.attempt("get", lambda: self.engine.entries.get(o.tenant, entry_id))
        if done is not None:
            self.sight(name, done[0], o.tenant, done[1], cached=True)
            self.engine.accesses.note(o.tenant, [entry_id])
        if done is not None and done[0] is not None:
            await self._known_now(name, done[0], done[1])

    async def _known_now(self, name: str, seen: Entry, ended: Ended) -> None:
        """What a plain read shows is known now, also where the clock of whoever wrote
        it is ahead of this one.
        """
        at = self.process.clock()
        if stored_version(seen.version) <= micros(at) or not ended.alone:
            return
        asked = EntryQuery(seen.tenant, (seen.scope,), known_at=at, limit=200)
        again = await self.attempt(
            "get known now", lambda: self.engine.entries.get(seen.tenant, seen.id, known_at=at)
        )
        listed = await self._browsed("browse known now", asked)
        for shown in (
            [] if again is None or not again[1].alone else [again[0]],
            []
            if listed is None or not listed[1].alone or not listed[2]
            else [next((e for e in listed[0] if e.id == seen.id), None)],
        ):
            late = self.process.clock() - at > PRESENT  # what was asked about is the past by now
            hidden = (
                late
                or self.history.registers[name].may_expire
                or self.history.may_have_gone(name)
                or self.history.registers[name].damaged
            )
            now = self.process.clock()
            between = at < seen.valid_from <= now or stored_version(seen.version) <= micros(
                now
            )  # of that nobody can say whether it had come at that moment
            if shown and not between and not hidden and (shown[0] is None or shown[0].version < seen.version):
                self.history.broken(
                    "wrong past",
                    name,
                    f"{ended.by} was shown {seen.content}, and is told that known at {at} is {shown[0]}",
                )

    async def foreign(self, o: Operation) -> None:
        """Another tenant asks for it by its id, or would change or delete it."""
        name, entry_id = self.about(o)
        other, entries = TENANTS[o.tenant == TENANTS[0]], self.engine.entries
        calls: list[tuple[str, Callable[[], Awaitable[object]]]] = [
            ("read", lambda: entries.get(other, entry_id)),
            ("changed", lambda: entries.update(other, entry_id, {"content": "stolen"})),
            ("retired", lambda: entries.invalidate(other, entry_id, None)),
            ("deleted", lambda: self.engine.deletion.delete(other, entry_id)),
            ("moved", lambda: self.engine.tier_mover.move(ENTRIES, Key(other, entry_id), "long")),
        ]
        did, call = calls[o.pick % len(calls)]
        done = await self.attempt("foreign", call)
        if done is not None and done[0] not in (None, False, MoveResult.GONE):
            self.history.broken("foreign", name, f"tenant {other} {did} it: {done[0]}")

    async def browse(self, o: Operation) -> None:
        """One scope or all of them, in either order, sometimes only the first few or of
        one tag.
        """
        scopes = ALL_SCOPES if o.pick // 2 % 5 == 0 else (o.scope,)
        asked = EntryQuery(
            o.tenant, scopes, order=("newest", "oldest")[o.pick % 2], limit=2 if o.pick // 2 % 5 == 1 else 200
        )
        if o.pick // 2 % 5 == 2 and (tag := self._tag(o)) is not None:
            asked = replace(asked, tags=(tag,))
        await self.answered("browse", asked, lambda: self.engine.browser.browse(asked))

    async def search(self, o: Operation) -> None:
        """By a word that is in all, or by one's own text, in one scope or in all of
        them.
        """
        asked = EntryQuery(
            o.tenant, ALL_SCOPES if o.pick % 5 == 0 else (o.scope,), limit=2 if o.pick % 5 == 1 else 200
        )
        if o.pick % 5 in (2, 3) and (tag := self._tag(o, first=o.pick % 5 == 3)) is not None:
            asked = replace(asked, tags=(tag,))
        await self.found("search", asked)

    def _tag(self, o: Operation, *, first: bool = False) -> str | None:
        """What the entry was last known to say, or first."""
        events = self.history.registers[o.register].events if o.register in self.history.registers else []
        ordered = events if first else reversed(events)
        return next(
            (e.value for e in ordered if e.act in (Act.CREATE, Act.UPDATE) and e.value not in (None, ANY)),
            None,
        )

    async def found(self, by: str, asked: EntryQuery) -> None:
        done = await self._searched(by, asked)
        if done is not None:
            self._shown(done[0], asked, done[1], complete=done[2])

    async def answered(
        self, by: str, asked: EntryQuery, call: Callable[[], Awaitable[Iterable[Entry]]]
    ) -> None:
        """An answer over scopes, whole unless it says which store was left out.
        Browsing keeps its order.
        """
        done = await self.attempt(by, call)
        if done is None:
            return
        entries = list(done[0])
        if by.endswith("browse"):
            ordered = sorted(entries, key=lambda e: e.created_at, reverse=asked.order == "newest")
            if entries != ordered:
                self.history.broken(
                    "order", "-", f"{done[1].by} answers out of order: {[e.content for e in entries]}"
                )
        self._shown(entries, asked, done[1], complete=not getattr(done[0], "degraded", ()))

    async def export(self, o: Operation) -> None:
        """Everything in a scope, read page by page while others write and move."""
        asked = EntryQuery(o.tenant, (o.scope,), limit=10_000)

        async def everything() -> list[Entry]:
            return [e async for e in self.engine.browser.everything(o.tenant, [o.scope])]

        await self.answered("everything", asked, everything)

    async def known_at(self, o: Operation) -> None:
        """What was known at an earlier moment, which is not sharper than the clocks
        that versions are made of.
        """
        name, entry_id = self.about(o)
        at = self.world.loop.time() * (o.pick % 100) / 100
        known_at = START + timedelta(seconds=at)
        found: dict[str, str | None] = {}
        if o.pick % 3:
            asked = EntryQuery(o.tenant, (o.scope,), known_at=known_at, as_of=self.process.clock(), limit=200)
            past = await (
                self._browsed("browse known at", asked)
                if o.pick % 3 == 1
                else self._searched("search known at", asked)
            )
            ended = None if past is None else past[1]
            if past is not None:
                found = {self.seen(e).register: value_of(e) for e in past[0]}
                inside = (
                    r
                    for r in self.history.registers.values()
                    if (r.tenant, r.scope) == (o.tenant, o.scope.text) and r.events
                )
                found = {**{r.name: None for r in inside if past[2] and not r.damaged}, **found}
        else:
            done = await self.attempt(
                "known at",
                lambda: self.engine.entries.get(
                    o.tenant, entry_id, known_at=known_at, as_of=self.process.clock()
                ),
            )
            ended = None if done is None else done[1]
            found = {} if done is None else {name: None if done[0] is None else value_of(done[0])}
        if ended is not None:
            slack = 2 * self.world.widest + PRESENT.total_seconds() + 0.1
            self.history.known_at += [
                KnownAt(n, v, at, slack, ended.start, ended.clock) for n, v in found.items()
            ]

    async def _browsed(self, by: str, asked: EntryQuery) -> tuple[list[Entry], Ended, bool] | None:
        """What was listed, when, and whether that is all."""
        done = await self.attempt(by, lambda: self.engine.browser.browse(asked))
        return None if done is None else (list(done[0]), done[1], not done[0].degraded)

    async def _searched(self, by: str, asked: EntryQuery) -> tuple[list[Entry], Ended, bool] | None:
        done = await self.attempt(by, lambda: self.engine.entry_search.search(asked, WORD))
        return None if done is None else ([hit.entry for hit in done[0]], done[1], not done[0].degraded)

    async def past(self, o: Operation) -> None:
        name, entry_id = self.about(o)
        await self.remembered(name, entry_id, o.pick)

    async def remembered(self, name: str, entry_id: str, pick: int, *, settled: bool = False) -> None:
        """Every version of an entry; and one of them again, by the moment it was made.
        Where nobody else is at work any more, each of them.
        """
        tenant, entries = self.history.registers[name].tenant, self.engine.entries
        done = await self.attempt(
            "history", lambda: entries.history(tenant, entry_id), about=(name, entry_id)
        )
        if done is None or not done[0]:
            return
        versions, ended = done
        if not all(self.history.saw(self.seen(version), tenant, ended.by) for version in versions):
            return
        if sorted({v.version for v in versions}) != [v.version for v in versions]:
            self.history.broken(
                "wrong past",
                name,
                f"{ended.by} was told versions out of order: {[v.version for v in versions]}",
            )
        self.history.pasts.append(
            Told(name, ended.start, ended.end, ended.by, tuple(value_of(v) for v in versions))
        )
        self.history.note(Event(name, Act.READ, value_of(versions[-1]), ended.start, ended.end, by=ended.by))
        await self._as_of(name, versions[-1], pick)
        if settled:
            for version in versions:
                await self._at_its_moment(name, version)
            edited = self.history.registers[name].edits_its_expiry
            for n, version in enumerate(versions) if edited else [(pick, versions[pick % len(versions)])]:
                await self._listed_at_its_moment(name, version, versions[-1], searching=bool(n % 2))
        else:
            await self._at_its_moment(name, versions[pick % len(versions)])

    async def _at_its_moment(self, name: str, version: Entry) -> None:
        """Asked for by its id as it was known when this version was made, it is told to
        have said this. A confirmation makes a version without an edit, so `updated_at` is
        not always that moment.
        """
        if version.valid_to is not None and version.valid_to <= version.valid_from:
            return
        tenant, entry_id, entries = version.tenant, version.id, self.engine.entries
        at = moment(stored_version(version.version))
        again = await self.attempt(
            "known at its moment",
            lambda: entries.get(tenant, entry_id, known_at=at, as_of=version.valid_from),
        )
        if again is not None and not self._same_version(name, version, again[0], again[1]):
            told = None if again[0] is None else value_of(again[0])
            self.history.broken(
                "wrong past",
                name,
                f"{again[1].by}: at {at} it said {value_of(version)}, and is told to have said {told}",
            )

    async def _listed_at_its_moment(
        self, name: str, version: Entry, latest: Entry, *, searching: bool
    ) -> None:
        """Asked for with its scope, once everything is at rest: this version is among
        what was known when it was made.
        """
        if (
            version.valid_to is not None and version.valid_to <= version.valid_from
        ) or self.history.registers[name].damaged:
            return
        at = moment(stored_version(version.version))
        asked = EntryQuery(version.tenant, (version.scope,), known_at=at, as_of=version.valid_from, limit=200)
        listed = await (
            self._searched("search known at", asked) if searching else self._browsed("browse known at", asked)
        )
        if listed is None:
            return
        told = next((e for e in listed[0] if e.id == version.id), None)
        over = any(
            e.expires_at is not None and e.expires_at <= now
            for e, now in ((latest, self.process.clock()), (version, at))
        )
        if (told is None and not over) or (told is not None and told.version != version.version):
            shown = None if told is None else value_of(told)
            self.history.broken(
                "wrong past",
                name,
                f"{listed[1].by}: at {at} it said {value_of(version)}, and is listed as having said {shown}",
            )

    async def _as_of(self, name: str, latest: Entry, pick: int) -> None:
        """Asked about a moment, it is shown where the moment lies in its window, over
        or not, and nowhere else.
        """
        tenant = self.history.registers[name].tenant
        start, end, tick = latest.valid_from, latest.valid_to, timedelta(microseconds=1)
        moments = [start, start - timedelta(hours=1)] + ([] if end is None else [end, end - tick])
        if end is not None and end <= start:
            return
        at = moments[pick % len(moments)]
        if pick % 3 == 2:
            done = await self.attempt(
                "get as of", lambda: self.engine.entries.get(tenant, latest.id, as_of=at)
            )
            shown = None if done is None else ([e for e in (done[0],) if e is not None], done[1], True)
        else:
            asked = EntryQuery(tenant, (latest.scope,), as_of=at, limit=200)
            shown = await (
                self._searched("search as of", asked) if pick % 3 else self._browsed("browse as of", asked)
            )
        if shown is None:
            return
        listed, ended, whole = shown
        told = next((e for e in listed if e.id == latest.id), None)
        if told is not None and not (told.valid_from <= at and (told.valid_to is None or at < told.valid_to)):
            self.history.broken(
                "shown too long",
                name,
                f"{ended.by} was shown at {at} what holds from {told.valid_from} to {told.valid_to}",
            )
        inside = start <= at and (end is None or at < end)
        register = self.history.registers[name]
        excused = register.may_expire or register.damaged or self.history.may_be_deleted(name)
        excused = excused or (
            end is None and name in self.history.retiring
        )  # its window may have ended since
        if told is None and whole and inside and not excused:
            self.history.broken(
                "missing", name, f"{ended.by} was not shown at {at} what holds from {start} to {end}"
            )

    def _same_version(self, name: str, version: Entry, told: Entry | None, ended: Ended) -> bool:
        """Whether the answer is that version, or nothing where the entry may have gone
        or been hidden meanwhile.
        """
        register = self.history.registers[name]
        if told is not None:
            being_erased = (
                f"{register.tenant}/{register.scope}" in self.history.leaving
            )  # and its past before it
            return (told.version == version.version and value_of(told) == value_of(version)) or (
                being_erased and told.version > version.version
            )
        return register.may_expire or register.damaged or self.history.may_have_gone(name)

    # -- names -------------------------------------------------------------------------

    def sight(
        self, name: str, entry: Entry | None, tenant: str, ended: Ended, *, cached: bool = False
    ) -> None:
        """An answer about one register."""
        if entry is None or self.history.saw(self.seen(entry), tenant, ended.by):
            if entry is not None:
                self.lives(name, entry.tier, ended, cached=cached)
            value = None if entry is None else value_of(entry)
            self.history.note(
                Event(
                    name,
                    Act.READ,
                    value,
                    ended.start,
                    ended.end,
                    cached=cached,
                    by=ended.by,
                    clock=ended.clock,
                )
            )

    def lives(self, name: str, tier: str, ended: Ended, *, cached: bool = False) -> None:
        """It was met in this tier."""
        self.history.tiers.append(Told(name, ended.start, ended.end, ended.by, tier=tier, cached=cached))

    def seen(self, entry: Entry) -> Seen:
        """Which register an entry is: known by id, else by its text, or by what it was
        promoted from. Its parts must agree.
        """
        if entry.tags != [value_of(entry)] or entry.metadata.get("marker") != value_of(entry):
            self.history.broken(
                "torn",
                self.history.names.get(entry.id, entry.id),
                f"{entry.content} with {entry.tags} and {entry.metadata}",
            )
        known = self.history.names.get(entry.id)
        register = self.history.registers.get(known or "")
        hidden_from = inf if entry.expires_at is None else micros(entry.expires_at) + 1
        if register is not None:
            promised = (
                self.history.expiries.get(value_of(entry), inf)
                if register.edits_its_expiry
                else register.hidden_from
            )
            if promised != hidden_from:
                self.history.broken(
                    "torn",
                    register.name,
                    f"{entry.content} is hidden from {hidden_from} on, and was to be from {promised}",
                )
        parent = self.history.names.get(entry.promoted_from_id or "")
        name = known or (f"{parent}>{entry.scope.text}" if parent else entry.content.split(" ")[0])
        return Seen(name, value_of(entry), entry.id, entry.tenant, entry.scope.text)

    def _shown(self, entries: Sequence[Entry], asked: EntryQuery, ended: Ended, *, complete: bool) -> None:
        scopes = frozenset(s.text for s in asked.scopes)
        sights = [self.seen(e) for e in entries]
        if len(entries) > asked.limit or any(tag not in e.tags for e in entries for tag in asked.tags):
            self.history.broken(
                "foreign", "-", f"{ended.by} asked for {asked} and was shown {[e.content for e in entries]}"
            )
        complete = complete and len(entries) < asked.limit and not asked.tags
        self.history.answered(
            sights,
            asked.tenant,
            scopes,
            ended.start,
            ended.end,
            ended.by,
            complete=complete,
            clock=ended.clock,
        )
        for entry, seen in zip(entries, sights, strict=True):
            if self.history.names.get(seen.id) == seen.register:
                self.world.ids.setdefault(seen.register, seen.id)
                self.lives(seen.register, entry.tier, ended)

    def text(self, o: Operation, root: str, value: str, expires_at: datetime | None = None) -> Text:
        if root not in self.history.registers:
            hidden_from = (
                inf if expires_at is None else micros(expires_at) + 1
            )  # at its very expiry it is still shown
            edited = root.startswith(EXPIRY_EDITED)
            self.history.register(root, o.tenant, o.scope.text, inf if edited else hidden_from)
        if self.history.registers[root].edits_its_expiry:
            self.history.expiries[value] = inf if expires_at is None else micros(expires_at) + 1
        large = self.world.scenario.narrow and sum(value.encode()) % 3 == 0
        return Text(root, self.history.marker(root, value), " or more of it" * 100 if large else "")

    def told(self, register: str, entry: Entry) -> None:
        self.world.ids.setdefault(register, entry.id)
        self.history.names[entry.id] = register

    def about(self, o: Operation) -> tuple[str, str]:
        """The register an operation is about: the one it names or, now and then, a copy
        promoted from it; and its id.
        """
        copies = [n for n in self.world.ids if n.startswith(f"{o.register}>")]
        name = copies[o.pick % len(copies)] if copies and o.pick % 3 == 0 else o.register
        return name, self.world.ids[name]

    def same_scope(self, name: str, entry_id: str) -> bool:
        return (
            self.history.registers[name].scope == self.history.registers[self.history.names[entry_id]].scope
        )
