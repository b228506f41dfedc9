"""The real engine as a worker uses it: each operation is carried out, and what its answer proves goes into the history."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf

from memory.adapters.in_memory import InMemoryStore
from memory.domain.entry import Entry, EntryDraft
from memory.domain.errors import StoreError
from memory.domain.time import micros
from memory.orchestrator.asked import Asked
from memory.orchestrator.windows import PRESENT
from memory.ports.collections import ENTRIES
from memory.ports.record import Key, Record, Role
from tests.simulation.attempt import Attempts, Effect, Effects, Ended
from tests.simulation.audit import settle
from tests.simulation.faults import CLOCK_ERROR, Process
from tests.simulation.faulty_store import FaultyStore
from tests.simulation.history import Act, Event, KnownAt, Moments, Seen
from tests.simulation.loop import START
from tests.simulation.setup import build_engine
from tests.simulation.workload import PROMOTED, SOON, TENANTS, Kind, Operation
from tests.simulation.world import World

PATIENCE = 60
"""Milliseconds that a worker waits to be told of an entry that another is writing."""

WORD = "memo"
"""In every text, so that a search for it finds every entry."""


class EngineClient:
    """One process's engine. A new process begins with nothing but the stores."""

    def __init__(self, world: World, process: Process, stores: dict[str, FaultyStore]) -> None:
        self.world, self.process, self.history = world, process, world.history
        self.attempt = Attempts(world.history, process)
        self.engine = build_engine(world, process, stores)

    async def open(self) -> bool:
        """False where a store failed: to be tried again."""
        try:
            await self.engine.open()
        except StoreError:
            return False
        return True

    async def perform(self, operation: Operation) -> None:
        """Carry it out. What is about an entry that nobody has been told of, even after a while, becomes a look at its scope."""
        about_none = operation.kind in _ABOUT_NONE
        for _ in range(PATIENCE):
            if about_none or operation.register in self.world.ids:
                return await _ACTIONS[operation.kind](self, operation)
            await asyncio.sleep(0.001)
        return await self.browse(operation)

    async def settle(self) -> None:
        await settle(self)

    # -- writing ------------------------------------------------------------------------------------------------------

    async def write(self, o: Operation) -> None:
        expires_at = self.process.clock() + timedelta(seconds=SOON[o.pick // 8 % len(SOON)]) if o.pick % 8 == 0 else None
        text = self._text(o, o.register, f"m{o.number}", expires_at)
        draft = EntryDraft(scope=o.scope, content=text.content, expires_at=expires_at)
        done = await self.attempt("write", lambda: self.engine.entries.write(o.tenant, draft), [Effect(Act.CREATE, text.register, text.value)])
        if done is not None:
            self._told(text.register, done[0])

    async def keyed(self, o: Operation) -> None:
        """Everyone who uses the key asks for the same; some for a new life where it was deleted."""
        text, revive = self._text(o, o.register, f"m{o.register}"), o.pick % 3 == 0
        draft = EntryDraft(scope=o.scope, content=text.content, key=o.register)
        effect = Effect(Act.PROMOTE if revive else Act.CREATE, text.register, text.value, keyed=True)
        done = await self.attempt("keyed write", lambda: self.engine.entries.write(o.tenant, draft, revive=revive), [effect])
        if done is not None:
            self._told(text.register, done[0])

    async def batch(self, o: Operation) -> None:
        texts = [self._text(o, f"{o.register}.{i}", f"m{o.number}.{i}") for i in range(2 + o.pick % 3)]
        drafts = [EntryDraft(scope=o.scope, content=t.content) for t in texts]
        effects = [Effect(Act.CREATE, t.register, t.value) for t in texts]
        done = await self.attempt("write batch", lambda: self.engine.entries.write_many(o.tenant, drafts), effects)
        if done is not None:
            for text, entry in zip(texts, done[0], strict=True):
                self._told(text.register, entry)

    async def update(self, o: Operation) -> None:
        name, entry_id = self._about(o)
        text = self._text(o, name.partition(">")[0], f"m{o.number}")
        changes = {"content": text.content}
        effect = Effect(Act.UPDATE, name, text.value)
        await self.attempt("update", lambda: self.engine.entries.update(o.tenant, entry_id, changes), [effect], about=(name, entry_id))

    async def invalidate(self, o: Operation) -> None:
        """From now on, or from a named moment on; now is what the clock shows during the call, or the start of the window if that is later."""
        name, entry_id = self._about(o)
        clock = self.process.clock
        named = clock() + timedelta(seconds=SOON[o.pick // 2 % len(SOON)]) if o.pick % 2 else None
        begun = micros(clock())

        def ends() -> Moments:
            if named is not None:
                return (micros(named), micros(named))
            shown = clock.shown()
            return (begun, (begun if shown is None else micros(shown[1])) + round(2e6 * CLOCK_ERROR))

        def unknown() -> Effects:
            return [Effect(Act.RETIRE, name, ends=ends())]

        def told(was_open: bool) -> Effects:
            return [Effect(Act.RETIRE, name, ends=ends()) if was_open else Effect(Act.CLOSED, name)]

        await self.attempt("invalidate", lambda: self.engine.entries.invalidate(o.tenant, entry_id, named), unknown, told)

    async def delete(self, o: Operation) -> None:
        name, entry_id = self._about(o)

        def shown(was_there: bool) -> Effects:
            if was_there and self.history.registers[name].damaged:
                return [Effect(Act.WIPE, name)]  # who cannot read it cannot tell whether somebody else deleted it meanwhile
            return [Effect(Act.DELETE if was_there else Act.ABSENT, name)]

        await self.attempt("delete", lambda: self.engine.erasure.delete(ENTRIES, Key(o.tenant, entry_id)), [Effect(Act.WIPE, name)], shown)

    async def delete_scope(self, o: Operation) -> None:
        """What was there before is gone after; what came meanwhile may be."""
        before, start = set(self.history.registers), self.history.moment()

        def wiped(erased: int) -> Effects:
            there = [r.name for r in self.history.registers.values() if (r.tenant, r.scope) == (o.tenant, o.scope.text)]
            return [Effect(Act.WIPE, name, maybe=name not in before) for name in there]

        def unknown() -> Effects:
            self.history.note_hanging_wipe(o.tenant, o.scope.text, start, f"delete scope {self.process.name}#{o.number}")
            return []

        await self.attempt("delete scope", lambda: self.engine.erasure.erase_scope(o.tenant, o.scope), unknown, wiped)

    async def promote(self, o: Operation) -> None:
        """To a broader scope; the copy is a register of its own, named after where it came from."""
        source, entry_id = self._about(o)
        targets = PROMOTED.get(self.history.registers[source].scope, ())
        if not targets:
            return await self.browse(o)
        target = targets[o.pick % len(targets)]
        away = o.kind is Kind.PROMOTE_AWAY
        hidden_from = self.history.registers[source].hidden_from
        name = self.history.register(f"{source}>{target.text}", o.tenant, target.text, hidden_from).name
        effects = [Effect(Act.PROMOTE, name), *([Effect(Act.DROP, source)] if away else [])]

        def shown(entry: Entry) -> Effects:
            self._told(name, entry)
            first_copy = Effect(Act.READ, name, _value(entry), hidden_too=True)
            return [effects[0], first_copy, *([Effect(Act.DROP, source, maybe=True, promised=True)] if away else [])]

        await self.attempt(
            "promote",
            lambda: self.engine.derivation.promote(o.tenant, entry_id, target, delete_original=away),
            effects,
            shown,
            about=(source, entry_id),
        )
        return None

    async def compact(self, o: Operation) -> None:
        """Entries of one scope into one; the sources, as they were read, may be deleted after it."""
        _, first = self._about(o)
        others = [i for n, i in self.world.ids.items() if self.history.registers[n].tenant == o.tenant and self._same_scope(n, first)]
        chosen = list(dict.fromkeys([first, *others[o.pick % (len(others) or 1) :][:2]]))
        away = o.kind is Kind.COMPACT_AWAY
        scope = self.history.registers[self.history.names[first]].scope
        register, value = f"c{o.number}", f"mc{o.number}"
        read: list[Effect] = []

        def combined(entries: list[Entry]) -> str:
            hidden_from = max(self.history.registers[self.history.names[e.id]].hidden_from for e in entries)
            self.history.register(register, o.tenant, scope, hidden_from)
            self.history.marker(register, value)
            read[:] = [Effect(Act.DROP, self.history.names[e.id], _value(e), promised=True) for e in entries]
            return f"{register} {value} {WORD}"

        def effects() -> Effects:
            return [Effect(Act.CREATE, register, value), *(read if away else [])] if read else []

        done = await self.attempt("compact", lambda: self.engine.derivation.compact(o.tenant, chosen, combined, delete_sources=away), effects)
        if done is not None:
            self._told(register, done[0])

    async def relate(self, o: Operation) -> None:
        _, entry_id = self._about(o)
        mine = [n for n in self.world.ids if self.history.registers[n].tenant == o.tenant and not self.history.known_gone(n)]
        others = [i for n in mine if (i := self.world.ids[n]) != entry_id]
        if o.pick % 3 == 0 or not others:
            await self.attempt("related", lambda: self.engine.relations.related(o.tenant, source_id=entry_id))
        else:
            other = others[o.pick % len(others)]
            await self.attempt("relate", lambda: self.engine.relations.relate(o.tenant, entry_id, "supports", other))

    async def damage(self, o: Operation) -> None:
        """A disk damages one copy of the entry, and nobody is told."""
        name, entry_id = self._about(o)
        key, states = Key(o.tenant, entry_id), [s.store.state for s in self.world.distinct if isinstance(s.store, InMemoryStore)]
        copies = [(state, copy) for state in states if isinstance(copy := state.standing(ENTRIES.name, key), Record)]
        if copies:
            state, copy = copies[0 if o.pick % 4 else o.pick % len(copies)]  # the home, mostly
            state.spoil(ENTRIES.name, key)
            self.history.registers[name].damaged |= copy.role is not Role.CACHED

    # -- moving -------------------------------------------------------------------------------------------------------

    async def move(self, o: Operation) -> None:
        _, entry_id = self._about(o)
        to = ("mid", "long")[o.pick % 2] if o.scope.kind == "session" else "long"
        await self.attempt("move", lambda: self.engine.tiering.move(ENTRIES, Key(o.tenant, entry_id), to))

    async def sweep(self, o: Operation) -> None:
        await self.attempt("sweep", self.engine.maintenance.sweep)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def get(self, o: Operation) -> None:
        name, entry_id = self._about(o)
        done = await self.attempt("get", lambda: self.engine.entries.get(o.tenant, entry_id))
        if done is not None:
            self.sight(name, done[0], o.tenant, done[1], cached=True)

    async def foreign(self, o: Operation) -> None:
        """Another tenant asks for it by its id."""
        name, entry_id = self._about(o)
        other = TENANTS[o.tenant == TENANTS[0]]
        done = await self.attempt("get", lambda: self.engine.entries.get(other, entry_id))
        if done is not None and done[0] is not None:
            self.history.broken("foreign", name, f"tenant {other} read {done[0].content}")

    async def browse(self, o: Operation) -> None:
        asked = Asked(o.tenant, (o.scope,), order=("newest", "oldest")[o.pick % 2], limit=200)
        await self.answered("browse", asked, lambda: self.engine.browsing.browse(asked))

    async def search(self, o: Operation) -> None:
        await self.found("search", Asked(o.tenant, (o.scope,), limit=200))

    async def found(self, by: str, asked: Asked) -> None:
        done = await self.attempt(by, lambda: self.engine.searching.search(asked, WORD))
        if done is not None:
            self._shown([hit.entry for hit in done[0]], asked, done[1], complete=not done[0].degraded)

    async def answered(self, by: str, asked: Asked, call: Callable[[], Awaitable[Iterable[Entry]]]) -> None:
        """An answer over scopes, whole unless it says which store was left out."""
        done = await self.attempt(by, call)
        if done is not None:
            self._shown(done[0], asked, done[1], complete=not getattr(done[0], "degraded", ()))

    async def export(self, o: Operation) -> None:
        """Everything in a scope, read page by page while others write and move."""
        asked = Asked(o.tenant, (o.scope,))

        async def everything() -> list[Entry]:
            return [e async for e in self.engine.browsing.everything(o.tenant, o.scope)]

        await self.answered("everything", asked, everything)

    async def known_at(self, o: Operation) -> None:
        """What was known at an earlier moment, which is not sharper than the clocks that versions are made of."""
        name, entry_id = self._about(o)
        at = self.world.loop.time() * (o.pick % 100) / 100
        moment = START + timedelta(seconds=at)
        found: dict[str, str | None] = {}
        if o.pick % 2:
            asked = Asked(o.tenant, (o.scope,), known_at=moment, as_of=self.process.clock(), limit=200)
            browsed = await self.attempt("browse known at", lambda: self.engine.browsing.browse(asked))
            ended = None if browsed is None else browsed[1]
            found = {} if browsed is None else {self.seen(e).register: _value(e) for e in browsed[0]}
        else:
            done = await self.attempt("known at", lambda: self.engine.entries.get(o.tenant, entry_id, known_at=moment, as_of=self.process.clock()))
            ended = None if done is None else done[1]
            found = {} if done is None else {name: None if done[0] is None else _value(done[0])}
        if ended is not None:
            slack = 2 * self.world.widest + PRESENT.total_seconds() + 0.1
            self.history.known_at += [KnownAt(n, v, at, slack, ended.end, ended.clock) for n, v in found.items()]

    # -- names --------------------------------------------------------------------------------------------------------

    def sight(self, name: str, entry: Entry | None, tenant: str, ended: Ended, *, cached: bool = False) -> None:
        """An answer about one register."""
        if entry is None or self.history.saw(self.seen(entry), tenant, ended.by):
            value = None if entry is None else _value(entry)
            self.history.note(Event(name, Act.READ, value, ended.start, ended.end, cached=cached, by=ended.by, clock=ended.clock))

    def seen(self, entry: Entry) -> Seen:
        """Which register an entry is: known by id, else by its text, or by what it was promoted from."""
        known = self.history.names.get(entry.id)
        parent = self.history.names.get(entry.promoted_from_id or "")
        name = known or (f"{parent}>{entry.scope.text}" if parent else entry.content.split(" ")[0])
        return Seen(name, _value(entry), entry.id, entry.tenant, entry.scope.text)

    def _shown(self, entries: Iterable[Entry], asked: Asked, ended: Ended, *, complete: bool) -> None:
        scopes = frozenset(s.text for s in asked.scopes)
        sights = [self.seen(e) for e in entries]
        self.history.answered(sights, asked.tenant, scopes, ended.start, ended.end, ended.by, complete=complete, clock=ended.clock)
        for seen in sights:
            if self.history.names.get(seen.id) == seen.register:
                self.world.ids.setdefault(seen.register, seen.id)

    def _text(self, o: Operation, root: str, value: str, expires_at: datetime | None = None) -> _Text:
        if root not in self.history.registers:
            hidden_from = inf if expires_at is None else micros(expires_at) + 1  # at its very expiry it is still shown
            self.history.register(root, o.tenant, o.scope.text, hidden_from)
        return _Text(root, self.history.marker(root, value))

    def _told(self, register: str, entry: Entry) -> None:
        self.world.ids.setdefault(register, entry.id)
        self.history.names[entry.id] = register

    def _about(self, o: Operation) -> tuple[str, str]:
        """The register an operation is about: the one it names or, now and then, a copy promoted from it; and its id."""
        copies = [n for n in self.world.ids if n.startswith(f"{o.register}>")]
        name = copies[o.pick % len(copies)] if copies and o.pick % 3 == 0 else o.register
        return name, self.world.ids[name]

    def _same_scope(self, name: str, entry_id: str) -> bool:
        return self.history.registers[name].scope == self.history.registers[self.history.names[entry_id]].scope


@dataclass(frozen=True, slots=True)
class _Text:
    """What is written: the register it is for and its marker."""

    register: str
    value: str

    @property
    def content(self) -> str:
        return f"{self.register} {self.value} {WORD}"


def _value(entry: Entry) -> str:
    return entry.content.split(" ")[1]


_ABOUT_NONE = frozenset({Kind.WRITE, Kind.KEYED, Kind.BATCH, Kind.DELETE_SCOPE, Kind.RETRIEVE, Kind.SEARCH, Kind.SWEEP, Kind.EXPORT})

_ACTIONS: dict[Kind, Callable[[EngineClient, Operation], Awaitable[None]]] = {
    Kind.WRITE: EngineClient.write,
    Kind.KEYED: EngineClient.keyed,
    Kind.BATCH: EngineClient.batch,
    Kind.UPDATE: EngineClient.update,
    Kind.INVALIDATE: EngineClient.invalidate,
    Kind.DELETE: EngineClient.delete,
    Kind.DELETE_SCOPE: EngineClient.delete_scope,
    Kind.GET: EngineClient.get,
    Kind.RETRIEVE: EngineClient.browse,
    Kind.SEARCH: EngineClient.search,
    Kind.PROMOTE: EngineClient.promote,
    Kind.PROMOTE_AWAY: EngineClient.promote,
    Kind.COMPACT: EngineClient.compact,
    Kind.COMPACT_AWAY: EngineClient.compact,
    Kind.MOVE: EngineClient.move,
    Kind.SWEEP: EngineClient.sweep,
    Kind.KNOWN_AT: EngineClient.known_at,
    Kind.FOREIGN: EngineClient.foreign,
    Kind.RELATE: EngineClient.relate,
    Kind.EXPORT: EngineClient.export,
    Kind.DAMAGE: EngineClient.damage,
}
