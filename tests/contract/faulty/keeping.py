"""More lying stores: about what is kept over a close or a restart, what is forgotten
and when, numbers, generations and upkeep.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

from memory.adapters.in_memory import InMemoryStore
from memory.domain.errors import StoreUnavailable
from memory.ports.collections import Collection
from memory.ports.query import Count, Everywhere, Hit, Near, Page, Query, Search
from memory.ports.record import Key, Mark, Partition, Record, Role, Standing, Stored, Tombstone
from memory.ports.store import Audit
from memory.ports.writes import Delete, Outcome, Put, RaiseGeneration, Release, Write
from tests.contract.faulty.registry import faulty_adapter
from tests.contract.harnesses import InMemoryServer

T = TypeVar("T")
REOPENED = "test_everything_stands_after_a_good_close_as_it_stood_before"
RESTARTED = "test_everything_stands_after_the_death_of_a_durable_store_as_it_stood_before"


class _Loses(InMemoryStore):
    """Keeps something less when it is closed."""

    def kept(self, standing: Standing) -> Standing | None:
        raise NotImplementedError

    def lose(self) -> None:
        for name in list(self.state.slots):
            for standing in list(self.state.everything(name)):
                if (kept := self.kept(standing)) is not standing:
                    self.state.place(name, standing.key, kept)

    async def _close(self) -> None:
        self.lose()


def _lose_and_restart(store: _Loses, keep: bool) -> None:
    store.lose()
    InMemoryStore.restart(store, keep)


def _losing(
    caught_by: str, name: str, kept: Callable[[Standing], Standing | None], *, dying: bool = False
) -> None:
    """A faulty adapter that keeps of each thing only this, when it is closed or when it dies."""
    body: dict[str, Any] = {"kept": staticmethod(kept), "__module__": __name__}
    if dying:
        body |= {"_close": InMemoryStore._close, "restart": _lose_and_restart}
    faulty_adapter(caught_by, InMemoryServer)(type(name, (_Loses,), body))


def _of(kind: type, **changes: Any) -> Callable[[Standing], Standing | None]:
    return lambda standing: replace(standing, **changes) if isinstance(standing, kind) else standing


_losing(REOPENED, "LosesTombstonesWhenClosed", lambda s: None if isinstance(s, Tombstone) else s)
_losing(REOPENED, "LosesMarksWhenClosed", lambda s: None if isinstance(s, Mark) else s)
_losing(REOPENED, "ForgetsAccessesWhenClosed", _of(Record, accesses=0, accessed_at=None))
_losing(REOPENED, "ForgetsWhatRecordsOweWhenClosed", _of(Record, owed=()))
_losing(REOPENED, "ForgetsWhatTombstonesOweWhenClosed", _of(Tombstone, owed=()))
_losing(REOPENED, "ForgetsWhatMarksOweWhenClosed", _of(Mark, owed=()))
_losing(REOPENED, "ForgetsTheEndOfTombstonesWhenClosed", _of(Tombstone, discard_at=None))
_losing(REOPENED, "ForgetsNotesWhenClosed", _of(Tombstone, note={}))
_losing(REOPENED, "MakesEveryCopyHomeWhenClosed", _of(Record, role=Role.HOME))
_losing(REOPENED, "ForgetsWhereMarksPointWhenClosed", _of(Mark, to="long"))
_losing(RESTARTED, "ForgetsThePreviousVersionWhenItDies", _of(Record, previous=None), dying=True)
_losing(RESTARTED, "ForgetsTheTierWhenItDies", _of(Record, tier=""), dying=True)
_losing(RESTARTED, "ForgetsWhenItWasCachedWhenItDies", _of(Record, cached_at=None), dying=True)
_losing(RESTARTED, "ForgetsTheRunOfCachedCopiesWhenItDies", _of(Record, epoch=None), dying=True)
_losing(RESTARTED, "ForgetsAccessTimesWhenItDies", _of(Record, accessed_at=None), dying=True)
_losing(RESTARTED, "StampsAnewWhenItDies", _of(Record, generation=0), dying=True)
_losing(RESTARTED, "LosesTheEndWhenItDies", _of(Record, expires_at=None), dying=True)


@faulty_adapter(
    "test_words_and_vectors_are_found_after_reopening_and_those_of_the_dead_are_not", InMemoryServer
)
class LosesItsVectorIndexWhenClosed(InMemoryStore):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._indexed = True

    async def _close(self) -> None:
        self._indexed = False

    async def _search(self, search: Search) -> list[Hit]:
        return await super()._search(search) if self._indexed or not isinstance(search.by, Near) else []


# -- time to live ----------------------------------------------------------------------


class _ForgetsTooMuch(InMemoryStore):
    early: ClassVar[timedelta] = timedelta(0)
    forgets_homes: ClassVar[bool] = False

    def spares(self, standing: Standing) -> bool:
        return bool(standing.owed)

    def _forget(self) -> None:
        now = self._clock() + self.early
        for name in list(self.state.slots):
            for s in list(self.state.everything(name)):
                if isinstance(s, Record) and s.role is not Role.CACHED and not self.forgets_homes:
                    continue
                until = s.expires_at if isinstance(s, Record) else s.discard_at
                if until is not None and until < now and not self.spares(s):
                    self.state.place(name, s.key, None)


OWING = "test_what_owes_a_step_is_not_forgotten_until_it_is_settled"
NEAR = "test_nothing_is_forgotten_before_its_time"


@faulty_adapter(OWING, InMemoryServer)
class ForgetsWhatOwes(_ForgetsTooMuch):
    def spares(self, standing: Standing) -> bool:
        return False


@faulty_adapter(OWING, InMemoryServer)
class ForgetsTombstonesThatOwe(_ForgetsTooMuch):
    def spares(self, standing: Standing) -> bool:
        return bool(standing.owed) and not isinstance(standing, Tombstone)


@faulty_adapter(OWING, InMemoryServer)
class ForgetsRecordsThatOwe(_ForgetsTooMuch):
    def spares(self, standing: Standing) -> bool:
        return bool(standing.owed) and not isinstance(standing, Record)


@faulty_adapter(OWING, InMemoryServer)
class ForgetsHomesToo(_ForgetsTooMuch):
    forgets_homes = True


@faulty_adapter(OWING, InMemoryServer)
class RemembersWhatOnceOwed(_ForgetsTooMuch):
    """Takes no expiry for what was written with a step, and does not set it when that
    is settled.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._owing: set[Key] = set()

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        self._owing |= {
            w.key
            for w in writes
            if (isinstance(w, Put) and w.record.owed) or (isinstance(w, Delete | Release) and w.owed)
        }
        return await super()._apply(writes, together)

    def spares(self, standing: Standing) -> bool:
        return standing.key in self._owing


