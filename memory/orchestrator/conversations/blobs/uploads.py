"""The large texts of messages in the store: chunks in the session's partition.

They are put before the row that names them. An upload is the set of chunks that one
write stores. Its room is reserved first (`reservations.py`), and counts in the tenant's
quota like artifacts. The reservation has a pending step that checks whether a row names
the upload.

The writer holds the reservation after it has put its row. A sweep holds it if the
writer died, or cancels the upload if no row has arrived within `mark_life`. Both change
it at its version, so only one succeeds. A writer that slept through a cancellation
notices it before it acknowledges anything, and stores the chunks once more.

If a message is changed or erased, its row has a pending step for the chunks that it no
longer names. The step deletes them and returns their room.

So these hold after any crash: every chunk that a row names exists. Every chunk is named
by a row of its session or by a pending upload, or its deletion is pending. There is one
exception: a writer that slept longer than `mark_life`, and then died before it
acknowledged. Its row may name deleted chunks.

Older uploads had no reservation, but a record of their own with the pending step
`UPLOAD`. They are not counted, and return no room.
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
from memory.orchestrator.storage.placement import Placement, raise_if_rejected
from memory.orchestrator.storage.session_keys import scope_of
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import And, Eq, Has, Query, within
from memory.ports.record import FieldValue, JsonValue, Key, Partition, PendingStep, Record, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Delete, Newer, Put, Status

log = logging.getLogger(__name__)

UPLOAD, DROP = "upload", "drop"
"""The steps that finish an older upload, and that delete unnamed chunks."""
HELD = "held"
"""In the note of the tombstone of an older upload: a row names it."""
COUNTED = "-counted"
"""The suffix of the names of uploads with a reservation."""
LEFT = "left"
"""In the data of `DROP`: the remaining bytes of each counted upload after the step."""
BYTES_AT_ONCE = 2 * 2**20
"""Bytes of chunks that are put in one call."""
READ_AT_ONCE = 16
"""Chunks that are read in one call."""


class StaleGeneration(MemoryTiersError):
    """The session's generation was raised since its life was read: see `Log.renew`."""


