"""The large texts of messages in the store: chunks that lie in the session's partition, put before the row that names them.

An upload is what one write stores of them. Its own record, put first, owes the look whether a row names it. The writer deletes that record behind its
row, which holds the chunks; a sweep does the same where the writer died, or gives the upload up where no row has come within `mark_life`. Both delete
it at its version, so one of them is first, and a writer that slept through that learns it before it acknowledges anything: it stores them once more.

What a row names no more, because its message was changed or erased, that row owes to drop.

So, whoever dies: every chunk that a row names is there, and every chunk is named by a row of its session or by an upload under way, or owed to be
dropped. A row may name chunks that are gone only where its writer slept for longer than `mark_life`, and then died before it acknowledged that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime

from memory.domain.errors import MemoryTiersError, StoreError
from memory.domain.message import Message
from memory.domain.time import moment
from memory.orchestrator.collections import ARTIFACTS, MESSAGES
from memory.orchestrator.conversations.artifacts import (
    Artifact,
    Artifacts,
    Chunk,
    chunk_key,
    chunks_of,
    digest_of,
    encoded,
    large_texts,
    upload_key,
    uploads_of,
)
from memory.orchestrator.conversations.life import Life
from memory.orchestrator.outbox import Outbox, Pending
from memory.orchestrator.placement import Placement, refused
from memory.orchestrator.steps import step
from memory.orchestrator.versions import version_at
from memory.ports.pace import paced
from memory.ports.query import And, Eq, Has, Query, within
from memory.ports.record import FieldValue, JsonValue, Key, Owed, Record, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Delete, Newer, Put, Status

log = logging.getLogger(__name__)

UPLOAD, DROP = "upload", "drop"
"""The steps that decide what becomes of an upload, and that delete chunks which are named no more."""
HELD = "held"
"""In the note of the tombstone of an upload: a row names it."""
BYTES_AT_ONCE = 2 * 2**20
"""Of chunks that are put in one call."""
READ_AT_ONCE = 16
"""Chunks that are read in one call."""


class Overtaken(MemoryTiersError):
    """The session's generation was raised since its life was read: see `Log.renew`."""


