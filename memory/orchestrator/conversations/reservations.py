"""How much room the artifacts of a tenant take: reserved before an upload's first chunk, returned when its bytes are gone.

Each upload has a record, a reservation, for as long as its bytes may be there. It is under way while it owes the look whether a manifest names it,
and is renewed or grown meanwhile; then it is held. The balance of a tenant says what all of them come to. Both cannot be written at once, so the
balance names the uploads that are on their way in or out, each with what it counts for it: `total` is the sum of those, and of the bytes of every
other reservation.

An upload is counted, and named, before its reservation is put; nobody comes in that has no room beside all that were before. It is named again before
its reservation goes. A name is taken away, and what is counted set right, once the reservation is held, gone, or was never put and never will be. The
balance changes on condition of its version, and the reservation is read behind it: so whoever dies or repeats a step, each is counted once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from memory.domain import ids
from memory.domain.errors import CorruptRecord, MemoryTiersError, QuotaExceeded
from memory.domain.time import micros
from memory.orchestrator.collections import RESERVATIONS
from memory.orchestrator.conversations.life import Life
from memory.orchestrator.outbox import Outbox, Pending
from memory.orchestrator.placement import Placement, refused
from memory.orchestrator.steps import step
from memory.orchestrator.turns import Patience, Turns
from memory.policies.quotas import Quota
from memory.ports.query import And, Eq, Lt, Query, within
from memory.ports.record import Corrupt, FieldValue, Key, Owed, Partition, Record, Stored, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Delete, Newer, Put

log = logging.getLogger(__name__)

RESERVATIONS_SCOPE = "artifacts"
LOOK, SETTLE = "artifact.look", "artifact.settle"
"""What a reservation owes that is under way: the look whether a manifest names it; what a balance owes that names some: to set right its count."""


class Lapsed(MemoryTiersError):
    """The reservation was given up, or went with its session."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a balance counts for an upload that it names, since when; `leaves` while its reservation is to go."""

    counted: int
    since: int
    leaves: bool = False


@dataclass(frozen=True, slots=True)
class Balance:
    """What a tenant's uploads come to, and those of them that are on their way."""

    total: int
    under_way: dict[str, Entry]
    stands: Stored | None = None

    def with_entry(self, upload: str, entry: Entry, more: int = 0) -> Balance:
        return replace(self, total=self.total + more, under_way={**self.under_way, upload: entry})

    def without(self, upload: str, takes: int) -> Balance:
        """The upload is not on its way any more, and takes so many bytes."""
        entry = self.under_way.get(upload)
        if entry is None:
            return self
        return replace(self, total=self.total + takes - entry.counted, under_way={u: e for u, e in self.under_way.items() if u != upload})