@faulty_adapter(OWING, InMemoryServer)
class NeverForgetsMarks(_ForgetsTooMuch):
    def spares(self, standing: Standing) -> bool:
        return bool(standing.owed) or isinstance(standing, Mark)


@faulty_adapter(NEAR, InMemoryServer)
class ForgetsAnHourEarly(_ForgetsTooMuch):
    early = timedelta(hours=1)


@faulty_adapter(NEAR, InMemoryServer)
class ForgetsByTheDay(_ForgetsTooMuch):
    """Its engine keeps dates."""

    early = timedelta(minutes=20)

    def spares(self, standing: Standing) -> bool:
        return bool(standing.owed) or isinstance(standing, Record)


# -- numbers and generations -----------------------------------------------------------


class _OwnGenerations(InMemoryStore):
    """A client that knows the generations it has seen, and asks no more."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._seen: dict[Partition, int] = {}

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for write in writes:
            if isinstance(write, Put) and self.lies_about(write):
                partition = write.record.partition
                now = self.state.generation(partition)
                self.state.generations[partition] = self._seen.setdefault(partition, now)
                outcomes += await super()._apply([write], together)
                self.state.generations[partition] = now
            else:
                outcomes += await super()._apply([write], together)
            if isinstance(write, RaiseGeneration):
                self._seen[write.partition] = self.state.generation(write.partition)
        return outcomes

    def lies_about(self, write: Put) -> bool:
        raise NotImplementedError


RAISED = "test_a_generation_another_client_raised_a_moment_ago_binds_every_write"


@faulty_adapter(RAISED, InMemoryServer)
class PutsUnderGenerationsItHasSeen(_OwnGenerations):
    def lies_about(self, write: Put) -> bool:
        return write.record.generation is not None


@faulty_adapter(RAISED, InMemoryServer)
class StampsGenerationsItHasSeen(_OwnGenerations):
    def lies_about(self, write: Put) -> bool:
        return write.record.generation is None


@faulty_adapter("test_a_client_sees_all_that_another_did_a_moment_ago", InMemoryServer)
class CachesItsCounts(InMemoryStore):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._counted: dict[str, Count] = {}

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        self._counted.clear()
        return await super()._apply(writes, together)

    async def _count(self, query: Query) -> Count:
        return self._counted.setdefault(repr(query), await super()._count(query))


@faulty_adapter("test_a_client_sees_all_that_another_did_a_moment_ago", InMemoryServer)
class CachesWhatItGot(InMemoryStore):
    """Tombstones and marks it has seen stand for ever, it thinks."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._got: dict[tuple[str, Key], Stored] = {}

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        for write in writes:
            if not isinstance(write, RaiseGeneration):
                self._got.pop((write.collection.name, write.key), None)
        return await super()._apply(writes, together)

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        fresh = await super()._get(collection, keys)
        for key, stored in zip(keys, fresh, strict=True):
            if isinstance(stored, Mark | Tombstone):
                self._got.setdefault((collection.name, key), stored)
        return [
            self._got.get((collection.name, key), stored) for key, stored in zip(keys, fresh, strict=True)
        ]


