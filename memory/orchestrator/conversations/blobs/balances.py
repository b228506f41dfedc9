"""The balance of a tenant: the total bytes of its artifacts and large texts.

See `reservations.py`. A process that cannot read the balance recounts it. So does
`doctor --repair` if the balance does not match. The recount has three steps:

- A record that says so replaces the balance. Until the recount is done there is no
  balance to change, and any process that finds the record recounts too.
- Every reservation is put at a later version, otherwise unchanged. A process that was
  about to return, hold or grow one then reads it again.
- All reservations are summed up, and the pending ones are named. The result replaces
  the record of the first step.

One case may be missed: a reservation that the old balance named and that is put only
now. It is pending, but no balance names it, which happens in no other case. A process
that finds such a reservation counts it before it does anything else with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeGuard

from memory.domain import ids
from memory.domain.time import micros
from memory.orchestrator.storage.collections import RESERVATIONS
from memory.orchestrator.storage.key_locks import KeyLocks, RetryDeadline
from memory.orchestrator.storage.placement import Placement, raise_if_rejected
from memory.ports.query import Query, within
from memory.ports.record import Corrupt, JsonValue, Key, Partition, PendingStep, Record, Stored
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Newer, Outcome, Put

log = logging.getLogger(__name__)

RESERVATIONS_SCOPE = "artifacts"
SETTLE = "artifact.settle"
"""The pending step of a balance that names uploads or must be recounted.

It corrects the total.
"""
COUNTING = "counting"
"""In the body of the record that replaces a balance during a recount.

That record has nothing else in its body.
"""


@dataclass(frozen=True, slots=True)
class BalanceEntry:
    """The bytes that a balance counts for a named upload, and since when.

    `leaves` is true while its reservation is about to be reduced or deleted.
    """

    counted: int
    since: int
    leaves: bool = False

    def as_leaving(self, now: datetime) -> BalanceEntry:
        """Return the entry for returning some or all of its bytes.

        It equals no earlier entry, so that a concurrent return is detected.
        """
        return replace(self, leaves=True, since=max(micros(now), self.since + 1))


@dataclass(frozen=True, slots=True)
class Balance:
    """The total of a tenant's uploads, and those that are arriving or leaving."""

    total: int
    under_way: dict[str, BalanceEntry]
    stands: Stored | None = None

    def with_entry(self, upload: str, entry: BalanceEntry, more: int = 0) -> Balance:
        return replace(self, total=self.total + more, under_way={**self.under_way, upload: entry})

    def without(self, upload: str, takes: int) -> Balance:
        """Return the balance without this entry, and with its final number of bytes."""
        entry = self.under_way.get(upload)
        if entry is None:
            return self
        return replace(
            self,
            total=self.total + takes - entry.counted,
            under_way={u: e for u, e in self.under_way.items() if u != upload},
        )

    def with_reservation(self, reservation: Record, now: datetime) -> Balance:
        """Return the balance with this reservation, which was read after the balance.

        A pending reservation that the balance does not name was not counted yet.
        """
        upload, takes = upload_of(reservation), bytes_of(reservation)
        if upload in self.under_way or not reservation.owed:
            return self
        return self.with_entry(upload, BalanceEntry(takes, micros(now)), takes)

    def with_leaving(self, reservation: Record, now: datetime) -> Balance:
        """Return the balance with bytes of this reservation about to be returned.

        The reservation was read after the balance.
        """
        seen, upload = self.with_reservation(reservation, now), upload_of(reservation)
        entry = seen.under_way.get(upload) or BalanceEntry(bytes_of(reservation), 0)
        return seen.with_entry(upload, entry.as_leaving(now))