class Reservations:
    """Reserves and returns."""

    def __init__(self, placement: Placement, *, outbox: Outbox, quotas: Sequence[Quota]) -> None:
        self._placement = placement
        self._turns = Turns()
        self._quotas = tuple(quotas)
        outbox.register(SETTLE, self._settle_noted)

    @property
    def _store(self) -> Store:
        return self._placement.topology.archive

    async def reserved(self, tenant: str) -> int:
        """How many bytes a tenant's artifacts and uploads take."""
        return (await self._balance(tenant)).total

    # -- an upload comes in -------------------------------------------------------------------------------------------

    async def reserve(self, life: Life, upload: str, manifest: Key, size: int) -> Record:
        """Room for an upload of so many bytes. Raises `QuotaExceeded` where there is none."""
        now = self._placement.now()

        def named(balance: Balance) -> Balance:
            if upload in balance.under_way:
                return balance  # by this very call, whose answer was lost
            self._refuse_beyond(life.tenant, balance.total, size)
            return balance.with_entry(upload, Entry(size, micros(now)), size)

        await self._change(life.tenant, named)
        fields: dict[str, FieldValue] = {
            "session_id": life.session_id,
            "session_generation": life.generation,
            "upload": upload,
            "manifest": manifest.id,
            "bytes": size,
        }
        version = self._placement.next_version()
        key = reservation_key(life.tenant, upload)
        return await self._put(Record(key, RESERVATIONS_SCOPE, version, now, now, fields=fields, tier="mid", owed=(Owed(LOOK, LOOK),)), Absent())

    async def grow(self, reservation: Record, more: int) -> Record:
        """Room for so many bytes more. Raises `QuotaExceeded`, and `Lapsed` where the reservation is gone."""
        tenant, upload, wanted = reservation.key.tenant, str(reservation.fields["upload"]), bytes_of(reservation) + more

        def grown(balance: Balance) -> Balance:
            entry = balance.under_way.get(upload)
            if entry is None:
                raise Lapsed("the room of this upload was given up")
            if entry.counted >= wanted:
                return balance
            self._refuse_beyond(tenant, balance.total, wanted - entry.counted)
            return balance.with_entry(upload, replace(entry, counted=wanted), wanted - entry.counted)

        await self._change(tenant, grown)
        return await self._again(reservation, wanted)

    async def renew(self, reservation: Record) -> Record:
        """It is under way still. Raises `Lapsed` where it is gone."""
        return await self._again(reservation, bytes_of(reservation))

    async def hold(self, reservation: Record, size: int, artifact_id: str) -> None:
        """A manifest names the upload, which has so many bytes. Raises `Lapsed` where the reservation is gone."""
        await self._again(reservation, size, held_for=artifact_id)
        upload = str(reservation.fields["upload"])

        def held(balance: Balance) -> Balance:
            entry = balance.under_way.get(upload)
            return balance if entry is None or entry.leaves else balance.without(upload, size)  # who returns it says what is left

        await self._change(reservation.key.tenant, held)

    def _refuse_beyond(self, tenant: str, held: int, asked: int) -> None:
        for quota in self._quotas:
            if (not quota.tenants or tenant in quota.tenants) and held + asked > quota.most:
                raise QuotaExceeded(quota.name, f"tenant '{tenant}'", quota.measure, quota.most, held, asked)

    async def _again(self, reservation: Record, size: int, held_for: str | None = None) -> Record:
        now = self._placement.now()
        owed = reservation.owed if held_for is None else ()
        fields = {**reservation.fields, "bytes": size, "artifact_id": held_for}
        version = self._placement.next_version(reservation.version)
        new = replace(reservation, version=version, updated_at=now, fields=fields, owed=owed)
        return await self._put(new, AtVersion(reservation.version))

    async def _put(self, reservation: Record, when: Absent | AtVersion) -> Record:
        put = Put(RESERVATIONS, reservation, when, settles=frozenset() if reservation.owed else frozenset({LOOK}))
        outcome = await self._placement.write_one("artifacts.reservation", self._store, put)
        if (error := refused(self._store, outcome)) is not None:
            raise error
        if not (outcome.applied or _is_as(outcome.stored, reservation)):
            raise Lapsed("the room of this upload was given up")
        return reservation

    # -- an upload goes -----------------------------------------------------------------------------------------------

    async def give_back(self, tenant: str, upload: str, at: int | None = None, owed: tuple[Owed, ...] = ()) -> Tombstone | None:
        """Return what an upload takes; None where it takes nothing any more, or, with `at`, where its reservation is of another version. The
        tombstone that is left of the reservation owes `owed`."""
        key, patience = reservation_key(tenant, upload), Patience(self._placement, upload)
        while True:
            balance = await self._balance(tenant)
            there = await self._at(key)
            if not isinstance(there, Record) or (at is not None and there.version != at):
                if isinstance(there, Tombstone) and upload in balance.under_way:
                    await self._change(tenant, lambda balance: balance.without(upload, 0))
                return None
            entry = balance.under_way.get(upload) or Entry(bytes_of(there), 0)
            leaving = replace(entry, leaves=True, since=micros(self._placement.now()))
            if await self._put_balance(tenant, balance.with_entry(upload, leaving)):
                until = None if owed else self._placement.tombstone_until()
                version = self._placement.next_version(there.version)
                gone = Delete(RESERVATIONS, key, version, AtVersion(there.version), owed=owed, discard_at=until, settles=frozenset({LOOK}))
                outcome = await self._placement.write_one("artifacts.return", self._store, gone)
                if (error := refused(self._store, outcome)) is not None:
                    raise error
                if outcome.applied:
                    await self._change(tenant, lambda balance: balance.without(upload, 0))
                    return Tombstone(key, version, owed)
            await patience.wait()

    async def find(self, tenant: str, upload: str) -> Record | None:
        """The reservation of an upload; None where there is none."""
        there = await self._at(reservation_key(tenant, upload))
        return there if isinstance(there, Record) else None

    async def of_session(self, partition: Partition, session_id: str, generation: int) -> list[Record]:
        """The reservations of the lives of a session before this generation."""
        asked = And((Eq("session_id", session_id), Lt("session_generation", generation)))
        query = Query(RESERVATIONS, within(Partition(partition.tenant, RESERVATIONS_SCOPE)), asked, limit=self._placement.settings.page)
        pages = self._placement.pages("artifacts.reserved", self._store, query)
        return [row async for page in pages for row in page.records if isinstance(row, Record)]

    # -- the balance ---------------------------------------------------------------------------------------------------

    async def _at(self, key: Key) -> Stored | None:
        with step("artifacts.reserved"):
            (there,) = await self._store.get(RESERVATIONS, [key])
        if isinstance(there, Corrupt):
            raise CorruptRecord(self._store.name, key.id, there.problem)
        return there

    async def _balance(self, tenant: str) -> Balance:
        there = await self._at(_balance_key(tenant))
        if not isinstance(there, Record):
            return Balance(0, {}, there)
        said: Any = there.body
        return Balance(int(said["total"]), {upload: Entry(*entry) for upload, entry in said["under_way"].items()}, there)

    async def _change(self, tenant: str, change: Callable[[Balance], Balance]) -> None:
        """Change the balance, on condition that nobody else did meanwhile."""
        key, patience = _balance_key(tenant), Patience(self._placement, f"the balance of tenant {tenant}")
        async with self._turns.take(RESERVATIONS, key, patience):
            while True:
                balance = await self._balance(tenant)
                changed = change(balance)
                if changed is balance or await self._put_balance(tenant, changed):
                    return
                await patience.wait()

    async def _put_balance(self, tenant: str, balance: Balance) -> bool:
        """False where another was first."""
        now, stands, nonce = self._placement.now(), getattr(balance.stands, "version", 0), self._placement.nonce()
        entries = {upload: [entry.counted, entry.since, entry.leaves] for upload, entry in balance.under_way.items()}
        record = Record(
            key=_balance_key(tenant),
            scope=RESERVATIONS_SCOPE,
            version=self._placement.next_version(stands),
            created_at=now,
            updated_at=now,
            body={"total": balance.total, "under_way": entries, "nonce": nonce},
            tier="mid",
            owed=(Owed(SETTLE, SETTLE),) if entries else (),
        )
        put = Put(RESERVATIONS, record, AtVersion(stands) if stands else Absent(), settles=frozenset() if entries else frozenset({SETTLE}))
        outcome = await self._placement.write_one("artifacts.balance", self._store, put)
        if (error := refused(self._store, outcome)) is not None:
            raise error
        return outcome.applied or (isinstance(outcome.stored, Record) and outcome.stored.body.get("nonce") == nonce)

    async def _settle_noted(self, pending: Pending, owed: Owed) -> bool:
        """Set right what the balance counts for uploads whose way has ended, or never began."""
        tenant, patience = pending.owner.key.tenant, Patience(self._placement, f"the balance of tenant {pending.owner.key.tenant}")
        while True:
            balance = settled = await self._balance(tenant)
            for upload, entry in balance.under_way.items():
                takes = await self._takes(reservation_key(tenant, upload), entry)
                if takes is not None:
                    settled = settled.without(upload, takes)
            if settled is balance or await self._put_balance(tenant, settled):
                return not settled.under_way
            await patience.wait()

    async def _takes(self, key: Key, entry: Entry) -> int | None:
        """What an upload takes whose way has ended; None where it may be on it still."""
        there = await self._at(key)
        lapsed = micros(self._placement.now()) - entry.since > self._placement.settings.mark_life / timedelta(microseconds=1)
        if isinstance(there, Tombstone):
            return 0
        if isinstance(there, Record):
            return bytes_of(there) if not there.owed and (lapsed or not entry.leaves) else None
        if lapsed:  # its writer died before it put it: it is not to come any more
            gone = Delete(RESERVATIONS, key, self._placement.next_version(), Newer(), discard_at=self._placement.tombstone_until())
            await self._placement.write_one("artifacts.return", self._store, gone)
        return None


def reservation_key(tenant: str, upload: str) -> Key:
    return Key(tenant, ids.derived_id(tenant, RESERVATIONS_SCOPE, "upload", upload))


def _balance_key(tenant: str) -> Key:
    return Key(tenant, ids.derived_id(tenant, RESERVATIONS_SCOPE, "balance"))


def _is_as(there: Stored | None, reservation: Record) -> bool:
    """Whether this reservation stands, put by a driver's second attempt; or a sweep has held the upload where it was to be held."""
    held_for = reservation.fields.get("artifact_id")
    if not isinstance(there, Record):
        return False
    return there.version == reservation.version or (held_for is not None and there.fields.get("artifact_id") == held_for)


def bytes_of(reservation: Record) -> int:
    return int(str(reservation.fields["bytes"]))
