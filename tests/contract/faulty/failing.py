"""More lying stores: about servers that fail, damage on the disk, callers that give up,
and names that are alike.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from memory.adapters.in_memory import InMemoryStore, State
from memory.domain.errors import CorruptRecord, StoreTimeout, StoreUnavailable
from memory.ports.collections import Collection
from memory.ports.query import Page, Query
from memory.ports.record import Corrupt, Key, Record, Stored
from memory.ports.store import Audit, Health, Store
from memory.ports.text import fold
from memory.ports.writes import Outcome, Put, RaiseGeneration, Write
from tests.contract.faulty.registry import FAULTY_ADAPTERS, Honest, PerWrite, faulty_adapter
from tests.contract.harnesses import InMemoryServer

__all__ = ["FAULTY_ADAPTERS", "HONEST"]

TIMEOUT = 0.05


class ServedState(State):
    """A state on a "server" that may be frozen or gone."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()
        self.answers.set()
        self.gone = False


class Reached(InMemoryStore):
    """Asks its "server" before everything, and says in time and in our words when that
    does not answer.
    """

    state: ServedState

    async def reach(self) -> None:
        if self.state.gone:
            raise StoreUnavailable(self.name, "the connection was refused; is the server running?")
        try:
            async with asyncio.timeout(TIMEOUT):  # `wait_for` swallows a cancellation that comes as it ends
                await self.state.answers.wait()
        except TimeoutError as exc:
            raise StoreTimeout(self.name, "no answer in time") from exc

    async def _open(self, collections: Sequence[Collection]) -> None:
        await self.reach()

    async def _check(self) -> Health:
        await self.reach()
        return await super()._check()

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        await self.reach()
        return await super()._get(collection, keys)

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        await self.reach()
        return await super()._apply(writes, together)

    async def _query(self, query: Query) -> Page:
        await self.reach()
        return await super()._query(query)

    async def _count(self, query: Query) -> Any:
        await self.reach()
        return await super()._count(query)

    async def _search(self, search: Any) -> Any:
        await self.reach()
        return await super()._search(search)

    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        await self.reach()
        return await super()._delete_matching(query, version, discard_at, carry)


class HonestServer(InMemoryServer):
    """Not faulty: a store on a "server" that fails, and does all that is asked of it."""

    name = "HonestServer"
    store_type = Reached
    remote = True
    patience = timedelta(seconds=3)
    secrets = ("hunter2",)

    async def make(self) -> InMemoryStore:
        return self.store_type("memory", capabilities=self.claims, state=ServedState())

    async def with_short_timeouts(self, store: Store) -> Store:
        return await self.client(store)

    async def freeze(self, store: Store) -> None:
        self._state(store).answers.clear()

    async def thaw(self, store: Store) -> None:
        self._state(store).answers.set()

    async def take_away(self, store: Store) -> None:
        self._state(store).gone = True

    async def bring_back(self, store: Store) -> None:
        self._state(store).gone = False

    @staticmethod
    def _state(store: Store) -> ServedState:
        assert isinstance(store, Reached)
        return store.state


HONEST = (Honest, HonestServer)

# -- servers that fail -----------------------------------------------------------------

EVERY_CALL = "test_every_call_to_a_server_that_does_not_answer_ends_in_time_and_the_store_works_on"


@faulty_adapter(f"{EVERY_CALL}[HangsOnAFrozenServer-frozen]", HonestServer)
class HangsOnAFrozenServer(Reached):
    async def _count(self, query: Query) -> Any:
        await self.state.answers.wait()
        return await super()._count(query)


@faulty_adapter(f"{EVERY_CALL}[LetsTheDriversErrorThrough-dead]", HonestServer)
class LetsTheDriversErrorThrough(Reached):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        if self.state.gone:
            raise ConnectionRefusedError(111, "Connection refused")
        return await super()._delete_matching(query, version, discard_at, carry)


@faulty_adapter(f"{EVERY_CALL}[ShowsItsPassword-dead]", HonestServer)
class ShowsItsPassword(Reached):
    async def reach(self) -> None:
        if self.state.gone:
            raise StoreUnavailable(self.name, "cannot connect to server://user:hunter2@host")
        await super().reach()


@faulty_adapter(f"{EVERY_CALL}[RaisesWhenAskedForItsHealth-dead]", HonestServer)
class RaisesWhenAskedForItsHealth(Reached):
    async def check(self) -> Health:
        await self.reach()
        return await super().check()