class Balances:
    """Reads, changes and recounts balances."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._key_locks, self._counts = KeyLocks(), KeyLocks()

    @property
    def _store(self) -> Store:
        return self._placement.topology.archive

    async def of(self, tenant: str) -> Balance:
        """Return a tenant's balance; recount it if it cannot be read."""
        there = await self.fetch_stored(tenant)
        if is_readable(there):
            return _balance_of(there)
        log.warning(
            "the usage record of tenant '%s' cannot be read; artifacts and large texts are recounted",
            tenant,
        )
        return await self.recount(tenant)

    async def fetch_stored(self, tenant: str) -> Stored | None:
        """Return the stored record at the key of a tenant's balance."""
        return await self._placement.read_one(
            "artifacts.reserved", self._store, RESERVATIONS, balance_key(tenant)
        )

    async def change(self, tenant: str, change: Callable[[Balance], Balance]) -> None:
        """Change the balance; repeat if another process changed it meanwhile."""
        key, patience = (
            balance_key(tenant),
            RetryDeadline(self._placement, f"the usage record of tenant {tenant}"),
        )
        async with self._key_locks.take(RESERVATIONS, key, patience):
            while True:
                balance = await self.of(tenant)
                changed = change(balance)
                if changed is balance or await self.put(tenant, changed):
                    return
                await patience.wait()

    async def put(self, tenant: str, balance: Balance) -> bool:
        """Replace the balance that it was made from; false if another was first."""
        return await self._put(tenant, balance) is not None

    async def _put(self, tenant: str, balance: Balance) -> Record | None:
        entries: dict[str, JsonValue] = {
            upload: [entry.counted, entry.since, entry.leaves] for upload, entry in balance.under_way.items()
        }
        stands = getattr(balance.stands, "version", 0)
        record = self._record(
            tenant, {"total": balance.total, "under_way": entries}, stands, owes=bool(entries)
        )
        returns_room = any(entry.leaves for entry in balance.under_way.values())
        when = AtVersion(stands) if stands else Absent()
        return (await self._try_put(record, when, returns_room=returns_room))[0]

    def _record(self, tenant: str, body: dict[str, JsonValue], stands: int, *, owes: bool) -> Record:
        now = self._placement.now()
        return Record(
            key=balance_key(tenant),
            scope=RESERVATIONS_SCOPE,
            version=self._placement.next_version(stands),
            created_at=now,
            updated_at=now,
            body={**body, "nonce": self._placement.nonce()},
            tier="mid",
            owed=(PendingStep(SETTLE, SETTLE),) if owes else (),
        )

    async def _try_put(
        self, record: Record, when: Absent | AtVersion | Newer, *, returns_room: bool = False
    ) -> tuple[Record | None, Outcome]:
        """Put the record; return None in its place if another process was first.

        A repeated put of the driver that meets its own record counts as applied. A full
        store takes a balance that `returns_room`: it is a part of a deletion.
        """
        settles = frozenset() if record.owed else frozenset({SETTLE})
        put = Put(RESERVATIONS, record, when, settles, erases=returns_room)
        outcome = await self._placement.write_one("artifacts.balance", self._store, put)
        raise_if_rejected(self._store, outcome)
        met = isinstance(outcome.stored, Record) and outcome.stored.body.get("nonce") == record.body["nonce"]
        return record if outcome.applied or met else None, outcome

    # -- counting anew -----------------------------------------------------------------

    async def recount(self, tenant: str, instead_of: int | None = None) -> Balance:
        """Recount a balance that cannot be read, or that has this version.

        Version 0 stands for a missing balance. If another process has recounted it
        meanwhile, that balance is returned.
        """
        patience = RetryDeadline(self._placement, f"the usage record of tenant {tenant}")
        async with self._counts.take(RESERVATIONS, balance_key(tenant), patience):
            while True:
                there = await self.fetch_stored(tenant)
                if is_readable(there) and (instead_of is None or getattr(there, "version", 0) != instead_of):
                    return _balance_of(there)
                if (counting := await self._begin(tenant, there)) is not None:
                    counted = replace(await self._sum_reservations(tenant), stands=counting)
                    if (record := await self._put(tenant, counted)) is not None:
                        return replace(counted, stands=record)
                await patience.wait()

    async def _begin(self, tenant: str, there: Stored | None) -> Record | None:
        """Replace the balance by a record that says it is being recounted.

        None if another process was first.
        """
        if _is_counting(there):
            return there
        if not isinstance(there, Corrupt):
            version = getattr(there, "version", 0)
            return (
                await self._try_put(
                    self._record(tenant, {COUNTING: True}, version, owes=True),
                    AtVersion(version) if version else Absent(),
                )
            )[0]
        record, outcome = await self._try_put(self._record(tenant, {COUNTING: True}, 0, owes=True), Newer())
        if record is None and isinstance(
            outcome.stored, Corrupt
        ):  # it still tells its version, which the put must exceed
            record, _ = await self._try_put(
                self._record(tenant, {COUNTING: True}, outcome.version or 0, owes=True), Newer()
            )
        return record

    async def _sum_reservations(self, tenant: str) -> Balance:
        """Put every reservation at a later version, and sum them up."""
        found = dict[str, Record]()
        query = Query(
            RESERVATIONS, within(Partition(tenant, RESERVATIONS_SCOPE)), limit=self._placement.settings.page
        )
        async for page in self._placement.pages("artifacts.recount", self._store, query):
            rows = [
                row
                for row in page.records
                if isinstance(row, Record) and row.fields.get("upload") is not None
            ]
            found |= {upload_of(row): row for row in await self._put_later(rows)}
        since = micros(self._placement.now())
        under_way = {upload: BalanceEntry(bytes_of(row), since) for upload, row in found.items() if row.owed}
        return Balance(sum(map(bytes_of, found.values())), under_way)

    async def _put_later(self, reservations: Sequence[Record]) -> list[Record]:
        """Put reservations at a later version, and return those that still exist.

        Concurrent changes of a reservation are kept.
        """
        done, left = list[Record](), list(reservations)
        while left:
            puts = [
                Put(
                    RESERVATIONS,
                    replace(row, version=self._placement.next_version(row.version)),
                    AtVersion(row.version),
                )
                for row in left
            ]
            outcomes = await self._placement.write("artifacts.recount", self._store, *puts)
            left = []
            for put, outcome in zip(puts, outcomes, strict=True):
                raise_if_rejected(self._store, outcome)
                if outcome.applied:
                    done.append(put.record)
                elif isinstance(outcome.stored, Record):
                    left.append(outcome.stored)
        return done

    # -- comparing ---------------------------------------------------------------------

    async def compare(self, tenant: str) -> Difference | None:
        """Return how the balance differs from its reservations.

        None if it does not differ, or if it changes during every attempt.
        """
        for _ in range(self._placement.settings.attempts):
            there = await self.fetch_stored(tenant)
            version, balance = (
                getattr(there, "version", 0),
                _balance_of(there) if is_readable(there) else None,
            )
            taken = await self._sum(tenant, balance.under_way if balance else {})
            if getattr(await self.fetch_stored(tenant), "version", 0) == version:
                return (
                    None
                    if balance and taken == balance.total
                    else Difference(tenant, version, None if balance is None else balance.total, taken)
                )
        return None

    async def _sum(self, tenant: str, under_way: Mapping[str, BalanceEntry]) -> int:
        """Return the bytes of the named entries and of all other reservations.

        Other reservations do not change as long as the balance stays the same.
        """
        taken = sum(entry.counted for entry in under_way.values())
        query = Query(
            RESERVATIONS, within(Partition(tenant, RESERVATIONS_SCOPE)), limit=self._placement.settings.page
        )
        async for page in self._placement.pages("artifacts.compare", self._store, query):
            rows = [
                row
                for row in page.records
                if isinstance(row, Record) and row.fields.get("upload") is not None
            ]
            taken += sum(bytes_of(row) for row in rows if upload_of(row) not in under_way)
        return taken


