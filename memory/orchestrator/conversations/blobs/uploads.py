"""The large texts of messages in the store: chunks that lie in the session's partition,
put before the row that names them.

An upload is what one write stores of them. Room for it is reserved first
(`reservations.py`): what it takes counts in the tenant's quota as artifacts do. Its
reservation owes the look whether a row names it. The writer holds it behind its row; a
sweep does the same where the writer died, or gives the upload up where no row has come
within `mark_life`. Both change it at its version, so one of them is first, and a writer
that slept through that learns it before it acknowledges anything: it stores them once
more.

What a row names no more, because its message was changed or erased, that row owes to
drop, and to return the room that it took.

So, whoever dies: every chunk that a row names is there, and every chunk is named by a
row of its session or by an upload under way, or owed to be dropped. A row may name
chunks that are gone only where its writer slept for longer than `mark_life`, and then
died before it acknowledged that.

Uploads of before had no reservation, but a record of their own that owed the look
(`UPLOAD`). They are not counted, and return nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from datetime import datetime

from memory.domain.errors import (
    MemoryTiersError,
    QuotaExceeded,
    StoreError,
    StoreUnavailable,
    TooMuchContention,
)
from memory.domain.message import Message
from memory.domain.time import moment
from memory.orchestrator.conversations.blobs.large_texts import (
    Artifacts,
    Chunk,
    LargeText,
    chunk_key,
    chunks_of,
    digest_of,
    encode_chunks,
    large_texts,
    uploads_of,
)
from memory.orchestrator.conversations.blobs.reservations import LOOK_FOR_ROW, ReservationLapsed, Reservations
from memory.orchestrator.conversations.log.incarnation import SessionIncarnation
from memory.orchestrator.storage.collections import ARTIFACTS, MESSAGES
from memory.orchestrator.storage.outbox import Outbox, OutboxRecord
from memory.orchestrator.storage.placement import Placement, rejection_error
from memory.orchestrator.storage.session_keys import scope_of
from memory.orchestrator.storage.steps import step
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import And, Eq, Has, Query, within
from memory.ports.record import FieldValue, JsonValue, Key, Partition, PendingStep, Record, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Delete, Newer, Put, Status

log = logging.getLogger(__name__)

UPLOAD, DROP = "upload", "drop"
"""The steps that decide what becomes of an upload of before, and that delete chunks
which are named no more.
"""
HELD = "held"
"""In the note of the tombstone of an upload of before: a row names it."""
COUNTED = "-counted"
"""What the names of uploads end in for which room was reserved."""
LEFT = "left"
"""In the data of `DROP`: how many bytes are left of each upload that is counted, once
these chunks are gone.
"""
BYTES_AT_ONCE = 2 * 2**20
"""Of chunks that are put in one call."""
READ_AT_ONCE = 16
"""Chunks that are read in one call."""


class StaleGeneration(MemoryTiersError):
    """The session's generation was raised since its life was read: see `Log.renew`."""