class Uploads:
    """Stores, reads and drops the large texts of messages."""

    def __init__(self, placement: Placement, outbox: Outbox) -> None:
        self._placement = placement
        self._outbox = outbox
        outbox.register(UPLOAD, self._upload_noted)
        outbox.register(DROP, self._drop_noted)

    @property
    def _store(self) -> Store:
        return self._placement.topology.archive

    # -- storing ------------------------------------------------------------------------------------------------------

    async def lay(self, life: Life, messages: Sequence[tuple[Message, Artifacts]]) -> list[Artifacts]:
        """Store the large texts of messages, each with those that the row which is to be replaced names: what of them is there is not put again.

        Raises `Overtaken` where the session was erased, or only its generation raised.
        """
        now = self._placement.now()
        cut = [await self._cut(version_at(now), *one) for one in messages]
        uploads = [(upload, self._upload(life, upload, list(fresh), now)) for _, upload, fresh in cut if fresh]
        if not uploads:
            return [artifacts for artifacts, _, _ in cut]
        portions: list[list[Put]] = [[Put(ARTIFACTS, record, Absent()) for _, record in uploads]]
        room = BYTES_AT_ONCE if self._store.capabilities.atomic else 0  # elsewhere a call that is cut off may leave the last of its writes alone
        for _, _, fresh in cut:
            for chunk, data in fresh.items():
                if room < len(data):
                    portions.append([])
                    room = BYTES_AT_ONCE
                portions[-1].append(Put(ARTIFACTS, self._chunk(life, chunk, data, now), Absent()))
                room -= len(data)
        for portion in portions:
            await self._put(portion)
        return [artifacts for artifacts, _, _ in cut]

    async def _cut(self, version: int, message: Message, before: Artifacts) -> tuple[Artifacts, str, dict[Chunk, bytes]]:
        """The large texts of a message, the name of its upload, and what of them is not there yet."""
        there = {chunk.digest: chunk for chunk in chunks_of(before)}
        upload = f"{version}-{self._placement.nonce()}"
        artifacts, fresh = list[Artifact](), dict[Chunk, bytes]()
        for path, text in large_texts(message):
            chunks, size = list[Chunk](), 0
            async for data in paced(encoded(text)):
                digest = digest_of(data)
                chunk = there.get(digest) or Chunk(upload, digest)
                if chunk.upload == upload:
                    fresh[chunk] = data
                chunks.append(chunk)
                size += len(data)
            artifacts.append(Artifact(path, size, tuple(chunks)))
        return tuple(artifacts), upload, fresh

    def _upload(self, life: Life, upload: str, chunks: Sequence[Chunk], now: datetime) -> Record:
        owed = Owed(UPLOAD, UPLOAD, {"ids": ids_of(life, chunks)})
        return self._record(life, upload_key(life.tenant, life.scope, upload), upload, now, owed=(owed,))

    def _chunk(self, life: Life, chunk: Chunk, data: bytes, now: datetime) -> Record:
        return self._record(life, chunk_key(life.tenant, life.scope, chunk), chunk.upload, now, {"digest": chunk.digest, "data": data})

    def _record(
        self, life: Life, key: Key, upload: str, now: datetime, said: dict[str, FieldValue] | None = None, owed: tuple[Owed, ...] = ()
    ) -> Record:
        fields: dict[str, FieldValue] = {"conversation_id": life.session_id, "upload": upload, **(said or {})}
        return Record(key, life.scope, _version_of(upload), now, now, fields=fields, generation=life.generation, tier="mid", owed=owed)

    async def _put(self, puts: Sequence[Put]) -> None:
        outcomes = await self._placement.write("artifacts.put", self._store, *puts)
        for outcome in outcomes:
            if outcome.applied or (outcome.status is Status.CONFLICT and isinstance(outcome.stored, Record)):  # a driver's second attempt
                continue
            if (error := refused(self._store, outcome)) is not None:
                raise error
            if outcome.status is Status.REJECTED:
                raise Overtaken("the session has another generation")
            raise StoreError(self._store.name, "has something else where a large text belongs")

    # -- what becomes of an upload ------------------------------------------------------------------------------------

    async def hold(self, life: Life, uploads: Iterable[str]) -> bool:
        """The row that names these uploads stands: they are under way no more. False where a sweep had given one of them up.

        A sweep holds them too: that the store does not answer here is no reason not to acknowledge the row, unless it may have been too late.
        """
        names = list(uploads)
        if not names:
            return True
        try:
            deletes = [self._held(upload_key(life.tenant, life.scope, name), _version_of(name)) for name in names]
            outcomes = await self._placement.write("artifacts.hold", self._store, *deletes)
        except StoreError as error:
            if self._placement.now() - min(moment(_version_of(name)) for name in names) > self._placement.settings.mark_life / 2:
                raise
            log.info("a sweep will see that the large texts of session %s are held: %s", life.session_id, error)
            return True
        return all(outcome.applied or (isinstance(outcome.stored, Tombstone) and HELD in outcome.stored.note) for outcome in outcomes)

    def _held(self, key: Key, version: int) -> Delete:
        until, settles = self._placement.tombstone_until(), frozenset({UPLOAD})
        over = self._placement.next_version(version)
        return Delete(ARTIFACTS, key, over, AtVersion(version), note={HELD: True}, discard_at=until, settles=settles)

    async def give_up(self, life: Life, artifacts: Artifacts, kept: Artifacts = ()) -> None:
        """No row will come to name what these have beyond those that are kept. What cannot be dropped now a sweep drops."""
        for upload in set(uploads_of(artifacts)) - set(uploads_of(kept)):
            chunks = [chunk for chunk in chunks_of(artifacts) if chunk.upload == upload]
            record = self._upload(life, upload, chunks, self._placement.now())
            try:
                if not await self._is_named(self._store, record):  # it is where a driver sent the row twice, and met itself
                    await self._give_up(self._store, record.key, record.version, ids_of(life, chunks))
            except StoreError as error:
                log.info("a sweep will drop what was to be said in session %s: %s", life.session_id, error)

    async def _give_up(self, store: Store, key: Key, version: int, chunks: JsonValue) -> None:
        over, owed = self._placement.next_version(version), (Owed(DROP, DROP, {"ids": chunks}),)
        gone = Delete(ARTIFACTS, key, over, AtVersion(version), owed=owed, settles=frozenset({UPLOAD}))
        outcome = await self._placement.write_one("artifacts.give_up", store, gone)
        if (error := refused(store, outcome)) is not None:
            raise error
        if outcome.applied:
            await self._outbox.finish(Pending(ARTIFACTS, store, Tombstone(key, over, owed)))

    async def _upload_noted(self, pending: Pending, owed: Owed) -> bool:
        """What a writer that died, or is slow, has left."""
        upload = pending.owner
        if not isinstance(upload, Record):
            return True
        if await self._is_named(pending.store, upload):
            await self._placement.write_one("artifacts.hold", pending.store, self._held(upload.key, upload.version))
        elif self._placement.now() - upload.updated_at > self._placement.settings.mark_life:
            await self._give_up(pending.store, upload.key, upload.version, owed.data["ids"])
        else:
            return False
        return True

    async def _is_named(self, store: Store, upload: Record) -> bool:
        asked = And((Eq("conversation_id", upload.fields["conversation_id"]), Has("uploads", str(upload.fields["upload"]))))
        query = Query(MESSAGES, within(upload.partition), asked, limit=1, select=frozenset())
        return bool((await self._placement.page("artifacts.find", store, query)).heads)

    # -- dropping -----------------------------------------------------------------------------------------------------

    async def drop(self, store: Store, row: Record) -> tuple[Owed, ...]:
        """Drop what a row owes to drop, and nothing else that it owes; what could not be done."""
        return await self._outbox.finish(Pending(MESSAGES, store, row))

    async def _drop_noted(self, pending: Pending, owed: Owed) -> bool:
        await delete_chunks(self._placement, pending.store, [Key(pending.owner.key.tenant, one) for one in owed.data["ids"]])
        return True

    # -- reading ------------------------------------------------------------------------------------------------------

    async def texts(self, life: Life, artifacts: Iterable[Artifact]) -> dict[Chunk, str]:
        """What the chunks of these say: those that are there and say what they said when they were stored."""
        wanted, found = chunks_of(artifacts), dict[Chunk, str]()
        for start in range(0, len(wanted), READ_AT_ONCE):
            some = wanted[start : start + READ_AT_ONCE]
            with step("artifacts.read"):
                rows = await self._store.get(ARTIFACTS, [chunk_key(life.tenant, life.scope, chunk) for chunk in some])
            async for chunk, row in paced(zip(some, rows, strict=True)):
                data = row.fields.get("data") if isinstance(row, Record) else None
                if isinstance(data, bytes) and digest_of(data) == chunk.digest:
                    found[chunk] = data.decode()
        return found


async def delete_chunks(placement: Placement, store: Store, keys: Sequence[Key]) -> None:
    """Delete chunks. Tombstones are left also where none stand, so that one that comes late is refused."""
    until = placement.tombstone_until()
    deletes = [Delete(ARTIFACTS, key, placement.next_version(), Newer(), discard_at=until) for key in keys]
    while deletes:
        outcomes = await placement.write("artifacts.drop", store, *deletes)
        ahead: list[Delete] = []
        for delete, outcome in zip(deletes, outcomes, strict=True):
            if (error := refused(store, outcome)) is not None:
                raise error
            if isinstance(outcome.stored, Record):  # by the clock of its writer it is not older
                there = outcome.stored.version
                ahead.append(Delete(ARTIFACTS, delete.key, placement.next_version(there), AtVersion(there), discard_at=until))
        deletes = ahead


def ids_of(life: Life, chunks: Iterable[Chunk]) -> list[JsonValue]:
    return [chunk_key(life.tenant, life.scope, chunk).id for chunk in chunks]


def _version_of(upload: str) -> int:
    """The version of an upload's records, which its name begins with: the moment when it began."""
    return int(upload.partition("-")[0])
