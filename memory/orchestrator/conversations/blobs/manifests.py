"""The artifacts of sessions: files under paths, each as chunks and a manifest.

Chunks and manifest are in the session's partition. A manifest names the upload of its
chunks. An upload first reserves its room (`reservations.py`), then puts its chunks, and
its manifest last. That put is conditional on the version that it replaces, so each of
several writers replaces the version that it saw. Until then the upload is invisible.

A manifest has a pending step that deletes the upload it replaced, and a tombstone one
for its own upload. If a writer fails, its unnamed upload is deleted at once. Otherwise
a sweep deletes it after `mark_life` without a renewal. The sweep changes the version
under the path first. A writer that wakes up then cannot put its manifest, looks again,
and fails with an error.

A chunk's key is computed from the upload and the chunk's number. So a reader gets all
bytes of one upload, whose SHA-256 is checked, or an error.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from memory.domain import ids
from memory.domain.artifact import Artifact, ArtifactPage
from memory.domain.errors import (
    Conflict,
    CorruptRecord,
    InvalidInput,
    MemoryTiersError,
    NotFound,
    QuotaExceeded,
    StoreError,
    StoreUnavailable,
)
from memory.domain.provenance import WRITTEN_BY
from memory.orchestrator.conversations.blobs.balances import bytes_of
from memory.orchestrator.conversations.blobs.reservations import LOOK, ReservationLapsed, Reservations
from memory.orchestrator.conversations.blobs.uploads import delete_chunks
from memory.orchestrator.conversations.log.incarnation import SessionIncarnation
from memory.orchestrator.conversations.sessions import SessionRecords, life_of
from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.storage.collections import ARTIFACTS, MANIFESTS
from memory.orchestrator.storage.entry_records import DELETED_BY, REQUEST
from memory.orchestrator.storage.key_locks import RetryDeadline
from memory.orchestrator.storage.outbox import Outbox, OutboxRecord
from memory.orchestrator.storage.placement import Placement, raise_if_corrupt, raise_if_rejected
from memory.orchestrator.storage.requests import (
    CREATED_OVER,
    RequestMark,
    deleted_since,
    was_made_by,
    with_marks,
)
from memory.orchestrator.storage.session_keys import scope_of, session_of
from memory.orchestrator.storage.split import CONVERSATION
from memory.ports.concurrency import both_at_once
from memory.ports.query import Eq, In, Order, Query, Tenant, within
from memory.ports.record import (
    Corrupt,
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
from memory.ports.writes import Absent, AtVersion, Delete, Newer, Outcome, Put, Status

log = logging.getLogger(__name__)

CHUNK_BYTES = 2**20
"""Bytes of an artifact in one record; every store accepts that."""
PORTION = 4
"""Chunks that are put or read in one call; twice as many are in memory."""
AHEAD = 16 * 2**20
"""The most bytes reserved in advance for a stream of unknown size.

Each reservation costs two writes.
"""
DELETED_AT_ONCE = 8
"""Chunks deleted in one call; stores read these into memory."""
ASKED_AT_ONCE = 100
DROP, DROP_CHUNKS = "artifact.drop", "artifact.drop_chunks"
"""The steps that delete the chunks of a replaced upload, and of a cancelled one."""
NEVER_STOOD = "never_stood"
"""In the note of a tombstone at a path that never had a manifest.

