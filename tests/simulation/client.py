"""The real engine as a worker uses it: each operation is carried out, and what its
answer proves goes into the history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from math import inf
from typing import Any

from memory.domain.entry import Entry, EntryDraft
from memory.domain.errors import StoreError
from memory.domain.time import micros
from memory.orchestrator.storage.collections import ENTRIES, OPERATIONS
from memory.orchestrator.storage.outbox import pending_versions
from memory.orchestrator.tiering.moves import MoveResult
from memory.ports.record import Key, Record, Role, Tombstone
from tests.simulation import relating
from tests.simulation.attempt import Attempts, Effect, Effects
from tests.simulation.audit import of_scope, settle
from tests.simulation.faults import CLOCK_ERROR, Process
from tests.simulation.faulty_store import FaultyStore
from tests.simulation.history import Act, Derived, Erased, Moments
from tests.simulation.reader import Reader, Text, value_of
from tests.simulation.scenes import Kind
from tests.simulation.setup import build_engine
from tests.simulation.workload import EXPIRY_EDITED, PROMOTED, SOON, Operation
from tests.simulation.world import World

PATIENCE = 60
"""Milliseconds that a worker waits to be told of an entry that another is writing."""


class EngineClient(Reader):
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
        """Carry it out. What is about an entry that nobody has been told of, even after
        a while, becomes a look at its scope.
        """
        about_none = operation.kind in _ABOUT_NONE
        for _ in range(PATIENCE):
            if about_none or operation.register in self.world.ids:
                await _ACTIONS[operation.kind](self, operation)
                return self.world.agrees(self.engine.generations)
            await asyncio.sleep(0.001)
        return await self.browse(operation)

    async def settle(self) -> None:
        await settle(self)

    # -- writing -----------------------------------------------------------------------

    async def write(self, o: Operation) -> None:
        expires_at = (
            self.process.clock() + timedelta(seconds=SOON[o.pick // 8 % len(SOON)])
            if o.pick % 8 == 0
            else None
        )
        expires_at = self._edited_expiry(o) if o.register.startswith(EXPIRY_EDITED) else expires_at
        text = self.text(o, o.register, f"m{o.number}", expires_at)
        draft = EntryDraft(scope=o.scope, expires_at=expires_at, **text.parts)
        done = await self.attempt(
            "write",
            lambda: self.engine.entries.write(o.tenant, draft),
            [Effect(Act.CREATE, text.register, text.value)],
        )
        if done is not None:
            self.told(text.register, done[0])

    def _edited_expiry(self, o: Operation) -> datetime | None:
        return (
            None
            if o.expires is None or o.expires == inf
            else self.process.clock() + timedelta(seconds=o.expires)
        )

    async def keyed(self, o: Operation) -> None:
        """Most who use the key ask for the same, some for another text, and some for a
        new life where it was deleted.
        """
        text = self.text(o, o.register, f"m{o.register}-{'b' if o.pick % 4 == 0 else 'a'}")
        draft = EntryDraft(scope=o.scope, key=o.register, **text.parts)
        revive = o.pick % 4 == 1
        self.history.revived |= {text.register} if revive else set()
        effect = Effect(
            Act.PROMOTE if revive else Act.CREATE,
            text.register,
            text.value,
            keyed=True,
            forgotten=self._forgotten(text.register),
        )
        taken = [Effect(Act.TAKEN, text.register, text.value)]
        done = await self.attempt(
            "keyed write",
            lambda: self.engine.entries.write(o.tenant, draft, revive=revive),
            [effect],
            taken=taken,
        )
        if done is not None:
            self._first(text, done[0])

    def _forgotten(self, register: str) -> bool:
        """Whether the tombstone of what was deleted may be gone."""
        return self.history.may_have_been_deleted_by(
            register, self.world.loop.time() - self.engine.settings.tombstone_life.total_seconds() + 3_600
        )

    def _first(self, text: Text, entry: Entry) -> None:
        """The answer to a keyed write: the entry as first stored, every time."""
        self.told(text.register, entry)
        if value_of(entry) != text.value or entry.tags != [text.value]:
            self.history.broken(
                "stale",
                text.register,
                f"a write of {text.value} under its key was answered {entry.content} {entry.tags}",
            )
        first = self.history.firsts.setdefault(text.register, entry)
        if (
            (first.id, first.created_at) != (entry.id, entry.created_at)
            and text.register not in self.history.revived
            and not self._forgotten(text.register)
        ):
            self.history.broken(
                "stale",
                text.register,
                f"the same write was answered {first.id} of {first.created_at}, then {entry.id} of"
                f" {entry.created_at}",
            )

    async def batch(self, o: Operation) -> None:
        """Several entries at once: some under keys, of which one may be in it twice,
        once with another text.
        """
        texts = [self.text(o, f"{o.register}.{i}", f"m{o.number}.{i}") for i in range(2 + o.pick % 3)]
        keys: list[str | None] = [None for _ in texts]
        if o.pick % 2:
            names = [f"k{o.number}-{i}" for i in range(2)] if o.pick % 3 else [f"k-{o.tenant}-{o.scope.kind}"]
            keyed = [self.text(o, name, f"m{name}-{'b' if o.pick % 5 == 0 else 'a'}") for name in names]
            keyed += keyed[: o.pick // 2 % 2]
            texts, keys = [*keyed, *texts], [*(t.register for t in keyed), *keys]
        drafts = [EntryDraft(scope=o.scope, key=key, **t.parts) for t, key in zip(texts, keys, strict=True)]
        effects = [
            Effect(
                Act.CREATE, t.register, t.value, keyed=key is not None, forgotten=self._forgotten(t.register)
            )
            for t, key in zip(texts, keys, strict=True)
        ]
        done = await self.attempt(
            "write batch", lambda: self.engine.entries.write_many(o.tenant, drafts), effects, partly=True
        )
        if done is None:
            return
        if len(done[0]) != len(texts):
            self.history.broken("lost", o.register, f"of {len(texts)} drafts {len(done[0])} were answered")
        for text, key, entry in zip(texts, keys, done[0], strict=False):
            if key is None:
                self.told(text.register, entry)
            else:
                self._first(text, entry)

    async def update(self, o: Operation) -> None:
        name, entry_id = self.about(o)
        edited = self.history.registers[name].edits_its_expiry
        expires_at = self._edited_expiry(o) if edited else None
        text = self.text(o, name.partition(">")[0], f"m{o.number}", expires_at)
        changes: dict[str, Any] = {
            **text.parts,
            **({"title": text.value} if o.pick % 3 == 0 else {}),
            **({"expires_at": expires_at} if edited else {}),
        }
        effect = Effect(Act.UPDATE, name, text.value)
        done = await self.attempt(
            "update",
            lambda: self.engine.entries.update(o.tenant, entry_id, changes),
            [effect],
            about=(name, entry_id),
        )
        if done is not None:
            self.lives(name, done[0].tier, done[1])
            if value_of(done[0]) != text.value or self.seen(done[0]).register != name:
                self.history.broken("stale", name, f"{done[1].by} was answered {done[0].content}")

    async def invalidate(self, o: Operation) -> None:
        """From now on, or from a named moment on; now is what the clock shows during
        the call, or the start of the window if that is later.
        """
        name, entry_id = self.about(o)
        clock = self.process.clock
        named = clock() + timedelta(seconds=SOON[o.pick // 2 % len(SOON)]) if o.pick % 2 else None
        begun = micros(clock())

        def ends() -> Moments:
            if named is not None:
                return (micros(named), micros(named))
            shown = clock.shown()
            return (
                begun,
                (begun if shown is None else micros(shown[1])) + round(2e6 * self.world.widest) + 1,
            )

        def unknown() -> Effects:
            return [Effect(Act.RETIRE, name, ends=ends())]

        self.history.retiring.add(name)

        def told(was_open: bool) -> Effects:
            return [Effect(Act.RETIRE, name, ends=ends()) if was_open else Effect(Act.CLOSED, name)]

        await self.attempt(
            "invalidate", lambda: self.engine.entries.invalidate(o.tenant, entry_id, named), unknown, told
        )

    async def delete(self, o: Operation) -> None:
        name, entry_id = self.about(o)
        self.history.leaving.add(name)

        def shown(was_there: bool) -> Effects:
            if not was_there and self.history.forgets and self.history.registers[name].may_expire:
                return [Effect(Act.REFUSED, name)]
            if was_there and self.history.registers[name].damaged:
                return [
                    Effect(Act.WIPE, name)
                ]  # who cannot read it cannot tell whether somebody else deleted it meanwhile
            return [Effect(Act.DELETE if was_there else Act.ABSENT, name)]

        await self.attempt(
            "delete",
            lambda: self.engine.erasure.delete(ENTRIES, Key(o.tenant, entry_id)),
            [Effect(Act.WIPE, name)],
            shown,
        )

    async def delete_scope(self, o: Operation) -> None:
        """What was there before is gone after, and what was made of it does not come
        any more; what came meanwhile may be gone.
        """
        before, start = set(self.history.registers), self.history.moment()
        stood = of_scope(self.world, o.tenant, o.scope.text)
        self.history.leaving.add(f"{o.tenant}/{o.scope.text}")
        fenced = (
            not self.world.scenario.unfenced
        )  # else what was sent before may yet come to stand for a while

        def wiped(erased: int) -> Effects:
            there = [
                r.name
                for r in self.history.registers.values()
                if (r.tenant, r.scope) == (o.tenant, o.scope.text)
            ]
            made = {
                d.register
                for d in self.history.derived
                if fenced and ">" not in d.register and before & {d.register, *d.sources}
            }
            return [
                Effect(Act.FORBID, name) if name in made else Effect(Act.WIPE, name, maybe=name not in before)
                for name in there
            ] + [
                Effect(Act.WIPE, name, maybe=True)
                for name in self.history.copied_from(o.tenant, o.scope.text)
            ]

        def unknown() -> Effects:
            self.history.note_hanging_wipe(
                o.tenant, o.scope.text, start, f"delete scope {self.process.name}#{o.number}"
            )
            return []

        done = await self.attempt(
            "delete scope", lambda: self.engine.erasure.erase_scope(o.tenant, o.scope), unknown, wiped
        )
        if done is not None and not fenced:
            self.history.note_watched(o.tenant, o.scope.text, start, done[1].end, done[1].by)
        if done is not None and fenced and (left := stood & of_scope(self.world, o.tenant, o.scope.text)):
            self.history.broken(
                "leftover",
                "-",
                f"{done[1].by} has erased {o.scope.text}, and there stands as before: {sorted(left)}",
            )
        if done is not None:
            self.history.erased.append(
                Erased(o.tenant, o.scope.text, done[0], done[1].start, done[1].end, done[1].by)
            )

    async def promote(self, o: Operation) -> None:
        """To a broader scope; the copy is a register of its own, named after where it
        came from.
        """
        source, entry_id = self.about(o)
        targets = PROMOTED.get(self.history.registers[source].scope, ())
        if not targets:
            return await self.browse(o)
        target = targets[o.pick % len(targets)]
        away = o.kind is Kind.PROMOTE_AWAY
        hidden_from = self.history.registers[source].hidden_from
        name = self.history.register(f"{source}>{target.text}", o.tenant, target.text, hidden_from).name
        effects = [Effect(Act.PROMOTE, name), *([Effect(Act.DROP, source)] if away else [])]
        if away:
            self._derives(name, [source], f"promote {self.process.name}#{o.number}")
        overrides = {"metadata": {"promoted": target.text}} if o.pick % 2 else None

        # a copy that was made before is the answer while its original is there, also
        # where it is hidden; but nothing goes for a hidden one
        visible = away or self.history.certainly_hidden(
            source, micros(self.process.clock()) - round(2e6 * CLOCK_ERROR)
        )

        def shown(entry: Entry) -> Effects:
            self.told(name, entry)
            self.seen(entry)
            first_copy = Effect(Act.READ, name, value_of(entry), hidden_too=not visible)
            return [
                effects[0],
                first_copy,
                *([Effect(Act.DROP, source, maybe=True, promised=True)] if away else []),
            ]

        await self.attempt(
            "promote",
            lambda: self.engine.derivation.promote(
                o.tenant, entry_id, target, overrides=overrides, delete_original=away
            ),
            effects,
            shown,
            about=(source, entry_id),
        )
        return None

    def _derives(self, register: str, sources: list[str], by: str, *, away: bool = True) -> None:
        """This call makes an entry of others, and may delete them."""
        self.history.leaving |= set(sources if away else ())
        self.history.derived.append(Derived(register, tuple(sources), by, self.history.moment(), away))

    async def compact(self, o: Operation) -> None:
        """Entries of one scope into one; the sources, as they were read, may be deleted
        after it.
        """
        _, first = self.about(o)
        others = [
            i
            for n, i in self.world.ids.items()
            if self.history.registers[n].tenant == o.tenant and self.same_scope(n, first)
        ]
        chosen = list(dict.fromkeys([first, *others[o.pick % (len(others) or 1) :][:2]]))
        away = o.kind is Kind.COMPACT_AWAY
        scope = self.history.registers[self.history.names[first]].scope
        register, value = f"c{o.number}", f"mc{o.number}"
        text = Text(register, value)
        read: list[Effect] = []

        async def combined(entries: list[Entry]) -> str:
            hidden_from = max(inf if e.expires_at is None else micros(e.expires_at) + 1 for e in entries)
            self.history.register(register, o.tenant, scope, hidden_from)
            self.history.marker(register, value)
            self._derives(
                register,
                [self.history.names[e.id] for e in entries],
                f"compact {self.process.name}#{o.number}",
                away=away,
            )
            read[:] = [
                Effect(Act.DROP, self.history.names[e.id], value_of(e), promised=True) for e in entries
            ]
            await asyncio.sleep(0.012 * (o.pick % 4))
            return text.content

        def effects() -> Effects:
            return [Effect(Act.CREATE, register, value), *(read if away else [])] if read else []

        done = await self.attempt(
            "compact",
            lambda: self.engine.derivation.compact(
                o.tenant, chosen, combined, tags=[value], metadata={"marker": value}, delete_sources=away
            ),
            effects,
        )
        if done is not None:
            self.told(register, done[0])

    async def damage(self, o: Operation) -> None:
        """A disk damages one copy of the entry, and nobody is told."""
        name, entry_id = self.about(o)
        key = Key(o.tenant, entry_id)
        copies = [
            (store.state, copy)
            for store in self.world.stores
            if isinstance(copy := store.state.fetch_stored(ENTRIES.name, key), Record)
        ]
        if copies:
            state, copy = copies[0 if o.pick % 4 else o.pick % len(copies)]  # the home, mostly
            state.damage(ENTRIES.name, key)
            self.history.registers[name].unknown |= {
                version["version"] for c in copies for version in pending_versions(c[1])
            }
            self.history.registers[name].damaged |= copy.role is not Role.CACHED

    # -- moving ------------------------------------------------------------------------

    async def move(self, o: Operation) -> None:
        name, entry_id = self.about(o)
        to = ("mid", "long")[o.pick % 2] if o.scope.kind == "session" else "long"
        start = self.history.moment()
        self.history.moving.append((start, inf))
        self.history.sent_on.add(name)
        done = await self.attempt(
            "move", lambda: self.engine.tier_mover.move(ENTRIES, Key(o.tenant, entry_id), to)
        )
        if done is not None:
            self._moved(start, done[1].end)
            if done[0] is MoveResult.MOVED:
                self.lives(name, to, done[1])
            elif (
                done[0] is not MoveResult.ALREADY
                and done[1].alone
                and not self.history.refuses
                and not self._may_be_kept_back(name, entry_id)
            ):
                self.history.broken(
                    "refused", name, f"{done[1].by} had nobody to wait for, and was told: {done[0]}"
                )

    def _may_be_kept_back(self, name: str, entry_id: str) -> bool:
        """Whether it may be gone, unreadable, in front of a tombstone that is newer, or
        of a scope that is half erased.
        """
        register = self.history.registers[name]
        return (
            register.damaged
            or self._scope_is_being_erased(register.tenant, register.scope)
            or (
                (self.history.may_have_gone(name) or register.may_expire)
                and not self._way_is_free(Key(register.tenant, entry_id))
            )
        )

    def _scope_is_being_erased(self, tenant: str, scope: str) -> bool:
        """Whether an erasure was broken off after some stores had raised its
        generation: what is born elsewhere meanwhile waits for its end.
        """
        everything = [
            stands for store in self.world.stores for stands in store.state.everything(OPERATIONS.name)
        ]
        under_way = [stands.body for stands in everything if isinstance(stands, Record) and stands.owed]
        return any((body.get("tenant"), body.get("scope")) == (tenant, scope) for body in under_way)

    def _way_is_free(self, key: Key) -> bool:
        """Whether it has a home that owes nothing, and beside that there are copies of
        it and older tombstones alone.
        """
        standing = [
            stands
            for store in self.world.stores
            if (stands := store.state.fetch_stored(ENTRIES.name, key)) is not None
        ]
        homes = [
            stands
            for stands in standing
            if isinstance(stands, Record) and stands.role is Role.HOME and not stands.owed
        ]
        beside = [stands for stands in standing if stands not in homes]
        return len(homes) == 1 and all(
            (
                stands.version < homes[0].version
                if isinstance(stands, Tombstone)
                else isinstance(stands, Record) and stands.role is not Role.HOME
            )
            for stands in beside
        )

    async def end_session(self, o: Operation) -> None:
        start = self.history.moment()
        self.history.moving.append((start, inf))
        self.history.sent_on.add(f"{o.tenant}/{o.scope.text}")
        done = await self.attempt("end session", lambda: self.engine.promotion.end_session(o.tenant, o.scope))
        if done is None:
            return
        self._moved(start, done[1].end)
        for moved in done[0].moved:
            if (name := self.history.names.get(moved.entry_id)) is not None:
                self.lives(name, moved.to_tier, done[1])
        for kept in done[0].kept if done[1].alone and not self.history.refuses else ():
            if (
                kept.tier in ("short", "mid")
                and (name := self.history.names.get(kept.entry_id))
                and not self._may_be_kept_back(name, kept.entry_id)
            ):
                self.history.broken("refused", name, f"{done[1].by} had nobody to wait for, and says: {kept}")

    async def sweep(self, o: Operation) -> None:
        start = self.history.moment()
        self.history.moving.append((start, inf))
        done = await self.attempt("sweep", self.engine.maintenance.sweep)
        if done is not None:
            self._moved(start, done[1].end)

    def _moved(self, start: float, end: float) -> None:
        """What might move from `start` on has moved by `end`."""
        self.history.moving[self.history.moving.index((start, inf))] = (start, end)


_ABOUT_NONE = frozenset(
    {
        Kind.WRITE,
        Kind.KEYED,
        Kind.BATCH,
        Kind.DELETE_SCOPE,
        Kind.RETRIEVE,
        Kind.SEARCH,
        Kind.SWEEP,
        Kind.EXPORT,
        Kind.END_SESSION,
    }
)

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
    Kind.PAST: EngineClient.past,
    Kind.END_SESSION: EngineClient.end_session,
    Kind.RELATE: relating.relate,
    Kind.UNRELATE: relating.unrelate,
    Kind.RELATED: relating.related,
    Kind.EXPORT: EngineClient.export,
    Kind.DAMAGE: EngineClient.damage,
}