@dataclass(frozen=True, slots=True)
class Difference:
    """A balance that differs from the sum of its reservations.

    `version` is that of the balance. `total` is None if the balance cannot be read.
    """

    tenant: str
    version: int
    total: int | None
    taken: int

    def __str__(self) -> str:
        says = "cannot be read" if self.total is None else f"says {self.total:,} bytes"
        return (
            f"the usage record of tenant '{self.tenant}' {says}, and its artifacts and large texts take"
            f" {self.taken:,}"
        )


def is_readable(there: Stored | None) -> bool:
    """Return whether this is a balance, or no balance exists yet."""
    return not isinstance(there, Corrupt) and not _is_counting(there)


def _is_counting(there: Stored | None) -> TypeGuard[Record]:
    return isinstance(there, Record) and COUNTING in there.body


def _balance_of(there: Stored | None) -> Balance:
    if not isinstance(there, Record):
        return Balance(0, {}, there)
    said: Any = there.body
    return Balance(
        int(said["total"]),
        {upload: BalanceEntry(*entry) for upload, entry in said["under_way"].items()},
        there,
    )


def uploads_named(there: Stored | None) -> Set[str]:
    """Return the uploads that a balance names."""
    return _balance_of(there).under_way.keys()


def balance_key(tenant: str) -> Key:
    return Key(tenant, ids.derived_id(tenant, RESERVATIONS_SCOPE, "balance"))


def upload_of(reservation: Record) -> str:
    return str(reservation.fields["upload"])


def bytes_of(reservation: Record) -> int:
    return int(str(reservation.fields["bytes"]))
