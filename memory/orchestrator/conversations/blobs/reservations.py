"""Room for a tenant's artifacts and large texts of messages.

It is reserved before an upload's first chunk, and returned when its bytes are deleted.

Each upload has a reservation record for as long as its bytes may exist. While the
upload is in progress, the reservation has a pending step that checks whether a manifest
names the upload. It may be renewed or grown then; afterwards it is held. It names the
upload's artifact before a manifest does. So the end of a session knows every artifact
that entries may point to.

The balance of a tenant has the total of all its reservations. Both cannot be written at
once. So the balance names the uploads that are arriving or leaving, each with the bytes
that it counts for it. `total` is the sum of these and of the bytes of every other
reservation.

- An upload is counted and named before its reservation is put. It is refused if it has
  no room beside all earlier ones.
- It is named again before its reservation is deleted.
- The name is removed and the count corrected once the reservation is held or gone, or
  was never put and never will be.

The balance changes on condition of its version, and the reservation is read after it.
So each upload is counted once, even if a process dies or repeats a step.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from memory.domain import ids
from memory.domain.errors import MemoryTiersError, QuotaExceeded
from memory.domain.time import micros
from memory.orchestrator.conversations.blobs.balances import (
    RESERVATIONS_SCOPE,
    SETTLE,
    Balance,
    BalanceEntry,
    Balances,
    balance_key,
    bytes_of,
    is_readable,
    upload_of,
    uploads_named,
)
from memory.orchestrator.conversations.log.incarnation import SessionIncarnation
from memory.orchestrator.storage.collections import RESERVATIONS
from memory.orchestrator.storage.key_locks import RetryDeadline
from memory.orchestrator.storage.outbox import Outbox, OutboxRecord
from memory.orchestrator.storage.placement import Placement, raise_if_corrupt, raise_if_rejected
from memory.orchestrator.storage.steps import step
from memory.policies.quotas import Quota
from memory.ports.query import And, Eq, Lt, Query, within
from memory.ports.record import (
    FieldValue,
    JsonValue,
    Key,
    Partition,
    PendingStep,
    Record,
    Stored,
    Tombstone,
)
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Delete, Newer, Put

log = logging.getLogger(__name__)

LOOK = "artifact.look"
"""The pending step of a reservation: check whether a manifest names its upload."""
LOOK_FOR_ROW = "part.look"
"""The same step for large texts: check whether the message's row names the upload.

See `uploads.py`.
"""
LOOKS = frozenset({LOOK, LOOK_FOR_ROW})
STOOD = "stood"
"""In the note of a reservation's tombstone: a manifest had named its upload."""


class ReservationLapsed(MemoryTiersError):
    """The reservation was cancelled, or deleted with its session."""


class _ReservationConflict(Exception):
    """The reservation has another version and is still pending, after a recount."""

    def __init__(self, stands: Record) -> None:
        super().__init__("the reservation has another version")
        self.stands = stands


