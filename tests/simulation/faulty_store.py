"""A store as one simulated process sees it: every call goes through the faults of the
plan. See `tests.simulation.faults` for the model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context
from datetime import datetime
from random import Random
from typing import TypeVar

from memory.domain.errors import StoreTimeout, StoreUnavailable
from memory.orchestrator.storage.steps import current_step
from memory.ports.candidates import CandidateColumns, Candidates
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.due import DuePage
from memory.ports.query import Count, Everywhere, Hit, Page, PartitionPage, Query, Search, Tenant
from memory.ports.record import Key, Partition, Record, Stored
from memory.ports.store import Audit, Health
from memory.ports.writes import Outcome, Write
from tests.simulation.faults import (
    CLOCK_ERROR,
    FREEZE,
    LATEST,
    RESTARTS,
    WRITES_ONLY,
    Fault,
    Process,
    Server,
    WorkerCrashed,
)
from tests.simulation.loop import seeded
from tests.simulation.summary import summary
from tests.simulation.unfenced import unlooked_for

T = TypeVar("T")


class FaultyStore:
    """A `Store` as one process sees it. `servers` are all there are: any volatile one
    of them may restart during any call.
    """

    def __init__(self, server: Server, process: Process, servers: Sequence[Server]) -> None:
        self._server = server
        self._process = process
        self._volatile = [s for s in servers if s.restart is not None]

    @property
    def name(self) -> str:
        return self._server.store.name

    @property
    def capabilities(self) -> Capabilities:
        return self._server.store.capabilities

    @property
    def epoch(self) -> str:
        return self._server.store.epoch

    async def open(self, collections: Sequence[Collection]) -> None:
        await self._server.store.open(collections)

    async def close(self) -> None:
        """The process lets go of its connection; the server stays."""

    async def check(self) -> Health:
        if self._server.down_until > self._process.loop.time():
            return Health(False, "down")
        return await self.on_call("check", lambda: self._server.store.check())

    async def get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        return await self.on_call("get", lambda: self._server.store.get(collection, keys), shown=keys)

    async def query(self, query: Query) -> Page:
        return await self.on_call("query", lambda: self._server.store.query(query), shown=query)

    async def count(self, query: Query) -> Count:
        return await self.on_call("count", lambda: self._server.store.count(query))

    def counted_bytes(self, collection: Collection, record: Record) -> int:
        return self._server.store.counted_bytes(collection, record)

    async def search(self, search: Search) -> list[Hit]:
        return await self.on_call("search", lambda: self._server.store.search(search), shown=search)

    async def candidates(self, asked: Candidates) -> CandidateColumns:
        return await self.on_call("candidates", lambda: self._server.store.candidates(asked), shown=asked)

    async def delete_matching(
        self,
        query: Query,
        version: int,
        discard_at: datetime | None = None,
        carry: frozenset[str] = frozenset(),
    ) -> int:
        call = lambda: self._server.store.delete_matching(query, version, discard_at, carry)  # noqa: E731
        return await self.on_call("delete_matching", call, writes=True, shown=query)

    async def apply(self, writes: Sequence[Write], *, together: bool = False) -> list[Outcome]:
        def some(random: Random) -> Awaitable[list[Outcome]]:
            kept = (
                [w for w in writes[:-1] if random.random() < 0.6]
                if random.random() < 0.5
                else writes[: 1 + int(random.random() * (len(writes) - 1))]
            )
            return self._server.store.apply(kept)

        whole = together or self.capabilities.atomic
        partial = some if len(writes) > 1 and not whole else None
        store, late = self._server.store, None
        if not store.capabilities.fenced and self._process.plan.active:
            late = unlooked_for(store, writes, together)
        call = lambda: self._server.store.apply(writes, together=together)  # noqa: E731
        return await self.on_call("apply", call, writes=True, partial=partial, late=late, shown=writes)

    async def due(
        self,
        now: datetime,
        limit: int = 500,
        cursor: str | None = None,
        *,
        expired: Mapping[Collection, datetime] | None = None,
    ) -> DuePage:
        return await self.on_call("due", lambda: self._server.store.due(now, limit, cursor, expired=expired))

    async def audit(self, *, repair: bool = False) -> Audit:
        return await self.on_call("audit", lambda: self._server.store.audit(repair=repair))

    async def vacuum(self) -> int:
        return await self.on_call("vacuum", lambda: self._server.store.vacuum())

    async def partitions(
        self, where: Tenant | Everywhere, *, prefix: str = "", limit: int = 1_000, cursor: str | None = None
    ) -> PartitionPage:
        return await self.on_call(
            "partitions",
            lambda: self._server.store.partitions(where, prefix=prefix, limit=limit, cursor=cursor),
        )

    async def idle_partitions(self, limit: int = 1_000) -> list[tuple[Partition, int]]:
        return await self.on_call("idle_partitions", lambda: self._server.store.idle_partitions(limit))

    async def forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        return await self.on_call(
            "forget_partitions", lambda: self._server.store.forget_partitions(idle), writes=True
        )

    # -- one call ----------------------------------------------------------------------

    async def on_call(
        self,
        method: str,
        act: Callable[[], Awaitable[T]],
        *,
        writes: bool = False,
        partial: Callable[[Random], Awaitable[T]] | None = None,
        late: Callable[[], Awaitable[object]] | None = None,
        shown: object = None,
    ) -> T:
        """`late` is what the call comes to that arrives when nobody looks after it any
        more.
        """
        late = late or act
        process = self._process
        if process.dead:
            raise WorkerCrashed(process.name)
        process.calls += 1
        step = current_step.get()
        if not process.plan.active and process.trace is None:
            return await act()
        where = (process.operation, process.calls)
        possible = _POSSIBLE[writes, partial is not None, bool(self._volatile)]
        fault = process.plan.draw(where, step, possible, self.name) if process.plan.active else None
        if process.trace is not None:
            process.trace(
                f"{step:<18} {self.name}.{method} {summary(shown)}{f'  *** {fault} ***' if fault else ''}"
            )
        random = None if fault is None else seeded(process.plan.seed, *where, 1)
        answers_late = random is not None and random.random() < 0.5
        applied = False
        try:
            if fault is not None and random is not None:
                await self._before(fault, random, late, partial, waits=not answers_late)
            await asyncio.sleep(0)
            if process.dead:
                raise asyncio.CancelledError
            self._reachable()
            answer = await act()
            applied = True
            if fault is not None and random is not None:
                await self._afterwards(fault, random, late, waits=answers_late)
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            random = seeded(process.plan.seed, *where, 2)
            if writes and not applied and random.random() < 0.5:
                self._later(late, _lateness(random))  # whoever asked is gone, the request is not
            if not process.dead:
                raise
        if process.dead:
            raise WorkerCrashed(process.name)
        if process.trace is not None:
            process.trace(f"{step:<18} {self.name}.{method} -> {summary(answer)}")
        return answer

    def _reachable(self) -> None:
        if self._server.down_until > self._process.loop.time():
            raise StoreUnavailable(self.name, "down")

    async def _before(
        self,
        fault: Fault,
        random: Random,
        act: Callable[[], Awaitable[object]],
        partial: Callable[[Random], Awaitable[object]] | None,
        *,
        waits: bool,
    ) -> None:
        process = self._process
        if fault is Fault.CRASH_BEFORE:
            process.die()
        elif fault is Fault.ERROR_BEFORE:
            raise StoreUnavailable(self.name, "refused")
        elif fault is Fault.TIMEOUT:
            await asyncio.sleep(_lateness(random))
            self._reachable()
            if random.random() < 0.7:
                self._later(act, _lateness(random))
            raise StoreTimeout(self.name, "no answer")
        elif fault is Fault.PARTIAL and partial is not None:
            await asyncio.sleep(0)
            self._reachable()
            await partial(random)
            raise StoreUnavailable(self.name, "cut off in the middle of a batch")
        elif fault is Fault.DOWN:
            self._server.down_until = process.loop.time() + _lateness(random)
        elif fault in RESTARTS:
            volatile = self._volatile[int(random.random() * len(self._volatile))]
            if volatile.restart is not None:
                volatile.restart(fault is Fault.ROLLED_BACK)
        elif fault is Fault.CLOCK:
            process.clock.jump((random.random() - 0.5) * 2 * CLOCK_ERROR)
        if waits or fault is Fault.REORDER:
            await self._wait(fault, random)

    async def _afterwards(
        self, fault: Fault, random: Random, act: Callable[[], Awaitable[object]], *, waits: bool
    ) -> None:
        if fault is Fault.CRASH_AFTER:
            self._process.die()
        elif fault is Fault.ERROR_AFTER:
            raise StoreUnavailable(self.name, "the connection was lost")
        elif fault is Fault.DUPLICATE:
            self._later(act, _lateness(random))
        if waits or fault is Fault.REORDER:
            await self._wait(fault, random)

    async def _wait(self, fault: Fault, random: Random) -> None:
        """The waits of the faults that are nothing but waits."""
        if fault is Fault.FROZEN:
            self._process.loop.freeze(self._process, FREEZE[0] + random.random() * (FREEZE[1] - FREEZE[0]))
            await asyncio.sleep(0)
        elif fault is Fault.REORDER:
            await asyncio.sleep(random.random() * 0.03)
        elif fault is Fault.DELAY or (fault is Fault.CANCELLED and self._process.cancel()):
            await asyncio.sleep(_lateness(random) if fault is Fault.DELAY else LATEST)

    def _later(self, act: Callable[[], Awaitable[object]], seconds: float) -> None:
        """The request is on the network by itself: whoever sent it may be dead or
        frozen by then, and nobody waits for the answer.
        """
        server, process, loop = self._server, self._process, self._process.loop

        async def arrive() -> None:
            if server.down_until <= loop.time():
                answer = await act()
                if process.trace is not None:
                    process.trace(
                        f"{'(network)':<18} {server.store.name}: a late or repeated request arrives ->"
                        f" {summary(answer)}"
                    )

        loop.call_later(seconds, lambda: loop.create_task(arrive()), context=Context())


def _lateness(random: Random) -> float:
    """How late something is, on one of the scales that matter: within a call, within an
    operation, within a run, and as late as ever.
    """
    return random.choice((0.002, 0.02, 0.5, LATEST)) * random.random()


def _possible(writes: bool, batch: bool, volatile: bool) -> tuple[Fault, ...]:
    return tuple(
        f
        for f in Fault
        if (writes or f not in WRITES_ONLY)
        and (batch or f is not Fault.PARTIAL)
        and (volatile or f not in RESTARTS)
    )


_POSSIBLE = {
    (w, b, v): _possible(w, b, v) for w in (False, True) for b in (False, True) for v in (False, True)
}