# -- upkeep ----------------------------------------------------------------------------

AUDITED = "test_an_audit_of_a_healthy_store_finds_nothing_and_changes_nothing"
VACUUMED = "test_a_vacuum_changes_nothing_that_can_be_asked"
IDLE = "test_a_partition_is_idle_exactly_where_nothing_stands_in_it"
FORGOTTEN = "test_only_an_idle_partition_at_its_generation_is_forgotten"


@faulty_adapter(AUDITED)
class SeesGhosts(InMemoryStore):
    async def _audit(self, repair: bool) -> Audit:
        marks = [s for name in self.state.slots for s in self.state.everything(name) if isinstance(s, Mark)]
        return Audit(1, ("words of a dead record are in the index",) if marks else ())


@faulty_adapter(AUDITED)
class ChangesWhatItAudits(InMemoryStore):
    async def _audit(self, repair: bool) -> Audit:
        for name in list(self.state.slots):
            for s in list(self.state.everything(name)):
                if isinstance(s, Record) and s.accesses:
                    self.state.place(name, s.key, replace(s, accesses=0))
        return Audit()


@faulty_adapter(VACUUMED)
class SweepsTombstonesAway(InMemoryStore):
    async def _vacuum(self) -> int:
        for name in list(self.state.slots):
            for s in list(self.state.everything(name)):
                if isinstance(s, Tombstone):
                    self.state.place(name, s.key, None)
        return 100


@faulty_adapter(VACUUMED)
class GivesBackLessThanNothing(InMemoryStore):
    async def _vacuum(self) -> int:
        return -1


@faulty_adapter(IDLE)
class TakesMarksForNothing(InMemoryStore):
    async def _idle_partitions(self, limit: int) -> list[tuple[Partition, int]]:
        living = {r.partition for name in self.state.slots for r in self.state.live(name, Everywhere())}
        return [(p, g) for p, g in self.state.generations.items() if p not in living][:limit]


@faulty_adapter(IDLE)
class LooksForTheLivingInOneCollection(InMemoryStore):
    async def _idle_partitions(self, limit: int) -> list[tuple[Partition, int]]:
        living = {r.partition for r in self.state.live("samples", Everywhere())}
        return [(p, g) for p, g in self.state.generations.items() if p not in living][:limit]


@faulty_adapter(IDLE)
class ListsNoIdlePartition(InMemoryStore):
    async def _idle_partitions(self, limit: int) -> list[tuple[Partition, int]]:
        return []


@faulty_adapter(IDLE)
class ListsIdlePartitionsWithoutLimit(InMemoryStore):
    async def _idle_partitions(self, limit: int) -> list[tuple[Partition, int]]:
        return await super()._idle_partitions(10_000)


@faulty_adapter(FORGOTTEN)
class ForgetsPartitionsInUse(InMemoryStore):
    async def _forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        for partition, _ in idle:
            self.state.generations.pop(partition, None)
        return len(idle)


