"""Documents outside of their home, after a change of the configuration.

No document moves by itself. If `documents.short` changes, or another store serves a
tier, earlier documents are in a store in which reads do not look for them. So the
archive notes the homes of documents. If they differ from the configuration, opening
looks for such documents and warns, and so does `memory doctor`. `memory doctor
--repair` moves them.

A document is copied with its version, then released at its old place. If both places
have it, its newest version counts, as if it had been put over the older one. Each step
may be repeated.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace

from memory.domain import ids
from memory.domain.errors import MemoryTiersError, StoreError, StoreUnavailable
from memory.domain.validation import SYSTEM_TENANT
from memory.orchestrator.documents.chunks import Chunks, chunk_keys, drop_step
from memory.orchestrator.storage.collections import (
    DOCUMENT_CHUNKS,
    DOCUMENTS,
    SETTINGS,
    SETTINGS_SCOPE,
)
from memory.orchestrator.storage.outbox import Outbox, OutboxRecord
from memory.orchestrator.storage.placement import Placement, rejection_error
from memory.policies.routing import TIERS
from memory.ports.collections import Collection as CollectionDeclaration
from memory.ports.query import Condition, Eq, Everywhere, Head, Not, Query, all_of, within
from memory.ports.record import JsonValue, Key, Mark, Record, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Purge, Put, Release, Write

log = logging.getLogger(__name__)

NOTE = Key(SYSTEM_TENANT, ids.derived_id(SYSTEM_TENANT, SETTINGS_SCOPE, "documents"))
SHORT, STORES = "short", "stores"
"""In the note: `documents.short`, and the store of each tier by name."""
AT_ONCE = 100


class DocumentRelocation:
    """Finds documents outside of their home, and moves them there."""

    def __init__(self, placement: Placement, outbox: Outbox, chunks: Chunks) -> None:
        self._placement = placement
        self._outbox = outbox
        self._chunks = chunks
        self._homes = placement.topology.documents

    async def on_open(self) -> None:
        """Warn about documents outside of their home.

        Never keeps a memory from opening.
        """
        try:
            for problem in await self.look():
                log.warning("%s", problem)
        except MemoryTiersError as error:
            log.info("it is not known whether all documents are in their home: %s", error)

    async def look(self, absent: Collection[str] = (), *, thorough: bool = False) -> list[str]:
        """Return which stores have documents outside of their home, one sentence each.

        Looks only if the configuration differs from the note, or if it is to be
        `thorough`. If nothing is found, the configuration is noted. Stores in `absent`
        do not exist yet.
        """
        topology = self._placement.topology
        if len(topology.homes) == 1 or topology.archive.name in absent:
            return []
        row = await self._placement.read_one("stores.look", topology.archive, SETTINGS, NOTE)
        note = row if isinstance(row, Record) else None
        body: dict[str, JsonValue] = {
            SHORT: list(self._homes.short),
            STORES: {tier: topology.home(tier).name for tier in TIERS},
        }
        is_noted = not self._homes.short if note is None else note.body == body
        if is_noted and not thorough:
            return []
        stores = [store for store in topology.homes if store.name not in absent]
        found = [problem for store in stores if (problem := await self._problem(store)) is not None]
        if not found and not is_noted:
            now, version = self._placement.now(), self._placement.next_version(getattr(note, "version", 0))
            record = Record(NOTE, SETTINGS_SCOPE, version, now, now, body=body, tier="mid")
            when = Absent() if note is None else AtVersion(note.version)
            await self._placement.write_one("stores.note", topology.archive, Put(SETTINGS, record, when))
        return found

    async def relocate(self) -> list[str]:
        """Move all documents to their home; return what was done, one sentence a store.

        Documents that cannot be moved stay, and `look` finds them.
        """
        said: list[str] = []
        for store in self._placement.topology.homes:
            moved = 0
            async for heads in self._find_misplaced(store, DOCUMENTS):
                for head in heads:
                    try:
                        await self._move(head, store)
                        moved += 1
                    except StoreError as error:
                        log.warning(
                            "document %s of tenant '%s' stays: %s", head.key.id, head.key.tenant, error
                        )
            async for heads in self._find_misplaced(store, DOCUMENT_CHUNKS):
                await self._remove_orphans(heads, store)
            if moved:
                said.append(f"{moved:,} documents were moved from store '{store.name}' to their home")
        return said

    # -- finding -----------------------------------------------------------------------

    async def _find_misplaced(
        self, store: Store, collection: CollectionDeclaration
    ) -> AsyncIterator[list[Head]]:
        """Yield the records in a store whose documents have another home.

        Chunks with pending steps are left out: they are of an upload that is under way.
        """
        topology, only = self._placement.topology, list[Condition]()
        if self._homes.short and topology.home("short") is not topology.archive:
            only += [self._homes.is_short] if store is topology.archive else []
            only += [Not(self._homes.is_short)] if store is topology.home("short") else []
        elif store is topology.archive:
            return
        if collection is DOCUMENT_CHUNKS:
            only.append(Eq("owing", False))
        select = frozenset({"upload", "document_id"} & {field.name for field in collection.fields})
        query = Query(collection, Everywhere(), all_of(*only), limit=AT_ONCE, select=select)
        async for page in self._placement.pages("document.list", store, query):
            if there := [head for head in page.heads if self._homes.of(head.partition) is not store]:
                yield there

    async def _problem(self, store: Store) -> str | None:
        async for heads in self._find_misplaced(store, DOCUMENTS):
            head = heads[0]
            home, tier = self._homes.of(head.partition), self._homes.tier(head.partition)
            return (
                f"store '{store.name}' has documents of scopes such as '{head.scope}', whose home is now"
                f" store '{home.name}' of tier '{tier}', so they are not found. Run `memory doctor"
                " --repair`, which moves them; or restore the earlier documents.short and [tiers]"
            )
        return None

    # -- moving ------------------------------------------------------------------------

    async def _move(self, head: Head, source: Store) -> None:
        """Move a document, and again if another process puts it meanwhile.

        Raises:
            StoreError: It stays where it is.
        """
        target, tier = self._homes.of(head.partition), self._homes.tier(head.partition)
        for _ in range(self._placement.settings.attempts):
            row = await self._placement.read_one("document.read", source, DOCUMENTS, head.key)
            if not isinstance(row, Record):
                return  # it was deleted or moved meanwhile
            if row.owed:
                await self._outbox.finish(OutboxRecord(DOCUMENTS, source, row))
                continue
            await self._bring(replace(row, tier=tier), source, target)
            if await self._remove(DOCUMENTS, source, {row.key: row.version}, tier):
                await self._remove_chunks(row, source, tier)
                return
        raise StoreUnavailable(source.name, "the document keeps changing; try again")

    async def _bring(self, row: Record, source: Store, target: Store) -> None:
        """Store a copy in its home, unless a newer version is there.

        Raises:
            StoreError: It cannot be stored whole.
        """
        (there,) = await self._without_marks(DOCUMENTS, target, [row.key])
        if isinstance(there, Record | Tombstone) and there.owed:
            await self._outbox.finish(OutboxRecord(DOCUMENTS, target, there))
        if isinstance(there, Record | Tombstone) and there.version > row.version:
            return
        if "upload" in row.fields:
            await self._without_marks(DOCUMENT_CHUNKS, target, chunk_keys(row))
        upload = await self._chunks.copy(row, source, target)
        if not isinstance(there, Record) or there.version < row.version:
            owed = drop_step(there) if isinstance(there, Record) else ()
            when = AtVersion(there.version) if isinstance(there, Record | Tombstone) else Absent()
            outcome = await self._placement.write_one(
                "document.put", target, Put(DOCUMENTS, replace(row, owed=owed), when)
            )
            if not outcome.applied:
                changed = StoreUnavailable(target.name, "the document was changed or erased there; try again")
                raise rejection_error(target, outcome) or changed
            if owed:
                await self._outbox.finish(OutboxRecord(DOCUMENTS, target, replace(row, owed=owed)))
        if upload is not None:
            await self._chunks.confirm(upload, row)
            if await self._chunks.is_lost(row):
                raise StoreUnavailable(target.name, "a chunk of the document could not be copied; try again")

    async def _without_marks(
        self, collection: CollectionDeclaration, store: Store, keys: Sequence[Key]
    ) -> Sequence[object]:
        """Return the rows under these keys, once marks of earlier moves are removed."""
        rows = await self._placement.read("document.read", store, collection, keys)
        marks = [Purge(collection, row.key, at=row.version) for row in rows if isinstance(row, Mark)]
        if marks:
            await self._placement.write("document.drop", store, *marks)
        return [None if isinstance(row, Mark) else row for row in rows]

    async def _remove(
        self, collection: CollectionDeclaration, store: Store, at: dict[Key, int], tier: str
    ) -> bool:
        """Remove records that are at these versions, and leave nothing of them.

        Returns whether all were at their version. A tombstone would hide the document
        if its scope got its earlier home again.
        """
        now = self._placement.now()
        writes: list[Write] = [
            Release(collection, key, at=version, to=tier, discard_at=now) for key, version in at.items()
        ]
        released = await self._placement.write("document.drop", store, *writes) if writes else []
        gone = [key for key, outcome in zip(at, released, strict=True) if outcome.applied]
        if gone:
            purges = [Purge(collection, key, at=at[key]) for key in gone]
            await self._placement.write("document.drop", store, *purges)
        return len(gone) == len(at)

    async def _remove_chunks(self, row: Record, source: Store, tier: str) -> None:
        if (upload := row.fields.get("upload")) is None:
            return
        query = Query(
            DOCUMENT_CHUNKS, within(row.partition), Eq("upload", upload), limit=AT_ONCE, select=frozenset()
        )
        async for page in self._placement.pages("document.list", source, query):
            await self._remove(DOCUMENT_CHUNKS, source, {one.key: one.version for one in page.heads}, tier)

    async def _remove_orphans(self, heads: Sequence[Head], store: Store) -> None:
        """Remove chunks whose document was moved by a call that was interrupted."""
        keys = [Key(head.key.tenant, str(head.fields["document_id"])) for head in heads]
        rows = await self._placement.read_by_key("document.read", store, DOCUMENTS, list(dict.fromkeys(keys)))
        for head, key in zip(heads, keys, strict=True):
            row = rows[key]
            if not isinstance(row, Record) or row.fields.get("upload") != head.fields["upload"]:
                tier = self._homes.tier(head.partition)
                await self._remove(DOCUMENT_CHUNKS, store, {head.key: head.version}, tier)
