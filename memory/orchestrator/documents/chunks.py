"""The chunks of documents that are too large for one record.

A writer stores the chunks first, under the name of an upload, and then the document
that names it. So a document never names chunks that were not stored.

Each chunk has a pending step that looks for its document. The writer removes it once
the document is stored; a sweep does so if the writer died. If no document names the
upload within `mark_life`, the sweep deletes the chunk. A writer that took longer than
half of that time stores no document.

The step of a document that is replaced or deleted deletes the chunks of its upload
alone: the chunks of other uploads may be of a put that is under way. The sweep of an
expired document, and the deletion of a damaged one, may take these too. So a writer
stores missing chunks again before it acknowledges the document. The document has the
generation of its chunks, so an erasure takes both or refuses the document. Then the
writer starts again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from memory.domain import ids
from memory.domain.errors import CorruptRecord, StoreError, StoreUnavailable
from memory.orchestrator.storage.collections import DOCUMENT_CHUNKS, DOCUMENTS
from memory.orchestrator.storage.outbox import Outbox, OutboxRecord, StepLifetime
from memory.orchestrator.storage.placement import Placement, rejection_error
from memory.orchestrator.storage.steps import step
from memory.orchestrator.storage.versions import version_at
from memory.ports.query import Eq, Head, Query, within
from memory.ports.record import Key, Partition, PendingStep, Record, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Absent, Annotate, AtVersion, Outcome, Put, Write

CHUNK_BYTES = 2**20
"""Bytes in one record. Every store takes as many."""
BYTES_AT_ONCE = 4 * 2**20
LOOK_FOR_DOCUMENT, DROP_CHUNKS = "document.look", "document.drop"
"""Two steps. The first deletes a chunk if its document is missing. The second deletes
the chunks of an earlier upload of a document.
"""
_PORTION = BYTES_AT_ONCE // CHUNK_BYTES


@dataclass(frozen=True, slots=True)
class Upload:
    """Stored chunks without a document yet."""

    name: str
    version: int
    generation: int
    begun: datetime
    chunks: tuple[Record, ...]


class Chunks:
    """Stores, reads and deletes the chunks of documents."""

    def __init__(self, placement: Placement, outbox: Outbox) -> None:
        self._placement = placement
        outbox.register(LOOK_FOR_DOCUMENT, self._look_for_document, StepLifetime.DELETED)
        outbox.register(DROP_CHUNKS, self._drop_noted)

    def _home(self, tenant: str, scope: str) -> Store:
        return self._placement.topology.documents.of(Partition(tenant, scope))

    # -- writing -----------------------------------------------------------------------

    async def store(self, key: Key, scope: str, data: bytes) -> Upload:
        """Store data as chunks of the document with this key."""
        now, partition = self._placement.now(), Partition(key.tenant, scope)
        name, version = self._placement.nonce(), version_at(now)
        home, tier = self._home(key.tenant, scope), self._placement.topology.documents.tier(partition)
        chunks = tuple(
            Record(
                key=_chunk_key(key, name, number),
                scope=scope,
                version=version,
                created_at=now,
                updated_at=now,
                fields={
                    "document_id": key.id,
                    "upload": name,
                    "place": number,
                    "data": data[start : start + CHUNK_BYTES],
                },
                tier=tier,
                owed=(PendingStep(LOOK_FOR_DOCUMENT, LOOK_FOR_DOCUMENT),),
            )
            for number, start in enumerate(range(0, len(data), CHUNK_BYTES))
        )
        generation: int | None = None
        for portion in _portions(chunks):
            stamped = [replace(chunk, generation=generation) for chunk in portion]
            outcomes = await self._write(
                "document.chunk", home, [Put(DOCUMENT_CHUNKS, chunk, Absent()) for chunk in stamped]
            )
            if generation is None:
                generation = min(map(_generation_of, outcomes))
        return Upload(
            name,
            version,
            generation or 0,
            now,
            tuple(replace(chunk, generation=generation) for chunk in chunks),
        )

    def check_age(self, upload: Upload, home: Store) -> None:
        """Raise if a sweep may soon take the chunks for those of a dead writer.

        Raises:
            StoreUnavailable: Too much time has passed since the upload began.
        """
        if self._placement.now() - upload.begun > self._placement.settings.mark_life / 2:
            raise StoreUnavailable(
                home.name, "the document took too long to store; nothing was changed. Put it again"
            )

    async def confirm(self, upload: Upload, document: Record) -> None:
        """Remove the pending steps of the chunks of a stored document.

        Chunks that were deleted meanwhile are stored again, and so are chunks that are
        older than the document: an erasure could take them and spare the document.
        """
        home = self._home(document.key.tenant, document.scope)
        for portion in _portions(upload.chunks):
            if document.version == upload.version:
                writes: list[Write] = [
                    Annotate(DOCUMENT_CHUNKS, chunk.key, at=chunk.version, settle=(LOOK_FOR_DOCUMENT,))
                    for chunk in portion
                ]
            else:
                settles = frozenset({LOOK_FOR_DOCUMENT})
                writes = [
                    Put(
                        DOCUMENT_CHUNKS,
                        replace(chunk, version=document.version, owed=()),
                        AtVersion(chunk.version),  # a late call brings no deleted chunk back
                        settles=settles,
                    )
                    for chunk in portion
                ]
            outcomes = await self._placement.write("document.confirm", home, *writes)
            for chunk, outcome in zip(portion, outcomes, strict=True):
                if not outcome.applied:
                    await self._restore(chunk, document, home, outcome.version or 0, outcome.stored)

    async def _restore(
        self, chunk: Record, document: Record, home: Store, version: int, stored: object
    ) -> None:
        """Store a deleted chunk again while its document is stored."""
        with step("document.read"):
            (there,) = await home.get(DOCUMENTS, [document.key])
        if not isinstance(there, Record) or there.fields.get("upload") != chunk.fields["upload"]:
            return
        again = replace(chunk, version=max(version + 1, document.version))
        if isinstance(stored, Tombstone):
            await self._write(
                "document.chunk", home, [Put(DOCUMENT_CHUNKS, again, AtVersion(stored.version))]
            )
        elif stored is None:
            await self._write("document.chunk", home, [Put(DOCUMENT_CHUNKS, again, Absent())])

    async def copy(self, document: Record, source: Store, target: Store) -> Upload | None:
        """Store the chunks of a document of one store in another; None if it has none.

        Raises:
            StoreUnavailable: A chunk is missing.
        """
        if document.fields.get("upload") is None:
            return None
        now, chunks = self._placement.now(), list[Record]()
        keys = chunk_keys(document)
        for start in range(0, len(keys), _PORTION):
            rows = await self._placement.read(
                "document.read", source, DOCUMENT_CHUNKS, keys[start : start + _PORTION]
            )
            read = [
                replace(
                    row,
                    version=document.version,
                    created_at=now,
                    tier=document.tier,
                    generation=document.generation,
                    owed=(PendingStep(LOOK_FOR_DOCUMENT, LOOK_FOR_DOCUMENT),),
                )
                for row in rows
                if isinstance(row, Record)
            ]
            if len(read) < len(rows):
                raise StoreUnavailable(source.name, "a chunk of the document is missing, or is replaced now")
            await self._write(
                "document.chunk", target, [Put(DOCUMENT_CHUNKS, chunk, Absent()) for chunk in read]
            )
            chunks += read
        name, generation = str(document.fields["upload"]), document.generation or 0
        return Upload(name, document.version, generation, now, tuple(chunks))

    async def take_back(self, key: Key, scope: str, upload: Upload) -> None:
        """Delete the chunks of an upload that gets no document.

        If that fails now, a sweep deletes them later.
        """
        try:
            await self._drop(self._home(key.tenant, scope), Partition(key.tenant, scope), upload.name)
        except StoreError:
            return

    async def _write(self, name: str, home: Store, writes: Sequence[Write]) -> Sequence[Outcome]:
        outcomes = await self._placement.write(name, home, *writes)
        for outcome in outcomes:
            if (error := rejection_error(home, outcome)) is not None:
                raise error
        return outcomes

    # -- reading -----------------------------------------------------------------------

    async def data(self, document: Record) -> bytes | None:
        """Return the data of a document; None if a chunk is missing.

        Raises:
            CorruptRecord: A chunk cannot be read.
        """
        home = self._home(document.key.tenant, document.scope)
        keys, data = chunk_keys(document), list[bytes]()
        for start in range(0, len(keys), _PORTION):
            with step("document.read"):
                rows = await home.get(DOCUMENT_CHUNKS, keys[start : start + _PORTION])
            for row in rows:
                if row is not None and not isinstance(row, Record | Tombstone):
                    raise CorruptRecord(home.name, document.key.id, "a chunk of it cannot be read")
                part = row.fields["data"] if isinstance(row, Record) else None
                if not isinstance(part, bytes):
                    return None
                data.append(part)
        return b"".join(data)

    async def is_lost(self, document: Record) -> bool:
        """Return whether a stored document has fewer chunks than it names."""
        home = self._home(document.key.tenant, document.scope)
        named = Query(DOCUMENT_CHUNKS, within(document.partition), Eq("upload", document.fields["upload"]))
        with step("document.read"):
            there = await home.count(named)
            if there.records >= int(str(document.fields["chunks"])):
                return False
            (now,) = await home.get(DOCUMENTS, [document.key])
        return isinstance(now, Record) and now.fields.get("upload") == document.fields["upload"]

    # -- deleting ----------------------------------------------------------------------

    async def _look_for_document(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        """Delete a chunk if its document has not come within `mark_life`."""
        chunk = pending.owner
        if not isinstance(chunk, Record):
            return True
        upload = str(chunk.fields["upload"])
        with step("document.read"):
            (there,) = await pending.store.get(
                DOCUMENTS, [Key(chunk.key.tenant, str(chunk.fields["document_id"]))]
            )
        if isinstance(there, Record) and there.fields.get("upload") == upload:
            return True
        if self._placement.now() - chunk.created_at <= self._placement.settings.mark_life:
            return False
        await self._drop(pending.store, chunk.partition, upload)
        return True

    async def _drop_noted(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        scope = str(owed.data["scope"])
        await self._drop(pending.store, Partition(pending.owner.key.tenant, scope), str(owed.data["upload"]))
        return True

    async def _drop(self, store: Store, partition: Partition, upload: str) -> None:
        await self._placement.delete_matching(
            "document.drop",
            store,
            Query(DOCUMENT_CHUNKS, within(partition), Eq("upload", upload)),
            self._placement.next_version(),
            frozenset(),
        )


def drop_step(document: Record | Head) -> tuple[PendingStep, ...]:
    """Return the step that deletes the chunks of a document that ends.

    It spares the chunks of other uploads, whose document may be about to be stored.
    """
    upload = document.fields.get("upload")
    if not isinstance(upload, str):
        return ()
    data = {"scope": document.scope, "upload": upload}
    return (PendingStep(f"{DROP_CHUNKS}:{upload}", DROP_CHUNKS, data),)


def _generation_of(outcome: Outcome) -> int:
    """Return the generation of a chunk, also one that was stored by an earlier try."""
    if outcome.generation is None and isinstance(outcome.stored, Record):
        return outcome.stored.generation or 0
    return outcome.generation or 0


def chunk_keys(document: Record) -> list[Key]:
    """Return the keys of the chunks of a large document, in their order."""
    upload, count = str(document.fields["upload"]), int(str(document.fields["chunks"]))
    return [_chunk_key(document.key, upload, number) for number in range(count)]


def _chunk_key(document: Key, upload: str, number: int) -> Key:
    return Key(document.tenant, ids.beside(document.id, "chunk", upload, str(number)))


def _portions(chunks: Sequence[Record]) -> list[Sequence[Record]]:
    return [chunks[start : start + _PORTION] for start in range(0, len(chunks), _PORTION)]