@faulty_adapter(FORGOTTEN)
class ForgetsWhateverTheGeneration(InMemoryStore):
    async def _forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        return await super()._forget_partitions([(p, self.state.generation(p)) for p, _ in idle])


@faulty_adapter(FORGOTTEN)
class SaysItForgot(InMemoryStore):
    async def _forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        return len(idle)


# -- callers ---------------------------------------------------------------------------

CANCELLED = "test_a_cancelled_call_ends_cancelled_and_the_store_works_on"
CLOSED = "test_a_store_closed_under_callers_lets_them_end_and_can_be_opened_again"


class _Slow(InMemoryStore):
    """Takes some turns of the loop over everything, as a driver does, and stands on
    nothing that would mend its manners.
    """

    async def _translate_errors(self, call: Awaitable[T]) -> T:
        return await call

    async def wait(self) -> None:
        for _ in range(6):
            await asyncio.sleep(0)

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        await self.wait()
        return await super()._apply(writes, together)

    async def _query(self, query: Query) -> Page:
        await self.wait()
        return await super()._query(query)

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        await self.wait()
        return await super()._get(collection, keys)


@faulty_adapter(CANCELLED)
class SwallowsCancellation(_Slow):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        with contextlib.suppress(asyncio.CancelledError):
            await self.wait()
        return await InMemoryStore._apply(self, writes, together)


@faulty_adapter(CANCELLED)
class SwallowsCancellationOfReads(_Slow):
    async def _query(self, query: Query) -> Page:
        try:
            await self.wait()
        except asyncio.CancelledError:
            return Page(())
        return await InMemoryStore._query(self, query)


@faulty_adapter(CANCELLED)
class TranslatesCancellation(_Slow):
    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        from memory.domain.errors import StoreTimeout

        try:
            await self.wait()
        except asyncio.CancelledError as exc:
            raise StoreTimeout(self.name, "the call was cut off") from exc
        return await InMemoryStore._get(self, collection, keys)


@faulty_adapter(CANCELLED)
class LosesItsOnlyConnection(_Slow):
    """A caller that gives up never gives its turn back."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._turn = asyncio.Semaphore(2)

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        await asyncio.wait_for(self._turn.acquire(), 2)
        outcomes = await super()._apply(writes, together)
        self._turn.release()
        return outcomes


class _UnderWay(_Slow):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._calls: set[asyncio.Task[Any]] = set()

    async def wait(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            await super().wait()
        finally:
            self._calls.discard(task)


@faulty_adapter(CLOSED)
class CancelsItsCallersWhenClosed(_UnderWay):
    async def close(self) -> None:
        for task in self._calls:
            task.cancel()
        await super().close()


@faulty_adapter(CLOSED)
class BreaksUnderItsCallersWhenClosed(_UnderWay):
    """As a pool does that is closed first, and asked who waits for it then."""

    closing = False
    told: Exception = RuntimeError("the pool is closed")

    async def close(self) -> None:
        self.closing = bool(self._calls)
        await super().close()

    async def wait(self) -> None:
        await super().wait()
        if self.closing:
            raise self.told


@faulty_adapter(CLOSED)
class EndsItsCallersWhenClosed(BreaksUnderItsCallersWhenClosed):
    """The same with an error of the port: nobody knows whether the call was carried
    out.
    """

    told = StoreUnavailable("memory", "the store is being closed")


@faulty_adapter(CLOSED)
class NeverFinishesClosingUnderCallers(_UnderWay):
    async def close(self) -> None:
        if self._calls:
            await asyncio.Event().wait()
        await super().close()


@faulty_adapter(CLOSED)
class DropsWhatWasUnderWayWhenClosed(_UnderWay):
    """Acknowledges what it no longer kept."""

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        await self.wait()
        if self._opened:
            return await InMemoryStore._apply(self, writes, together)
        return [Outcome(o.status, o.version, generation=o.generation) for o in await self._nowhere(writes)]

    async def _nowhere(self, writes: Sequence[Write]) -> list[Outcome]:
        elsewhere = InMemoryStore("elsewhere", capabilities=self.capabilities)
        return await InMemoryStore._apply(elsewhere, writes, False)