class Reservations:
    """Reserves and returns room."""

    def __init__(
        self, placement: Placement, *, balances: Balances, outbox: Outbox, quotas: Sequence[Quota]
    ) -> None:
        self._placement = placement
        self._balances = balances
        self._quotas = tuple(quotas)
        self._outbox = outbox
        outbox.register(SETTLE, self._settle_noted)

    @property
    def _store(self) -> Store:
        return self._placement.topology.archive

    async def used_bytes(self, tenant: str) -> int:
        """Return how many bytes a tenant's artifacts and uploads take."""
        return (await self._balances.of(tenant)).total

    # -- an upload comes in ------------------------------------------------------------

    async def reserve(
        self, life: SessionIncarnation, upload: str, manifest: Key, size: int, artifact_id: str
    ) -> Record:
        """Reserve room for an upload of this many bytes, for this artifact.

        Raises `QuotaExceeded` if there is not enough room.
        """
        now = self._placement.now()

        def add_uploads(balance: Balance) -> Balance:
            if upload in balance.under_way:
                return balance  # counted by this call, whose answer was lost
            self._refuse_beyond(life.tenant, balance.total, size)
            return balance.with_entry(upload, BalanceEntry(size, micros(now)), size)

        await self._balances.change(life.tenant, add_uploads)
        fields: dict[str, FieldValue] = {
            "session_id": life.session_id,
            "session_generation": life.generation,
            "upload": upload,
            "manifest": manifest.id,
            "artifact_id": artifact_id,
            "bytes": size,
        }
        version = self._placement.next_version()
        key = reservation_key(life.tenant, upload)
        record = Record(
            key,
            RESERVATIONS_SCOPE,
            version,
            now,
            now,
            fields=fields,
            tier="mid",
            owed=(PendingStep(LOOK, LOOK),),
        )
        try:
            return await self._put(record, Absent())
        except _ReservationConflict as moved:  # the answer was lost, and the balance recounted since
            return moved.stands

    async def grow(self, reservation: Record, more: int) -> Record:
        """Reserve this many bytes more.

        Raises:
            QuotaExceeded: there is not enough room.
            ReservationLapsed: the reservation is gone.
        """
        tenant, upload, wanted = (
            reservation.key.tenant,
            str(reservation.fields["upload"]),
            bytes_of(reservation) + more,
        )

        def grow_upload(balance: Balance) -> Balance:
            entry = balance.under_way.get(upload)
            if entry is None:
                raise ReservationLapsed("the reservation of this upload was cancelled")
            if entry.counted >= wanted:
                return balance
            self._refuse_beyond(tenant, balance.total, wanted - entry.counted)
            return balance.with_entry(upload, replace(entry, counted=wanted), wanted - entry.counted)

        try:
            await self._balances.change(tenant, grow_upload)
        except ReservationLapsed:
            await self.see(tenant, [upload], refuses=True)
            await self._balances.change(tenant, grow_upload)
        try:
            return await self._once_more(reservation, reservation.owed, bytes=wanted)
        except _ReservationConflict as moved:  # the balance was recounted, perhaps before this call
            return await self.grow(moved.stands, wanted - bytes_of(moved.stands))

    async def renew(self, reservation: Record, artifact_id: str | None = None) -> Record:
        """Note that the upload is still in progress, for this artifact if one is given.

        Raises `ReservationLapsed` if the reservation is gone.
        """
        return await self._again(
            reservation, reservation.owed, artifact_id=artifact_id or reservation.fields.get("artifact_id")
        )

    async def hold(self, reservation: Record, size: int, artifact_id: str) -> None:
        """Hold the reservation of an upload of this size that a manifest names.

        Raises `ReservationLapsed` if it is gone.
        """
        await self._again(reservation, (), bytes=size, artifact_id=artifact_id)
        upload = str(reservation.fields["upload"])

        def remove_uploads(balance: Balance) -> Balance:
            entry = balance.under_way.get(upload)
            return (
                balance if entry is None or entry.leaves else balance.without(upload, size)
            )  # a process that returns it counts the rest

        await self._balances.change(reservation.key.tenant, remove_uploads)

    def _refuse_beyond(self, tenant: str, held: int, asked: int) -> None:
        for quota in self._quotas:
            if (not quota.tenants or tenant in quota.tenants) and held + asked > quota.most:
                raise QuotaExceeded(quota.name, f"tenant '{tenant}'", quota.measure, quota.most, held, asked)

    async def _again(self, reservation: Record, owed: tuple[PendingStep, ...], **said: FieldValue) -> Record:
        """Put the reservation with these fields.

        If a later version of it is still pending, the fields are put over that one.
        """
        while True:
            try:
                return await self._once_more(reservation, owed, **said)
            except _ReservationConflict as moved:
                reservation = moved.stands

    async def _once_more(
        self, reservation: Record, owed: tuple[PendingStep, ...], **said: FieldValue
    ) -> Record:
        now, version = self._placement.now(), self._placement.next_version(reservation.version)
        new = replace(
            reservation, version=version, updated_at=now, fields={**reservation.fields, **said}, owed=owed
        )
        return await self._put(new, AtVersion(reservation.version))

    async def _put(self, reservation: Record, when: Absent | AtVersion) -> Record:
        put = Put(RESERVATIONS, reservation, when, settles=frozenset() if reservation.owed else LOOKS)
        outcome = await self._placement.write_one("artifacts.reservation", self._store, put)
        raise_if_rejected(self._store, outcome)
        if outcome.applied or _is_as(outcome.stored, reservation):
            return reservation
        if isinstance(outcome.stored, Record) and outcome.stored.owed:
            raise _ReservationConflict(outcome.stored)
        raise ReservationLapsed("the reservation of this upload was cancelled")

    # -- an upload goes ----------------------------------------------------------------

    async def give_back(
        self,
        tenant: str,
        upload: str,
        at: int | None = None,
        owed: tuple[PendingStep, ...] = (),
        *,
        stood: bool = False,
    ) -> Tombstone | None:
        """Return all room of an upload.

        None if it has no room any more. With `at`, also None if its reservation has
        another version.

        Args:
            owed: The pending steps of the reservation's tombstone.
            stood: Whether a manifest had named the upload; the tombstone's note says
                so.
        """
        gone = await self.give_all_back(tenant, [upload], at, owed, stood=stood)
        return gone[0] if gone else None

    async def give_up(self, reservation: Record, *owed: PendingStep) -> None:
        """Return all room of an upload whose reservation still has this version.

        The pending steps `owed` are then carried out.
        """
        gone = await self.give_back(
            reservation.key.tenant, str(reservation.fields["upload"]), reservation.version, owed
        )
        if gone is not None:
            await self._outbox.finish(OutboxRecord(RESERVATIONS, self._store, gone))

    async def give_all_back(
        self,
        tenant: str,
        uploads: Sequence[str],
        at: int | None = None,
        owed: tuple[PendingStep, ...] = (),
        *,
        stood: bool = False,
    ) -> list[Tombstone]:
        """Return all room of these uploads together; see `give_back`.

        Returns the tombstones of the reservations that still existed.
        """
        patience, gone = (
            RetryDeadline(self._placement, f"the reservation of uploads of tenant {tenant}"),
            list[Tombstone](),
        )
        while True:
            leaving = balance = await self._balances.of(tenant)
            rows = dict(
                zip(
                    uploads,
                    await self._all_at([reservation_key(tenant, upload) for upload in uploads]),
                    strict=True,
                )
            )
            there = [row for row in rows.values() if isinstance(row, Record) and at in (None, row.version)]
            for row in there:
                leaving = leaving.with_leaving(row, self._placement.now())
            went = (
                await self._return(there, owed, stood=stood)
                if there and await self._balances.put(tenant, leaving)
                else []
            )
            gone += went
            if len(went) == len(there):
                before = [
                    upload
                    for upload, row in rows.items()
                    if isinstance(row, Tombstone) and upload in balance.under_way
                ]
                await self._remove_uploads(tenant, [*before, *map(upload_of, there)])
                return gone
            await patience.wait()

    async def _remove_uploads(self, tenant: str, uploads: Sequence[str]) -> None:
        """Remove these uploads from the balance; they take no room."""

        def remove_uploads(balance: Balance) -> Balance:
            for upload in uploads:
                balance = balance.without(upload, 0)
            return balance

        if uploads:
            await self._balances.change(tenant, remove_uploads)

    async def _return(
        self, reservations: Sequence[Record], owed: tuple[PendingStep, ...], *, stood: bool
    ) -> list[Tombstone]:
        """Delete reservations that were not changed meanwhile.

        Returns their tombstones.
        """
        until, note = (
            None if owed else self._placement.tombstone_until(),
            dict[str, JsonValue]({STOOD: True} if stood else {}),
        )
        deletes = [
            Delete(
                RESERVATIONS,
                row.key,
                self._placement.next_version(row.version),
                AtVersion(row.version),
                owed,
                note,
                until,
                settles=LOOKS,
            )
            for row in reservations
        ]
        outcomes = await self._placement.write("artifacts.return", self._store, *deletes)
        raise_if_rejected(self._store, *outcomes)
        return [
            Tombstone(one.key, one.version, owed)
            for one, outcome in zip(deletes, outcomes, strict=True)
            if outcome.applied
        ]

    async def find(self, tenant: str, upload: str) -> Record | None:
        """Return the reservation of an upload, or None."""
        there = await self._at(reservation_key(tenant, upload))
        return there if isinstance(there, Record) else None

    async def was_referenced(self, tenant: str, upload: str) -> bool:
        """Return whether an upload's manifest was replaced or deleted since."""
        there = await self._at(reservation_key(tenant, upload))
        return isinstance(there, Tombstone) and STOOD in there.note

    async def of_session(self, partition: Partition, session_id: str, generation: int) -> list[Record]:
        """Return the reservations of a session's lives before this generation."""
        asked = And((Eq("session_id", session_id), Lt("session_generation", generation)))
        query = Query(
            RESERVATIONS,
            within(Partition(partition.tenant, RESERVATIONS_SCOPE)),
            asked,
            limit=self._placement.settings.page,
        )
        pages = self._placement.pages("artifacts.reserved", self._store, query)
        return [row async for page in pages for row in page.records if isinstance(row, Record)]

    # -- the large texts of messages ---------------------------------------------------

    async def reserve_parts(
        self, life: SessionIncarnation, uploads: Mapping[str, tuple[int, JsonValue]], *, refuses: bool
    ) -> None:
        """Reserve room for these uploads together.

        Each has its number of bytes and the ids of its chunks. Raises `QuotaExceeded`
        if there is no room and `refuses` is set. Otherwise they are counted in any
        case.
        """
        now = self._placement.now()

        def add_uploads(balance: Balance) -> Balance:
            if uploads.keys() <= balance.under_way.keys():
                return balance  # counted by this call, whose answer was lost
            if refuses:
                self._refuse_beyond(life.tenant, balance.total, sum(size for size, _ in uploads.values()))
            for upload, (size, _) in uploads.items():
                balance = balance.with_entry(upload, BalanceEntry(size, micros(now)), size)
            return balance

        await self._balances.change(life.tenant, add_uploads)
        puts = [
            Put(RESERVATIONS, self._of_message(life, upload, *said, now), Absent())
            for upload, said in uploads.items()
        ]
        outcomes = await self._placement.write("artifacts.reservation", self._store, *puts)
        for outcome in outcomes:
            raise_if_rejected(self._store, outcome)
            if not (
                outcome.applied or isinstance(outcome.stored, Record)
            ):  # a driver's second attempt meets itself
                raise ReservationLapsed("the reservation of this upload was cancelled")

    def _of_message(
        self, life: SessionIncarnation, upload: str, size: int, chunks: JsonValue, now: datetime
    ) -> Record:
        fields: dict[str, FieldValue] = {
            "session_id": life.session_id,
            "session_generation": life.generation,
            "upload": upload,
            "bytes": size,
        }
        owed = PendingStep(LOOK_FOR_ROW, LOOK_FOR_ROW, {"ids": chunks})
        key, version = reservation_key(life.tenant, upload), self._placement.next_version()
        return Record(key, RESERVATIONS_SCOPE, version, now, now, fields=fields, tier="mid", owed=(owed,))

    async def hold_parts(self, tenant: str, uploads: Sequence[str]) -> bool:
        """Hold uploads that rows of messages name.

        False if one of them was cancelled, or deleted since.
        """
        with step("artifacts.reserved"):
            keys = [*(reservation_key(tenant, upload) for upload in uploads), balance_key(tenant)]
            *rows, stands = await self._store.get(RESERVATIONS, keys)
        if not is_readable(stands) or not set(uploads) <= uploads_named(stands):
            await self.see(tenant, uploads)
        raise_if_corrupt(self._store, *rows)
        under_way = [row for row in rows if isinstance(row, Record) and row.owed]
        outcomes = (
            await self._placement.write("artifacts.hold", self._store, *map(self._hold_put, under_way))
            if under_way
            else []
        )
        raise_if_rejected(self._store, *outcomes)
        mine = [row for row, outcome in zip(under_way, outcomes, strict=True) if outcome.applied]

        def remove_uploads(balance: Balance) -> Balance:
            for row in mine:
                upload = str(row.fields["upload"])
                if (entry := balance.under_way.get(upload)) is not None and not entry.leaves:
                    balance = balance.without(upload, bytes_of(row))
            return balance

        if mine:
            await self._balances.change(tenant, remove_uploads)
        by_another = [outcome.stored for outcome in outcomes if not outcome.applied]
        return all(isinstance(row, Record) for row in rows) and all(
            isinstance(row, Record) and not row.owed for row in by_another
        )

    def _hold_put(self, reservation: Record) -> Put:
        version = self._placement.next_version(reservation.version)
        held = replace(reservation, version=version, updated_at=self._placement.now(), owed=())
        return Put(RESERVATIONS, held, AtVersion(reservation.version), settles=LOOKS)

    async def leave(self, tenant: str, upload: str, left: int) -> None:
        """Reduce an upload of a message's row to `left` bytes, and return the rest."""
        if not left:
            await self.give_back(tenant, upload)
            return
        key, patience = reservation_key(tenant, upload), RetryDeadline(self._placement, upload)
        while True:
            balance = await self._balances.of(tenant)
            there, entry = await self._at(key), balance.under_way.get(upload)
            if not isinstance(there, Record) or (
                bytes_of(there) <= left and not (entry is not None and entry.leaves)
            ):
                return
            with_it = balance.with_leaving(there, self._placement.now())
            leaving = with_it.under_way[upload]
            if await self._balances.put(tenant, with_it) and await self._put_left(there, left):
                takes = min(left, bytes_of(there))

                def remove_upload(balance: Balance) -> Balance:
                    return (
                        balance.without(upload, takes)  # noqa: B023
                        if balance.under_way.get(upload) == leaving  # noqa: B023
                        else balance
                    )

                await self._balances.change(tenant, remove_upload)
                return
            await patience.wait()

    async def _put_left(self, there: Record, left: int) -> bool:
        """Reduce a reservation; false if it was changed meanwhile.

        It is put even if its bytes stay the same, so that concurrent changes fail.
        """
        put = self._hold_put(there)
        put = replace(
            put,
            record=replace(put.record, fields={**there.fields, "bytes": min(left, bytes_of(there))}),
            erases=True,  # a full store takes it: it returns room
        )
        outcome = await self._placement.write_one("artifacts.return", self._store, put)
        raise_if_rejected(self._store, outcome)
        return outcome.applied

    # -- the balance -------------------------------------------------------------------

    async def see(self, tenant: str, uploads: Sequence[str], *, refuses: bool = False) -> None:
        """Count pending uploads that the balance does not name.

        They began just when the balance was recounted. Raises `QuotaExceeded` if there
        is no room for them and `refuses` is set.
        """
        patience = RetryDeadline(self._placement, f"the usage record of tenant {tenant}")
        while True:
            balance = seen = await self._balances.of(tenant)
            for upload in uploads:
                if upload not in balance.under_way and isinstance(
                    there := await self._at(reservation_key(tenant, upload)), Record
                ):
                    seen = seen.with_reservation(there, self._placement.now())
            if refuses and seen is not balance:
                self._refuse_beyond(tenant, balance.total, seen.total - balance.total)
            if seen is balance or await self._balances.put(tenant, seen):
                return
            await patience.wait()

    async def _at(self, key: Key) -> Stored | None:
        (there,) = await self._all_at([key])
        return there

    async def _all_at(self, keys: Sequence[Key]) -> Sequence[Stored | None]:
        found = await self._placement.read("artifacts.reserved", self._store, RESERVATIONS, keys)
        raise_if_corrupt(self._store, *found)
        return found

    async def _settle_noted(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        """Correct the count of uploads that have finished, or never began."""
        tenant, patience = (
            pending.owner.key.tenant,
            RetryDeadline(self._placement, f"the usage record of tenant {pending.owner.key.tenant}"),
        )
        while True:
            balance = settled = await self._balances.of(tenant)
            for upload, entry in balance.under_way.items():
                takes = await self._takes(reservation_key(tenant, upload), entry)
                if takes is not None:
                    settled = settled.without(upload, takes)
            if settled is balance or await self._balances.put(tenant, settled):
                return not settled.under_way
            await patience.wait()

    async def _takes(self, key: Key, entry: BalanceEntry) -> int | None:
        """Return the bytes of a finished upload; None if it may be in progress."""
        there = await self._at(key)
        lapsed = micros(self._placement.now()) - entry.since > self._placement.settings.mark_life / timedelta(
            microseconds=1
        )
        if isinstance(there, Tombstone):
            return 0
        if isinstance(there, Record):
            if there.owed or (entry.leaves and not (lapsed and await self._shut_out(there))):
                return None
            return bytes_of(there)
        if lapsed:  # its writer died before it put it: shut a late put out
            gone = Delete(
                RESERVATIONS,
                key,
                self._placement.next_version(),
                Newer(),
                discard_at=self._placement.tombstone_until(),
            )
            await self._placement.write_one("artifacts.return", self._store, gone)
        return None

    async def _shut_out(self, there: Record) -> bool:
        """Make a process that was about to return this room look again.

        False if it has returned some by then.
        """
        put = Put(
            RESERVATIONS,
            replace(there, version=self._placement.next_version(there.version)),
            AtVersion(there.version),
        )
        return (await self._placement.write_one("artifacts.return", self._store, put)).applied


def reservation_key(tenant: str, upload: str) -> Key:
    return Key(tenant, ids.derived_id(tenant, RESERVATIONS_SCOPE, "upload", upload))


def _is_as(there: Stored | None, reservation: Record) -> bool:
    """Return whether this put is stored already: the driver repeated it.

    A recount gives the next version too, which this put has if its clock is behind.
    """
    return (
        isinstance(there, Record)
        and there.version == reservation.version
        and (there.owed, dict(there.fields)) == (reservation.owed, dict(reservation.fields))
    )