@faulty_adapter(f"{EVERY_CALL}[StaysBroken-dead]", HonestServer)
class StaysBroken(Reached):
    """Its pool never lets go of connections that died."""

    broken = False

    async def reach(self) -> None:
        self.broken = self.broken or self.state.gone
        if self.broken:
            raise StoreUnavailable(self.name, "the connection was lost")
        await super().reach()


@faulty_adapter(f"{EVERY_CALL}[AcknowledgesWhatItCannotSend-frozen]", HonestServer)
class AcknowledgesWhatItCannotSend(Reached):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        return await InMemoryStore._apply(self, writes, together)


@faulty_adapter("test_a_store_is_closed_in_time_whatever_its_server_does", HonestServer)
class SaysGoodbyeForEver(Reached):
    async def _close(self) -> None:
        await self.state.answers.wait()


@faulty_adapter("test_a_store_that_could_not_be_opened_in_time_can_be_opened_later", HonestServer)
class OpensOnlyOnce(Reached):
    tried = False

    async def _open(self, collections: Sequence[Collection]) -> None:
        if self.tried and not self.state.gone and self.state.answers.is_set():
            raise RuntimeError("already opening")
        self.tried = True
        await super()._open(collections)


class _LosesTheLastWrite(HonestServer):
    async def take_away(self, store: Store) -> None:
        state = self._state(store)
        last = list(state.everything("samples"))[-1]
        state.place("samples", last.key, None)
        await super().take_away(store)


@faulty_adapter(
    "test_what_was_acknowledged_while_the_server_failed_is_there_when_it_is_back", _LosesTheLastWrite
)
class AcknowledgesBeforeItIsOnTheDisk(Reached):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        outcomes = await super()._apply(writes, together)
        await asyncio.sleep(0)  # let others write too
        return outcomes


# -- damage ----------------------------------------------------------------------------


@faulty_adapter(
    "test_a_damaged_record_is_answered_as_corrupt_and_its_neighbours_as_they_were", InMemoryServer
)
class ServesWhatIsDamaged(InMemoryStore):
    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        return [self.state.fetch_stored(collection.name, key) for key in keys]


@faulty_adapter(
    "test_a_damaged_record_is_answered_as_corrupt_and_its_neighbours_as_they_were", InMemoryServer
)
class TakesDamageForNothing(InMemoryStore):
    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        return [None if isinstance(s, Corrupt) else s for s in await super()._get(collection, keys)]


@faulty_adapter("test_what_was_found_damaged_is_counted_until_it_is_deleted", InMemoryServer)
class CountsNoDamage(InMemoryStore):
    async def _check(self) -> Health:
        return replace(await super()._check(), quarantined=0)


@faulty_adapter("test_what_was_found_damaged_is_counted_until_it_is_deleted", InMemoryServer)
class CountsDamageForEver(InMemoryStore):
    most = 0

    async def _check(self) -> Health:
        self.most = max(self.most, self.state.damages)
        return replace(await super()._check(), quarantined=self.most)


@faulty_adapter("test_what_was_found_damaged_is_counted_until_its_scope_is_erased", InMemoryServer)
class CountsWhetherThereIsDamage(InMemoryStore):
    async def _check(self) -> Health:
        return replace(await super()._check(), quarantined=min(1, self.state.damages))


@faulty_adapter("test_an_audit_names_every_damaged_record_and_no_other", InMemoryServer)
class NamesNoDamage(InMemoryStore):
    async def audit(self, *, repair: bool = False) -> Audit:
        return replace(await super().audit(repair=repair), damaged=())


@faulty_adapter("test_an_audit_names_every_damaged_record_and_no_other", InMemoryServer)
class NamesDamageOfOneCollection(InMemoryStore):
    async def audit(self, *, repair: bool = False) -> Audit:
        audit = await super().audit(repair=repair)
        return replace(audit, damaged=tuple(one for one in audit.damaged if one.startswith("samples ")))