class Uploads:
    """Stores, reads and drops the large texts of messages."""

    def __init__(self, placement: Placement, outbox: Outbox, reservations: Reservations) -> None:
        self._placement = placement
        self._outbox = outbox
        self._reservations = reservations
        outbox.register(UPLOAD, self._upload_noted)
        outbox.register(DROP, self._drop_noted)
        outbox.register(LOOK_FOR_ROW, self._look_noted)

    @property
    def _store(self) -> Store:
        return self._placement.topology.archive

    # -- storing -----------------------------------------------------------------------

    async def lay(
        self, life: SessionIncarnation, messages: Sequence[tuple[Message, Artifacts]], *, refuses: bool = True
    ) -> list[Artifacts]:
        """Store the large texts of messages, each with those that the row which is to
        be replaced names: what of them is there is not put again.

        Raises `QuotaExceeded` where there is no room for them and `refuses`, before
        anything is stored; `StaleGeneration` where the session was erased, or only its
        generation raised. Nothing is left then.
        """
        now = self._placement.now()
        cut = [await self._cut(life.version_at(now), *one) for one in messages]
        found, fresh = (
            [artifacts for artifacts, _, _ in cut],
            [(upload, chunks) for _, upload, chunks in cut if chunks],
        )
        if not fresh:
            return found
        takes = {upload: (sum(map(len, chunks.values())), ids_of(life, chunks)) for upload, chunks in fresh}
        try:
            await self._reservations.reserve_parts(life, takes, refuses=refuses)
            for portion in self._portions(
                life, [chunk for _, chunks in fresh for chunk in chunks.items()], now
            ):
                await self._put(portion)
        except QuotaExceeded:
            raise
        except (Exception, asyncio.CancelledError) as error:
            await self._return(life.tenant, takes)
            if isinstance(error, ReservationLapsed):
                raise StoreUnavailable(
                    self._store.name,
                    "large texts took too long to store, and a sweep cancelled their upload. Append the message again",
                ) from None
            raise
        return found

    def _portions(
        self, life: SessionIncarnation, chunks: Sequence[tuple[Chunk, bytes]], now: datetime
    ) -> list[list[Put]]:
        portions, room = list[list[Put]](), 0
        for chunk, data in chunks:
            if room < len(data):
                portions.append([])
                # where it is not atomic, a call that is cut off may leave the last of
                # its writes alone
                room = BYTES_AT_ONCE if self._store.capabilities.atomic else 0
            portions[-1].append(Put(ARTIFACTS, self._chunk(life, chunk, data, now), Absent()))
            room -= len(data)
        return portions

    async def _cut(
        self, version: int, message: Message, before: Artifacts
    ) -> tuple[Artifacts, str, dict[Chunk, bytes]]:
        """The large texts of a message, the name of its upload, and what of them is not
        there yet.
        """
        there = {chunk.digest: chunk for chunk in chunks_of(before)}
        upload = f"{version}-{self._placement.nonce()}{COUNTED}"
        artifacts, fresh = list[LargeText](), dict[Chunk, bytes]()
        for path, text in large_texts(message):
            chunks, size = list[Chunk](), 0
            async for data in iterate_cooperatively(encode_chunks(text)):
                digest = digest_of(data)
                chunk = there.get(digest) or Chunk(upload, digest)
                if chunk.upload == upload:
                    fresh[chunk] = data
                chunks.append(chunk)
                size += len(data)
            artifacts.append(LargeText(path, size, tuple(chunks)))
        return tuple(artifacts), upload, fresh

    def _chunk(self, life: SessionIncarnation, chunk: Chunk, data: bytes, now: datetime) -> Record:
        key, version = chunk_key(life.tenant, life.scope, chunk), _version_of(chunk.upload)
        fields: dict[str, FieldValue] = {
            "conversation_id": life.session_id,
            "upload": chunk.upload,
            "digest": chunk.digest,
            "data": data,
        }
        return Record(
            key, life.scope, version, now, now, fields=fields, generation=life.generation, tier="mid"
        )

    async def _put(self, puts: Sequence[Put]) -> None:
        outcomes = await self._placement.write("artifacts.put", self._store, *puts)
        for outcome in outcomes:
            if outcome.applied or (
                outcome.status is Status.CONFLICT and isinstance(outcome.stored, Record)
            ):  # a driver's second attempt
                continue
            if (error := rejection_error(self._store, outcome)) is not None:
                raise error
            if outcome.status is Status.REJECTED:
                raise StaleGeneration("the session has another generation")
            if isinstance(outcome.stored, Tombstone):
                raise ReservationLapsed("the upload was given up")
            raise StoreError(self._store.name, "holds other data in the place of a large text")

    # -- what becomes of an upload -----------------------------------------------------

    async def hold(self, life: SessionIncarnation, uploads: Iterable[str]) -> bool:
        """The row that names these uploads stands: they are under way no more. False
        where a sweep had given one of them up.

        A sweep holds them too: that the store does not answer here, or others keep
        changing the balance, is no reason not to acknowledge the row, unless it may
        have been too late.
        """
        names = list(uploads)
        if not names:
            return True
        try:
            return await self._reservations.hold_parts(life.tenant, names)
        except (StoreError, TooMuchContention) as error:
            if (
                self._placement.now() - min(moment(_version_of(name)) for name in names)
                > self._placement.settings.mark_life / 2
            ):
                raise
            log.info("a sweep will confirm the large texts of session %s: %s", life.session_id, error)
            return True

    async def give_up(self, life: SessionIncarnation, artifacts: Artifacts, kept: Artifacts = ()) -> None:
        """No row will come to name what these have beyond those that are kept. What
        cannot be dropped now a sweep drops.
        """
        await self._return(life.tenant, set(uploads_of(artifacts)) - set(uploads_of(kept)))

    async def _return(self, tenant: str, uploads: Iterable[str]) -> None:
        for upload in uploads:
            try:
                there = await self._reservations.find(tenant, upload)
                if there is not None and not await self._is_named(
                    self._store, there
                ):  # it is where a driver sent the row twice, and met itself
                    await self._give_up(there)
            except (StoreError, TooMuchContention) as error:
                log.info("a sweep will delete the cancelled upload of large texts: %s", error)

    async def _give_up(self, reservation: Record) -> None:
        """Give an upload up that is of this version still, and delete its chunks."""
        for look in reservation.owed:
            await self._reservations.give_up(reservation, PendingStep(DROP, DROP, look.data))

    async def _look_noted(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        """What a writer that died, or is slow, has left."""
        reservation = pending.owner
        if not isinstance(reservation, Record):
            return True
        if await self._is_named(pending.store, reservation):
            await self._reservations.hold_parts(reservation.key.tenant, [str(reservation.fields["upload"])])
        elif self._placement.now() - reservation.updated_at > self._placement.settings.mark_life:
            await self._give_up(reservation)
        else:
            return False
        return True

    async def _upload_noted(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        """The same of an upload of before."""
        upload, until = pending.owner, self._placement.tombstone_until()
        if not isinstance(upload, Record):
            return True
        over, at, settles = (
            self._placement.next_version(upload.version),
            AtVersion(upload.version),
            frozenset({UPLOAD}),
        )
        if await self._is_named(pending.store, upload):
            held = Delete(
                ARTIFACTS, upload.key, over, at, note={HELD: True}, discard_at=until, settles=settles
            )
            await self._placement.write_one("artifacts.hold", pending.store, held)
        elif self._placement.now() - upload.updated_at > self._placement.settings.mark_life:
            dropping = (PendingStep(DROP, DROP, owed.data),)
            gone = Delete(ARTIFACTS, upload.key, over, at, owed=dropping, settles=settles)
            outcome = await self._placement.write_one("artifacts.give_up", pending.store, gone)
            if (error := rejection_error(pending.store, outcome)) is not None:
                raise error
            if outcome.applied:
                await self._outbox.finish(
                    OutboxRecord(ARTIFACTS, pending.store, Tombstone(upload.key, over, dropping))
                )
        else:
            return False
        return True

    async def _is_named(self, store: Store, upload: Record) -> bool:
        """Whether a row names an upload, whose reservation or own record this is."""
        session_id = str(upload.fields.get("session_id") or upload.fields.get("conversation_id"))
        asked = And((Eq("conversation_id", session_id), Has("uploads", str(upload.fields["upload"]))))
        query = Query(
            MESSAGES,
            within(Partition(upload.key.tenant, scope_of(session_id))),
            asked,
            limit=1,
            select=frozenset(),
        )
        return bool((await self._placement.page("artifacts.find", store, query)).heads)

    # -- dropping ----------------------------------------------------------------------

    def drop_steps(
        self,
        life: SessionIncarnation,
        before: Artifacts,
        artifacts: Artifacts,
        message: Message | None,
        version: int,
    ) -> tuple[PendingStep, ...]:
        """What an event owes whose message has other large texts than before: these of
        `message`, where it has any.
        """
        kept = set(chunks_of(artifacts))
        gone = [chunk for chunk in chunks_of(before) if chunk not in kept]
        counted = {chunk.upload: 0 for chunk in gone if chunk.upload.endswith(COUNTED)}
        if not gone:
            return ()
        if kept and counted and message is not None:
            told = zip(artifacts, large_texts(message), strict=True)
            sizes = {
                chunk: len(data)
                for artifact, (_, text) in told
                for chunk, data in zip(artifact.chunks, encode_chunks(text), strict=True)
            }
            for chunk in kept:
                if chunk.upload in counted:
                    counted[chunk.upload] += sizes[chunk]
        return (
            PendingStep(
                f"{DROP}:{version}", DROP, {"ids": ids_of(life, gone), **({LEFT: counted} if counted else {})}
            ),
        )

    async def drop(self, store: Store, row: Record) -> tuple[PendingStep, ...]:
        """Drop what a row owes to drop, and nothing else that it owes; what could not
        be done.
        """
        return await self._outbox.finish(OutboxRecord(MESSAGES, store, row))

    async def _drop_noted(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        tenant = pending.owner.key.tenant
        await delete_chunks(self._placement, pending.store, [Key(tenant, one) for one in owed.data["ids"]])
        for upload, left in owed.data.get(LEFT, {}).items():
            await self._reservations.leave(tenant, upload, left)
        return True

    # -- reading -----------------------------------------------------------------------

    async def texts(self, life: SessionIncarnation, artifacts: Iterable[LargeText]) -> dict[Chunk, str]:
        """What the chunks of these say: those that are there and say what they said
        when they were stored.
        """
        wanted, found = chunks_of(artifacts), dict[Chunk, str]()
        for start in range(0, len(wanted), READ_AT_ONCE):
            some = wanted[start : start + READ_AT_ONCE]
            with step("artifacts.read"):
                rows = await self._store.get(
                    ARTIFACTS, [chunk_key(life.tenant, life.scope, chunk) for chunk in some]
                )
            async for chunk, row in iterate_cooperatively(zip(some, rows, strict=True)):
                data = row.fields.get("data") if isinstance(row, Record) else None
                if isinstance(data, bytes) and digest_of(data) == chunk.digest:
                    found[chunk] = data.decode()
        return found


async def delete_chunks(placement: Placement, store: Store, keys: Sequence[Key]) -> None:
    """Delete chunks. Tombstones are left also where none stand, so that one that comes
    late is refused.
    """
    until = placement.tombstone_until()
    deletes = [Delete(ARTIFACTS, key, placement.next_version(), Newer(), discard_at=until) for key in keys]
    while deletes:
        outcomes = await placement.write("artifacts.drop", store, *deletes)
        ahead: list[Delete] = []
        for delete, outcome in zip(deletes, outcomes, strict=True):
            if (error := rejection_error(store, outcome)) is not None:
                raise error
            if isinstance(outcome.stored, Record):  # by the clock of its writer it is not older
                there = outcome.stored.version
                ahead.append(
                    Delete(
                        ARTIFACTS,
                        delete.key,
                        placement.next_version(there),
                        AtVersion(there),
                        discard_at=until,
                    )
                )
        deletes = ahead


def ids_of(life: SessionIncarnation, chunks: Iterable[Chunk]) -> list[JsonValue]:
    return [chunk_key(life.tenant, life.scope, chunk).id for chunk in chunks]


def _version_of(upload: str) -> int:
    """The version of an upload's records, which its name begins with: the moment when
    it began.
    """
    return int(upload.partition("-")[0])