class Uploads:
    """Stores, reads and deletes the large texts of messages."""

    def __init__(self, placement: Placement, outbox: Outbox, reservations: Reservations) -> None:
        self._placement = placement
        self._outbox = outbox
        self._reservations = reservations
        outbox.register_for_records(UPLOAD, self._upload_noted)
        outbox.register(DROP, self._drop_noted)
        outbox.register_for_records(LOOK_FOR_ROW, self._look_noted)

    @property
    def _store(self) -> Store:
        return self._placement.topology.archive

    # -- storing -----------------------------------------------------------------------

    async def lay(
        self, life: SessionIncarnation, messages: Sequence[tuple[Message, Artifacts]], *, refuses: bool = True
    ) -> list[Artifacts]:
        """Store the large texts of messages.

        Each message comes with the large texts of the row that it replaces. Chunks that
        exist already are not put again.

        Raises:
            QuotaExceeded: there is no room for them, and `refuses` is set. Nothing is
                stored.
            StaleGeneration: the session was erased, or its generation was raised. The
            chunks
                are deleted again.
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
                    "large texts took too long to store, and a sweep cancelled their upload. Append the"
                    " message again",
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
                # a store that is not atomic may store only the last writes of an
                # interrupted call
                room = BYTES_AT_ONCE if self._store.capabilities.atomic else 0
            portions[-1].append(Put(ARTIFACTS, self._chunk(life, chunk, data, now), Absent()))
            room -= len(data)
        return portions

    async def _cut(
        self, version: int, message: Message, before: Artifacts
    ) -> tuple[Artifacts, str, dict[Chunk, bytes]]:
        """Return a message's large texts, its upload's name, and the chunks to put."""
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
            raise_if_rejected(self._store, outcome)
            if outcome.status is Status.REJECTED:
                raise StaleGeneration("the session has another generation")
            if isinstance(outcome.stored, Tombstone):
                raise ReservationLapsed("the upload was cancelled")
            raise StoreError(self._store.name, "holds other data in the place of a large text")

    # -- what becomes of an upload -----------------------------------------------------

    async def hold(self, life: SessionIncarnation, uploads: Iterable[str]) -> bool:
        """Hold uploads that a stored row names; false if a sweep cancelled one.

        A sweep holds them too. So a store that does not answer, or constant changes of
        the balance, do not fail the append, unless it may have been too late.
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
        """Cancel uploads that no row will name, except those that are `kept`.

        A sweep deletes the rest of what cannot be deleted now.
        """
        await self._return(life.tenant, set(uploads_of(artifacts)) - set(uploads_of(kept)))

    async def _return(self, tenant: str, uploads: Iterable[str]) -> None:
        for upload in uploads:
            try:
                there = await self._reservations.find(tenant, upload)
                if there is not None and not await self._is_named(
                    self._store, there
                ):  # named if a driver put the row twice, and it met itself
                    await self._give_up(there)
            except (StoreError, TooMuchContention) as error:
                log.info("a sweep will delete the cancelled upload of large texts: %s", error)

    async def _give_up(self, reservation: Record) -> None:
        """Cancel an upload that still has this version, and delete its chunks."""
        for look in reservation.owed:
            await self._reservations.give_up(reservation, PendingStep(DROP, DROP, look.data))

    async def _look_noted(self, reservation: Record, store: Store, owed: PendingStep) -> bool:
        """Finish the upload of a writer that died, or wait for a slow one."""
        if await self._is_named(store, reservation):
            await self._reservations.hold_parts(reservation.key.tenant, [str(reservation.fields["upload"])])
        elif self._placement.now() - reservation.updated_at > self._placement.settings.mark_life:
            await self._give_up(reservation)
        else:
            return False
        return True

    async def _upload_noted(self, upload: Record, store: Store, owed: PendingStep) -> bool:
        """Finish an older upload."""
        over, until = self._placement.next_version(upload.version), self._placement.tombstone_until()
        at, settles = AtVersion(upload.version), frozenset({UPLOAD})
        if await self._is_named(store, upload):
            held = Delete(
                ARTIFACTS, upload.key, over, at, note={HELD: True}, discard_at=until, settles=settles
            )
            await self._placement.write_one("artifacts.hold", store, held)
        elif self._placement.now() - upload.updated_at > self._placement.settings.mark_life:
            dropping = (PendingStep(DROP, DROP, owed.data),)
            gone = Delete(ARTIFACTS, upload.key, over, at, owed=dropping, settles=settles)
            outcome = await self._placement.write_one("artifacts.give_up", store, gone)
            raise_if_rejected(store, outcome)
            if outcome.applied:
                await self._outbox.finish(
                    OutboxRecord(ARTIFACTS, store, Tombstone(upload.key, over, dropping))
                )
        else:
            return False
        return True

    async def _is_named(self, store: Store, upload: Record) -> bool:
        """Return whether a row names this upload.

        `upload` is its reservation, or the record of an older upload.
        """
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
        """Return the pending steps of an event whose large texts have changed.

        `artifacts` are the large texts of `message`, if it has any.
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
        """Delete the chunks that a row has pending; return the steps that are left.

        Other pending steps of the row must not be passed.
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
        """Return the texts of chunks that exist and match their digest."""
        wanted, found = chunks_of(artifacts), dict[Chunk, str]()
        for start in range(0, len(wanted), READ_AT_ONCE):
            some = wanted[start : start + READ_AT_ONCE]
            keys = [chunk_key(life.tenant, life.scope, chunk) for chunk in some]
            rows = await self._placement.read("artifacts.read", self._store, ARTIFACTS, keys)
            async for chunk, row in iterate_cooperatively(zip(some, rows, strict=True)):
                data = row.fields.get("data") if isinstance(row, Record) else None
                if isinstance(data, bytes) and digest_of(data) == chunk.digest:
                    found[chunk] = data.decode()
        return found


async def delete_chunks(placement: Placement, store: Store, keys: Sequence[Key]) -> None:
    """Delete chunks.

    Tombstones are also put where no chunk exists, so that a late put is rejected.
    """
    until = placement.tombstone_until()
    deletes = [Delete(ARTIFACTS, key, placement.next_version(), Newer(), discard_at=until) for key in keys]
    while deletes:
        outcomes = await placement.write("artifacts.drop", store, *deletes)
        ahead: list[Delete] = []
        for delete, outcome in zip(deletes, outcomes, strict=True):
            raise_if_rejected(store, outcome)
            if isinstance(outcome.stored, Record):  # its version is not older, by the clock of its writer
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
    """Return the version of an upload's records: the moment when it began.

    The upload's name begins with it.
    """
    return int(upload.partition("-")[0])
