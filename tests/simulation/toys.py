"""Engines too simple to be right, and one that is right enough: what the checker must
catch, and what it must let through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memory.domain.errors import NotFound
from memory.domain.ids import derived_id
from memory.domain.time import micros
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.kinds import KINDS
from memory.ports.query import MAX_LIMIT, Query, within
from memory.ports.record import Key, Partition, Record
from memory.ports.writes import Absent, Always, AtVersion, Delete, Outcome, Put
from tests.simulation.attempt import Attempts, Effect
from tests.simulation.faults import Process
from tests.simulation.faulty_store import FaultyStore
from tests.simulation.history import Act, Seen
from tests.simulation.scenes import Kind
from tests.simulation.workload import Operation
from tests.simulation.world import World


class ToyClient:
    """One store, the first tier's, and no tiering. `conditional` updates are checked
    against the version read; others overwrite.
    """

    conditional = True
    dirty_reads = False

    def __init__(self, world: World, process: Process, stores: dict[str, FaultyStore]) -> None:
        self._world, self._process, self._store = world, process, stores["mid"]
        self._attempt = Attempts(world.history, process)
        self._seen: dict[str, Record] = {}

    async def open(self) -> bool:
        await self._store.open(KINDS.collections)
        return True

    async def perform(self, operation: Operation) -> None:
        o, history = operation, self._world.history
        key = Key(o.tenant, derived_id(o.tenant, o.scope.text, o.register))
        if o.kind in (Kind.WRITE, Kind.BATCH) and o.register not in history.registers:
            history.register(o.register, o.tenant, o.scope.text)
            value = history.marker(o.register, f"m{o.number}")
            await self._attempt(
                "write",
                lambda: self._write(key, o, value),
                [Effect(Act.CREATE, o.register, value, keyed=True)],
            )
        elif o.register not in history.registers:
            return
        elif o.kind in (Kind.UPDATE, Kind.MOVE):
            value = history.marker(o.register, f"m{o.number}")
            await self._attempt(
                "update",
                lambda: self._update(key, value),
                [Effect(Act.UPDATE, o.register, value)],
                about=(o.register, key.id),
            )
        elif o.kind is Kind.DELETE:
            await self._attempt(
                "delete",
                lambda: self._delete(key),
                [Effect(Act.DELETE, o.register)],
                about=(o.register, key.id),
            )
        else:
            await self._list(o)

    async def settle(self) -> None:
        for register in list(self._world.history.registers.values()):
            found = await self._attempt("final", lambda r=register: self._all(r.tenant, r.scope))  # type: ignore[misc]
            if found is not None:
                records, ended = found
                seen = [_seen(r) for r in records]
                self._world.history.answered(
                    seen, register.tenant, frozenset({register.scope}), ended.start, ended.end, ended.by
                )

    async def _list(self, o: Operation) -> None:
        found = await self._attempt("retrieve", lambda: self._all(o.tenant, o.scope.text))
        if found is not None:
            records, ended = found
            self._world.history.answered(
                [_seen(r) for r in records],
                o.tenant,
                frozenset({o.scope.text}),
                ended.start,
                ended.end,
                ended.by,
            )

    async def _all(self, tenant: str, scope: str) -> list[Record]:
        page = await self._store.query(Query(ENTRIES, within(Partition(tenant, scope)), limit=MAX_LIMIT))
        records = [r for r in page.records if isinstance(r, Record)]
        if self.dirty_reads:  # once seen, shown for ever
            self._seen |= {r.key.id: r for r in records}
            records = [r for r in self._seen.values() if r.partition == Partition(tenant, scope)]
        return records

    async def _write(self, key: Key, o: Operation, value: str) -> None:
        now = self._process.clock()
        record = Record(
            key, o.scope.text, micros(now), now, now, body={"register": o.register, "value": value}
        )
        await self._applied(Put(ENTRIES, record, Absent()))

    async def _update(self, key: Key, value: str) -> None:
        for _ in range(20):
            stored = await self._live(key)
            new = replace(stored, version=stored.version + 1, body={**stored.body, "value": value})
            if await self._applied(
                Put(ENTRIES, new, AtVersion(stored.version) if self.conditional else Always())
            ):
                return

    async def _delete(self, key: Key) -> None:
        for _ in range(20):
            stored = await self._live(key)
            if await self._applied(Delete(ENTRIES, key, stored.version + 1, AtVersion(stored.version))):
                return

    async def _live(self, key: Key) -> Record:
        (stored,) = await self._store.get(ENTRIES, [key])
        if not isinstance(stored, Record):
            raise NotFound(key.id)
        return stored

    async def _applied(self, write: Put | Delete) -> bool:
        outcomes: Sequence[Outcome] = await self._store.apply([write])
        return outcomes[0].applied


class OverwritingClient(ToyClient):
    """Reads, changes and writes back, whatever came between."""

    conditional = False


class HoardingClient(ToyClient):
    """Shows what it has seen before, also after it was deleted."""

    dirty_reads = True


def _seen(record: Record) -> Seen:
    return Seen(record.body["register"], record.body["value"], record.key.id, record.key.tenant, record.scope)