@faulty_adapter("test_queries_serve_the_neighbours_and_name_the_corrupt_key", InMemoryServer)
class FailsWholeQueriesOverDamage(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        for key in page.corrupt:
            raise CorruptRecord(self.name, key.id, "checksum mismatch")
        return page


@faulty_adapter("test_queries_serve_the_neighbours_and_name_the_corrupt_key", InMemoryServer)
class PassesDamageOverInSilence(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        return replace(await super()._query(query), corrupt=())


@faulty_adapter("test_no_condition_on_what_stands_there_holds_for_a_corrupt_record", InMemoryServer)
class TakesDamageForAbsence(InMemoryStore):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        for write in writes:
            if isinstance(write, Put) and self.state.is_damaged(write.collection.name, write.key):
                self.state.place(write.collection.name, write.key, None)
        return await super()._apply(writes, together)


@faulty_adapter("test_erasure_reaches_a_corrupt_record_of_the_asked_partitions_and_no_other", InMemoryServer)
class ErasesOnlyWhatItCanRead(InMemoryStore):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        damaged = {
            key: (self.state.fetch_stored(name, key), why)
            for (name, key), why in self.state.damaged.items()
            if name == query.collection.name
        }
        count = await super()._delete_matching(query, version, discard_at, carry)
        for key, (stood, why) in damaged.items():
            if not self.state.is_damaged(query.collection.name, key):
                self.state.place(query.collection.name, key, stood)
                self.state.damage(query.collection.name, key, why)
                count -= 1
        return count


# -- names -----------------------------------------------------------------------------


@faulty_adapter("test_names_that_are_alike_are_held_apart[CutsLongNames-scopes]")
class CutsLongNames(PerWrite):
    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Put):
            write = replace(write, record=replace(write.record, scope=write.record.scope[:255]))
        return super().lie(write)


@faulty_adapter("test_every_partition_has_a_generation_of_its_own[TrimsScopes-scopes]")
class TrimsScopes(PerWrite):
    def lie(self, write: Write) -> Outcome:
        if isinstance(write, RaiseGeneration):
            write = replace(write, partition=replace(write.partition, scope=write.partition.scope.strip()))
        return super().lie(write)


@faulty_adapter("test_a_name_is_held_as_it_is_or_its_write_is_rejected[EndsNamesAtNul-scopes]")
class EndsNamesAtNul(PerWrite):
    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Put):
            write = replace(
                write, record=replace(write.record, scope=write.record.scope.partition("\x00")[0])
            )
        return super().lie(write)


@faulty_adapter("test_pages_over_hostile_values_lose_and_repeat_nothing")
class SortsTextsAsPeopleDo(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        if [by.field for by in query.order] != ["type"]:
            return page
        texts = {r.key: str(r.fields.get("type")) for r in page.records if isinstance(r, Record)}
        return replace(
            page,
            records=tuple(
                sorted(
                    page.records, key=lambda r: fold(texts.get(r.key, "")), reverse=query.order[0].descending
                )
            ),
        )


@faulty_adapter("test_random_work_has_the_outcomes_and_answers_of_the_specification")
class KeepsVersionsAsDoubles(PerWrite):
    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Put):
            write = replace(write, record=replace(write.record, version=int(float(write.record.version))))
        return super().lie(write)


# -- callers that give up, and other clients -------------------------------------------


@faulty_adapter("test_changes_cut_off_leave_the_old_record_or_the_new_one_whole")
class WritesARecordInTwoSteps(InMemoryStore):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        for write in writes:
            stands = (
                self.state.fetch_stored(write.collection.name, write.key) if isinstance(write, Put) else None
            )
            if isinstance(write, Put) and isinstance(stands, Record):
                self.state.place(write.collection.name, write.key, replace(stands, body=write.record.body))
                for _ in range(10):
                    await asyncio.sleep(0)
        return await super()._apply(writes, together)


@faulty_adapter("test_new_records_cut_off_are_whole_or_absent_and_no_acknowledged_one_is_missing")
class TakesAnothersAnswer(InMemoryStore):
    """An answer that nobody waits for any more stays on the connection, and the next
    caller reads it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connection: deque[list[Outcome]] = deque()

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        self._connection.append(await super()._apply(writes, together))
        for _ in range(8):
            await asyncio.sleep(0)
        return self._connection.popleft()


@faulty_adapter("test_no_increment_through_two_clients_is_lost", InMemoryServer)
class DecidesByItsOwnCache(InMemoryStore):
    """One client knows what it read, and not what the other has written since."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._last_seen: dict[Key, Any] = {}

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        outcomes = []
        for write in writes:
            if isinstance(write, Put) and write.key in self._last_seen:
                self.state.place(write.collection.name, write.key, self._last_seen[write.key])
            outcomes += await super()._apply([write], together)
            if isinstance(write, Put):
                self._last_seen[write.key] = self.state.fetch_stored(write.collection.name, write.key)
        return outcomes