It rejects the put of a writer that slept.
"""
CLEAR = "artifact.clear"
"""The pending step of a deleted artifact: clear the references of entries to it."""


class PathOccupied(MemoryTiersError):
    """The path is occupied, or was deleted and must not be reused."""

    def __init__(self, stands: Record | Tombstone) -> None:
        super().__init__("the path is occupied, or was deleted and must not be reused")
        self.stands = stands


@dataclass(slots=True)
class _Upload:
    """An upload in progress: its life, its reservation, and the chunks put so far."""

    life: SessionIncarnation
    key: Key
    name: str
    reservation: Record
    artifact_id: str | None = None
    """The id that the artifact must get; then the path must never have been used."""
    request: RequestMark | None = None
    writer: str | None = None
    """The caller of a server that puts it."""
    size: int = 0
    chunks: int = 0
    hash: Any = field(default_factory=hashlib.sha256)


class Manifests:
    """The repository of artifacts with a path."""

    def __init__(
        self,
        placement: Placement,
        *,
        sessions: SessionRecords,
        reservations: Reservations,
        outbox: Outbox,
        erasure: Erasure,
        most_bytes: int,
        on_gone: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._placement = placement
        self._sessions = sessions
        self._reservations = reservations
        self._outbox = outbox
        self._holds = erasure.holds
        self._most_bytes = most_bytes
        self._on_gone = on_gone
        """Called with the tenant and id of a deleted artifact. It must clear all
        references to the artifact before it returns. A call that fails is repeated.
        """
        outbox.register(CLEAR, self._clear_noted)
        outbox.register(DROP, self._drop_noted)
        outbox.register(DROP_CHUNKS, self._drop_chunks_noted)
        outbox.register_for_records(LOOK, self._look_noted)
        erasure.also.append(self._gone_with)

    @property
    def _store(self) -> Store:
        return self._placement.topology.archive

    # -- putting -----------------------------------------------------------------------

    async def put(
        self,
        tenant: str,
        session_id: str,
        path: str,
        media_type: str,
        data: AsyncIterator[bytes],
        size: int | None,
        *,
        artifact_id: str | None = None,
        request: RequestMark | None = None,
        writer: str | None = None,
    ) -> Artifact:
        """Store these bytes under the path.

        A repeat of the request stores nothing, and returns the artifact as it is now.

        Args:
            size: The number of bytes, if it is known. Otherwise room is reserved as
                they arrive.
            artifact_id: The id of a new artifact, which replaces none.
            writer: The caller of a server that puts it; noted in the artifact.

        Raises:
            NotFound: there is no such session.
            QuotaExceeded: there is no room.
            LegalHoldActive: the artifact at the path is under legal hold.
            PathOccupied: with `artifact_id`, the path is in use or was used.
            Conflict: a repeat finds that the artifact was deleted.
        """
        self._refuse_beyond(size or 0)
        life = life_of(await self._sessions.record(tenant, session_id))
        key = _key(life, path)
        stands = await self._fetch_readable(key)
        if (made := _find_made(stands, path, request)) is not None:
            return artifact_of(made)
        if artifact_id is not None and (there := _record_or_tombstone(stands)):
            raise PathOccupied(there)
        if isinstance(stands, Record):
            await self._holds.refuse_partition(life.partition, whole=False)
        name, wanted = (
            f"{self._placement.next_version()}-{self._placement.nonce()}",
            self._id_over(life, stands, artifact_id),
        )
        upload: _Upload | None = None
        try:
            upload = _Upload(
                life,
                key,
                name,
                await self._reservations.reserve(life, name, key, size or 0, wanted),
                artifact_id,
                request,
                writer,
            )
            await self._lay(upload, data)
            await self._reservations.see(tenant, [name], refuses=True)
            upload.reservation = await self._reservations.renew(upload.reservation)
        except ReservationLapsed:
            await self._refuse_if_session_ended(upload)
            raise self._too_slow() from None
        except (Exception, asyncio.CancelledError):
            await self._give_up(tenant, name)
            raise
        try:
            manifest = await self._name(upload, path, media_type, stands)
        except ReservationLapsed:
            await self._refuse_if_session_ended(upload)
            raise self._too_slow() from None
        if manifest.fields.get("upload") != upload.name:
            return artifact_of(manifest)  # of another attempt of the request
        await self._hold(upload, manifest)
        await self._outbox.finish(OutboxRecord(MANIFESTS, self._store, manifest))
        return artifact_of(manifest)

    def _refuse_beyond(self, size: int) -> None:
        if size > self._most_bytes:
            raise InvalidInput(
                "data",
                f"exceeds {self._most_bytes:,} bytes. Raise artifacts.max_bytes, or store it elsewhere and"
                " its address here",
            )

    def _too_slow(self) -> StoreUnavailable:
        return StoreUnavailable(
            self._store.name,
            "an upload paused for too long, and a sweep cancelled it. Put the artifact again",
        )

    async def _lay(self, upload: _Upload, data: AsyncIterator[bytes]) -> None:
        async with aclosing(_portions(data)) as portions:
            async for portion in portions:
                await self._lay_portion(upload, portion)

    async def _lay_portion(self, upload: _Upload, portion: Sequence[bytes]) -> None:
        size = sum(map(len, portion))
        self._refuse_beyond(upload.size + size)
        if (more := upload.size + size - bytes_of(upload.reservation)) > 0:
            upload.reservation = await self._grow_reservation(upload, more)
        elif self._placement.now() - upload.reservation.updated_at > self._placement.settings.mark_life / 4:
            upload.reservation = await self._reservations.renew(upload.reservation)
        await both_at_once(
            self._put_chunks(upload, portion), asyncio.to_thread(_update, upload.hash, portion)
        )
        upload.size, upload.chunks = upload.size + size, upload.chunks + len(portion)

    async def _grow_reservation(self, upload: _Upload, more: int) -> Record:
        """Return the reservation with room for this many bytes more.

        If the quota allows, it grows by as many bytes as have arrived so far, up to
        `AHEAD`.
        """
        with suppress(QuotaExceeded):
            return await self._reservations.grow(upload.reservation, max(more, min(upload.size, AHEAD)))
        return await self._reservations.grow(upload.reservation, more)

    async def _put_chunks(self, upload: _Upload, portion: Sequence[bytes]) -> None:
        puts = [self._chunk(upload, upload.chunks + number, data) for number, data in enumerate(portion)]
        while puts:
            outcomes = await self._placement.write("artifacts.put", self._store, *puts)
            again: list[Put] = []
            for put, outcome in zip(puts, outcomes, strict=True):
                if outcome.applied or (
                    outcome.status is Status.CONFLICT and isinstance(outcome.stored, Record)
                ):  # a driver's second attempt
                    continue
                if isinstance(outcome.stored, Tombstone):
                    raise ReservationLapsed("the upload was cancelled")
                if not await self._is_of_before(upload, outcome):
                    raise StoreError(
                        self._store.name, "holds other data in the place of a part of an artifact"
                    )
                again.append(replace(put, record=replace(put.record, generation=upload.life.generation)))
            puts = again

    def _chunk(self, upload: _Upload, number: int, data: bytes) -> Put:
        now, life = self._placement.now(), upload.life
        fields: dict[str, FieldValue] = {
            "conversation_id": life.session_id,
            "upload": upload.name,
            "data": data,
        }
        key = Key(life.tenant, _chunk_id(life.tenant, life.scope, upload.name, number))
        return Put(
            ARTIFACTS,
            Record(
                key,
                life.scope,
                life.version_at(now),
                now,
                now,
                fields=fields,
                generation=life.generation,
                tier="mid",
            ),
            Absent(),
        )

    async def _is_of_before(self, upload: _Upload, outcome: Outcome) -> bool:
        """Return whether a write was rejected because the session's generation rose.

        The upload's life is updated then. Raises `NotFound` if the session has ended.
        """
        raise_if_rejected(self._store, outcome)
        if outcome.status is not Status.REJECTED:
            return False
        life = life_of(await self._sessions.record(upload.life.tenant, upload.life.session_id))
        if life.incarnation != upload.life.incarnation or life.generation == upload.life.generation:
            raise NotFound(upload.life.session_id, "session")
        upload.life = life
        return True

    async def _name(self, upload: _Upload, path: str, media_type: str, stands: Stored | None) -> Record:
        """Put the manifest over the record at its path."""
        patience, digest = RetryDeadline(self._placement, path), upload.hash.hexdigest()
        while True:
            manifest = self._manifest(upload, path, media_type, digest, stands)
            outcome = await self._at_its_place(manifest, stands)
            if outcome.applied:
                return manifest
            if isinstance(outcome.stored, Record) and outcome.stored.fields.get("upload") == upload.name:
                return outcome.stored
            if (made := _find_made(outcome.stored, path, upload.request)) is not None:
                await self._give_up(upload.life.tenant, upload.name)
                return made
            if outcome.stored is None and await self._is_of_before(upload, outcome):
                continue
            await patience.wait()
            stands = await self._fetch_readable(upload.key)
            if isinstance(stands, Record | Tombstone) and any(
                owed.id == f"{DROP}:{upload.name}" for owed in stands.owed
            ):
                return manifest  # it was put, its answer was lost, and others have replaced it since
            wanted = self._id_over(upload.life, stands, upload.artifact_id)
            try:
                upload.reservation = await self._reservations.renew(upload.reservation, wanted)
            except ReservationLapsed:
                if await self._reservations.was_referenced(upload.life.tenant, upload.name):
                    return manifest  # others have replaced or deleted it by now
                raise
            if upload.artifact_id is not None and (there := _record_or_tombstone(stands)):
                await self._give_up(upload.life.tenant, upload.name)
                raise PathOccupied(there)

    def _id_over(self, life: SessionIncarnation, stands: Stored | None, given: str | None) -> str:
        """Return the id of an artifact that is put over this record.

        It keeps the record's id. Otherwise it gets the given id, or a new one.
        """
        if isinstance(stands, Record):
            return str(stands.fields["artifact_id"])
        return given or self._placement.new_id(life.tenant, life.scope)

    async def _at_its_place(self, manifest: Record, stands: Stored | None) -> Outcome:
        """Put the manifest, and once more if the store did not answer."""
        version = getattr(stands, "version", 0)
        put = Put(MANIFESTS, manifest, AtVersion(version) if version else Absent())
        try:
            return await self._placement.write_one("artifacts.name", self._store, put)
        except StoreUnavailable:
            return await self._placement.write_one("artifacts.name", self._store, put)

    def _manifest(
        self, upload: _Upload, path: str, media_type: str, digest: str, stands: Stored | None
    ) -> Record:
        life, now, before = upload.life, self._placement.now(), stands if isinstance(stands, Record) else None
        fields: dict[str, FieldValue] = {
            "artifact_id": upload.reservation.fields["artifact_id"],
            "incarnation": life.incarnation,
            "upload": upload.name,
            "size": upload.size,
            "number": None if before is None else before.fields.get("number"),
        }
        body: dict[str, JsonValue] = {
            "path": path,
            "media_type": media_type,
            "sha256": digest,
            "chunks": upload.chunks,
            **({} if upload.writer is None else {WRITTEN_BY: upload.writer}),
        }
        if isinstance(stands, Tombstone) and NEVER_STOOD not in stands.note:
            body[CREATED_OVER] = stands.version
            body |= {DELETED_BY: stands.note[REQUEST]} if REQUEST in stands.note else {}
        elif before is not None:
            body |= {name: before.body[name] for name in (CREATED_OVER, DELETED_BY) if name in before.body}
        owed = stands.owed if isinstance(stands, Record | Tombstone) else ()
        manifest = Record(
            key=upload.key,
            scope=life.scope,
            version=life.version_at(now, getattr(stands, "version", 0)),
            created_at=now if before is None else before.created_at,
            updated_at=now,
            fields=fields,
            body=body,
            generation=life.generation,
            tier="mid",
            owed=owed if before is None else (*owed, _to_drop(before)),
        )
        return with_marks(manifest, before, upload.request)

    async def _hold(self, upload: _Upload, manifest: Record) -> None:
        """Hold the upload of a stored manifest. A sweep does that too."""
        try:
            await self._reservations.hold(
                upload.reservation, upload.size, str(manifest.fields["artifact_id"])
            )
        except ReservationLapsed:  # a sweep held it, or it was deleted since
            await self._refuse_if_session_ended(upload)
        except StoreError as error:
            log.info(
                "a sweep will confirm the upload of artifact %s: %s", manifest.fields["artifact_id"], error
            )

    async def _refuse_if_session_ended(self, upload: _Upload | None) -> None:
        """Raise `NotFound` if an upload was cancelled because its session ended."""
        if upload is not None:
            life = life_of(await self._sessions.record(upload.life.tenant, upload.life.session_id))
            if life.incarnation != upload.life.incarnation:
                raise NotFound(life.session_id, "session")

    # -- what becomes of uploads -------------------------------------------------------

    async def _give_up(self, tenant: str, name: str) -> None:
        """Cancel the upload of a failed writer.

        A sweep deletes the rest of what cannot be deleted now.
        """
        try:
            there = await self._reservations.find(tenant, name)
            if there is not None:
                await self._drop_given_up(there)
        except StoreError as error:
            log.info("a sweep will delete a cancelled upload of an artifact: %s", error)

    async def _drop_given_up(self, reservation: Record) -> None:
        """Cancel an upload that still has this version, and delete its chunks."""
        scope, upload = scope_of(str(reservation.fields["session_id"])), str(reservation.fields["upload"])
        chunks = {"scope": scope, "upload": upload, "bytes": bytes_of(reservation)}
        await self._reservations.give_up(reservation, PendingStep(DROP_CHUNKS, DROP_CHUNKS, chunks))

    async def _look_noted(self, reservation: Record, store: Store, owed: PendingStep) -> bool:
        """Finish the upload of a writer that died, or wait for a slow one."""
        key = Key(reservation.key.tenant, str(reservation.fields["manifest"]))
        manifest = await self._fetch_stored(key)
        if isinstance(manifest, Record) and manifest.fields.get("upload") == reservation.fields["upload"]:
            await self._reservations.see(key.tenant, [str(reservation.fields["upload"])])
            with suppress(ReservationLapsed):  # another was first
                await self._reservations.hold(
                    reservation, int(str(manifest.fields["size"])), str(manifest.fields["artifact_id"])
                )
            return True
        lapsed = self._placement.now() - reservation.updated_at > self._placement.settings.mark_life
        if lapsed and not isinstance(manifest, Corrupt) and await self._shut_out(key, manifest):
            await self._drop_given_up(reservation)
            return True
        return False

    async def _shut_out(self, key: Key, stands: Stored | None) -> bool:
        """Make every writer that saw this record look again before its put.

        False if another process has changed it since. The record's content does not
        change. If there is no record, a tombstone is put that is older than any
        manifest, so it replaces none.
        """
        version, until = (
            self._placement.next_version(getattr(stands, "version", 0)),
            self._placement.tombstone_until(),
        )
        write: Put | Delete
        if isinstance(stands, Record):
            write = Put(MANIFESTS, replace(stands, version=version), AtVersion(stands.version))
        elif isinstance(stands, Tombstone):
            write = Delete(
                MANIFESTS,
                key,
                version,
                AtVersion(stands.version),
                stands.owed,
                stands.note,
                None if stands.owed else until,
            )
        else:
            write = Delete(MANIFESTS, key, 1, Newer(), note={NEVER_STOOD: True}, discard_at=until)
        return (await self._placement.write_one("artifacts.shut_out", self._store, write)).applied

    async def _drop_noted(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        """Delete the chunks of an upload that was named, then return their room."""
        tenant, said = pending.owner.key.tenant, owed.data
        await self._delete_chunks(pending.store, tenant, said["scope"], said["upload"], said["bytes"])
        await self._reservations.give_back(tenant, said["upload"], stood=True)
        return True

    async def _clear_noted(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        await self._on_gone(pending.owner.key.tenant, owed.data["artifact"])
        return True

    async def _drop_chunks_noted(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        said = owed.data
        await self._delete_chunks(
            pending.store, pending.owner.key.tenant, said["scope"], said["upload"], said["bytes"]
        )
        return True

    async def _delete_chunks(self, store: Store, tenant: str, scope: str, upload: str, size: int) -> None:
        keys = [
            Key(tenant, _chunk_id(tenant, scope, upload, number)) for number in range(-(-size // CHUNK_BYTES))
        ]
        for start in range(0, len(keys), DELETED_AT_ONCE):
            await delete_chunks(self._placement, store, keys[start : start + DELETED_AT_ONCE])

    async def _gone_with(self, partition: Partition, generation: int) -> None:
        """Return the room of a deleted session's lives before this generation."""
        kind, _, session_id = partition.scope.partition(":")
        if kind == CONVERSATION:
            found = await self._reservations.of_session(partition, session_id, generation)
            for start in range(0, len(found), ASKED_AT_ONCE):
                portion = found[start : start + ASKED_AT_ONCE]
                for reservation in portion:
                    if reservation.fields.get("artifact_id") is not None:
                        await self._on_gone(partition.tenant, str(reservation.fields["artifact_id"]))
                await self._reservations.give_all_back(
                    partition.tenant, [str(reservation.fields["upload"]) for reservation in portion]
                )

    # -- reading -----------------------------------------------------------------------

    async def get(self, tenant: str, artifact_id: str) -> Record | None:
        """Return the manifest of the artifact of this id, or None."""
        if not ids.is_id(artifact_id):
            return None
        query = Query(MANIFESTS, Tenant(tenant), Eq("artifact_id", artifact_id), limit=2)
        page = await self._placement.page("artifacts.find", self._store, query)
        for record in await self._filter_live(tenant, page.records):
            return record
        for key in page.corrupt:
            raise CorruptRecord(self._store.name, key.id, "a manifest")
        return None

    async def existing_ids(self, tenant: str, artifact_ids: Sequence[str]) -> set[str]:
        """Return those of these ids that have an artifact."""
        named = [one for one in artifact_ids if ids.is_id(one)]
        return {
            str(row.fields["artifact_id"]) for row in await self.find_manifests(tenant, "artifact_id", named)
        }

    async def find_manifests(
        self, tenant: str, field: Literal["artifact_id", "number"], values: Sequence[str] | Sequence[int]
    ) -> list[Record]:
        """Return the manifests with these ids or numbers (see `short_ids.py`).

        Manifests that cannot be read are left out.
        """
        found = list[Stored]()
        for start in range(0, len(values), ASKED_AT_ONCE):
            asked = In(field, tuple(values[start : start + ASKED_AT_ONCE]))
            query = Query(MANIFESTS, Tenant(tenant), asked, limit=self._placement.settings.page)
            found += [
                row
                async for page in self._placement.pages("artifacts.find", self._store, query)
                for row in page.records
            ]
        return await self._filter_live(tenant, found)

    async def at(self, tenant: str, session_id: str, path: str) -> Record | None:
        """Return the manifest at this path of a session.

        None if there is none, or no such session.
        """
        try:
            life = life_of(await self._sessions.record(tenant, session_id))
        except NotFound:
            return None
        there = await self._fetch_readable(_key(life, path))
        return there if isinstance(there, Record) else None

    async def was_deleted_by(self, tenant: str, session_id: str, path: str, request: RequestMark) -> bool:
        """Return whether an earlier attempt of the request deleted the artifact."""
        try:
            life = life_of(await self._sessions.record(tenant, session_id))
        except NotFound:
            return False
        there = await self._fetch_readable(_key(life, path))
        if isinstance(there, Record):
            return there.body.get(DELETED_BY) == request.text
        return isinstance(there, Tombstone) and there.note.get(REQUEST) == request.text

    async def _filter_live(self, tenant: str, rows: Iterable[Stored]) -> list[Record]:
        """Return the manifests whose session's life is still current."""
        found = [row for row in rows if isinstance(row, Record)]
        lives = await self._sessions.lives(tenant, {session_of(row.scope) for row in found})
        return [row for row in found if lives.get(session_of(row.scope)) == row.fields["incarnation"]]

    async def list(self, tenant: str, session_id: str, limit: int, cursor: str | None) -> ArtifactPage:
        """Return a page of a session's artifacts, in the order of their first put.

        Raises `NotFound` if there is no such session.
        """
        life = life_of(await self._sessions.record(tenant, session_id))
        asked = Eq("incarnation", life.incarnation)
        query = Query(MANIFESTS, within(life.partition), asked, (Order("created_at"),), limit, cursor=cursor)
        page = await self._placement.page("artifacts.list", self._store, query)
        return ArtifactPage(
            [artifact_of(row) for row in page.records if isinstance(row, Record)], page.cursor
        )

    async def stream(self, manifest: Record) -> AsyncIterator[bytes]:
        """Yield the bytes of an artifact in order, at most 1 MiB at a time.

        Raises:
            Conflict: the artifact was replaced meanwhile.
            NotFound: the artifact was deleted meanwhile.
            CorruptRecord: some bytes are damaged or missing.
        """
        digest, size = hashlib.sha256(), 0
        portion = await self._portion(manifest, 0)
        for start in range(PORTION, int(manifest.body["chunks"]) + PORTION, PORTION):
            ahead, _ = await both_at_once(
                self._portion(manifest, start), asyncio.to_thread(_update, digest, portion)
            )
            for data in portion:
                size += len(data)
                yield data
            portion = ahead
        if digest.hexdigest() != manifest.body["sha256"] or size != manifest.fields["size"]:
            raise CorruptRecord(
                self._store.name,
                str(manifest.fields["artifact_id"]),
                "its bytes differ from those that were stored",
            )

    async def stream_part(self, manifest: Record, start: int, end: int) -> AsyncIterator[bytes]:
        """Yield the bytes from one place to another; only their chunks are read.

        Raises:
            Exception: As `stream`. The bytes are not compared with the digest of all.
        """
        last = -(-end // CHUNK_BYTES)
        for first in range(start // CHUNK_BYTES, last, PORTION):
            for number, data in enumerate(await self._portion(manifest, first, last), first):
                at = number * CHUNK_BYTES
                yield data[max(start - at, 0) : end - at]

    async def _portion(self, manifest: Record, start: int, last: int | None = None) -> Sequence[bytes]:
        """Return up to `PORTION` chunks from this number on; none from `last` on."""
        tenant, scope, upload = manifest.key.tenant, manifest.scope, str(manifest.fields["upload"])
        numbers = range(start, min(start + PORTION, int(manifest.body["chunks"]) if last is None else last))
        keys = [Key(tenant, _chunk_id(tenant, scope, upload, number)) for number in numbers]
        rows = await self._placement.read("artifacts.read", self._store, ARTIFACTS, keys)
        portion = [
            data
            for row in rows
            if isinstance(row, Record) and isinstance(data := row.fields.get("data"), bytes)
        ]
        if len(portion) < len(numbers):
            raise await self._why_not_whole(manifest)
        return portion

    async def _why_not_whole(self, manifest: Record) -> Exception:
        artifact_id = str(manifest.fields["artifact_id"])
        now = await self.get(manifest.key.tenant, artifact_id)
        if now is None:
            return NotFound(artifact_id, "artifact")
        if now.fields["upload"] != manifest.fields["upload"]:
            return Conflict("the artifact was replaced while it was read. Read it again", artifact_id)
        return CorruptRecord(self._store.name, artifact_id, "some of its bytes are missing or damaged")

    async def _fetch_stored(self, key: Key) -> Stored | None:
        return await self._placement.read_one("artifacts.read", self._store, MANIFESTS, key)

    async def _fetch_readable(self, key: Key) -> Stored | None:
        there = await self._fetch_stored(key)
        raise_if_corrupt(self._store, there)
        return there

    # -- deleting ----------------------------------------------------------------------

    async def delete(self, tenant: str, artifact_id: str, request: RequestMark | None = None) -> bool:
        """Delete an artifact; false if there is none.

        Raises `LegalHoldActive` if its session is under legal hold.
        """
        patience = RetryDeadline(self._placement, artifact_id)
        while True:
            manifest = await self.get(tenant, artifact_id)
            if manifest is None:
                return False
            await self._holds.refuse_partition(manifest.partition, whole=False)
            gone = self._deletion(manifest)
            if request is not None:
                gone = replace(gone, note={**gone.note, REQUEST: request.text})
            outcome = await self._placement.write_one("artifacts.delete", self._store, gone)
            if outcome.applied:
                await self._outbox.finish(
                    OutboxRecord(MANIFESTS, self._store, Tombstone(manifest.key, gone.version, gone.owed))
                )
                return True
            raise_if_rejected(self._store, outcome)
            await patience.wait()

    def _deletion(self, manifest: Record) -> Delete:
        artifact_id = str(manifest.fields["artifact_id"])
        owed = (
            *manifest.owed,
            PendingStep(f"{CLEAR}:{artifact_id}", CLEAR, {"artifact": artifact_id}),
            _to_drop(manifest),
        )
        return Delete(
            MANIFESTS,
            manifest.key,
            self._placement.next_version(manifest.version),
            AtVersion(manifest.version),
            owed=owed,
        )


def _key(life: SessionIncarnation, path: str) -> Key:
    """Return the key of a path's manifest in this life of the session."""
    return Key(life.tenant, ids.derived_id(life.tenant, life.scope, "artifact", life.incarnation, path))


def _record_or_tombstone(stands: Stored | None) -> Record | Tombstone | None:
    """Return the record at a path, or the tombstone of a deleted one."""
    if isinstance(stands, Record) or (isinstance(stands, Tombstone) and NEVER_STOOD not in stands.note):
        return stands
    return None


def _find_made(stands: Stored | None, path: str, request: RequestMark | None) -> Record | None:
    """Return the manifest if the request has put it before.

    Raises `DeletedSince` if it may have been deleted since.
    """
    if request is None:
        return None
    gone: Any = getattr(_record_or_tombstone(stands), "version", 0)
    if isinstance(stands, Record):
        if was_made_by(stands, request):
            return stands
        gone = stands.body.get(CREATED_OVER, 0)
    if request.may_have_made(gone):
        raise deleted_since(f"artifact {path!r}")
    return None


def _chunk_id(tenant: str, scope: str, upload: str, number: int) -> str:
    return ids.derived_id(tenant, scope, "chunk", upload, str(number))


def _to_drop(manifest: Record) -> PendingStep:
    upload = str(manifest.fields["upload"])
    return PendingStep(
        f"{DROP}:{upload}",
        DROP,
        {"scope": manifest.scope, "upload": upload, "bytes": manifest.fields["size"]},
    )


def _update(digest: Any, portion: Sequence[bytes]) -> None:
    for data in portion:
        digest.update(data)


async def _portions(data: AsyncIterator[bytes]) -> AsyncGenerator[list[bytes], None]:
    """Yield the bytes as lists of chunks; all but the last chunk have the full size."""
    buffer, filled = memoryview(bytearray(PORTION * CHUNK_BYTES)), 0
    async for piece in data:
        view = memoryview(piece)
        while view:
            taken, view = view[: len(buffer) - filled], view[len(buffer) - filled :]
            buffer[filled : filled + len(taken)] = taken
            filled += len(taken)
            if filled == len(buffer):
                yield _cut(buffer)
                filled = 0
    if filled:
        yield _cut(buffer[:filled])


def _cut(portion: memoryview) -> list[bytes]:
    return [bytes(portion[start : start + CHUNK_BYTES]) for start in range(0, len(portion), CHUNK_BYTES)]


def artifact_of(manifest: Record) -> Artifact:
    said: Any = {**manifest.body, **manifest.fields}
    return Artifact(
        id=said["artifact_id"],
        session_id=session_of(manifest.scope),
        path=said["path"],
        media_type=said["media_type"],
        size=said["size"],
        sha256=said["sha256"],
        created_at=manifest.created_at,
        updated_at=manifest.updated_at,
        written_by=said.get(WRITTEN_BY),
    )
