"""Creates collections and their indexes.

Indexes for queries of one tenant begin with the tenant, then the partition. They fit a
shard key of `tenant` and `_id`. The layout's version is in the database, and a layout
of a later release is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pymongo import IndexModel
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import DuplicateKeyError

from memory.adapters.mongo.codec import EVERYWHERE, Document
from memory.adapters.mongo.paths import Labels, fill_copies, path_indexes
from memory.domain.errors import ConfigError
from memory.ports.collections import Collection, FieldType
from memory.ports.formats import FormatNote, current_note
from memory.ports.rows import CORRUPT, RECORD

SCHEMA = 3


class CollectionNames:
    """Names of the collections.

    Our own collections have a dot in their names; collections of records have none.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.partitions = f"{prefix}store.partitions"
        self.quarantine = f"{prefix}store.quarantine"
        self.schema = f"{prefix}store.schema"

    def of(self, collection: Collection) -> str:
        return self.prefix + collection.name


def indexes(collection: Collection, labels: Labels | None = None) -> list[IndexModel]:
    """Return a collection's indexes besides the one on `_id`."""
    some = [
        # Newest first, and the number of words of a partition's records, without
        # reading them. Almost every query filters by `role`.
        IndexModel(
            _ascending("tenant", "scope", "type", "role", "created_at", "id", "length"), name="newest"
        ),
        # The few arriving and cached records, which maintenance queries everywhere.
        # Their roles sort before "home".
        IndexModel(
            _ascending("role", "id", "tenant"),
            name="passing",
            partialFilterExpression={"role": {"$lt": "home"}},
        ),
        # Pages over everything, in order of the id. Queries over a place spell the
        # fields differently, so they never use it.
        IndexModel(_ascending(*EVERYWHERE.values()), name="everywhere"),
        IndexModel(_ascending("owing"), name="owing", sparse=True),
        IndexModel(
            _ascending("tier", "created_at"), name="age", partialFilterExpression={"role": {"$lte": "home"}}
        ),
        IndexModel(_ascending("expires_at"), name="expires", sparse=True),
        IndexModel(_ascending("discard_at"), name="discarded", sparse=True),
        IndexModel(_ascending("tenant", "scope"), name="corrupt", partialFilterExpression={"type": CORRUPT}),
    ]
    if collection.texts:
        some.append(
            IndexModel(
                _ascending("tenant", "scope", "stems"), name="stems", partialFilterExpression={"type": RECORD}
            )
        )
    for field in collection.fields:
        if field.indexed and field.type is not FieldType.BYTES:
            # The scope is last, because ends of relations are looked up in a whole
            # tenant.
            there = {f"fields.{field.name}": {"$exists": True}}
            some.append(
                IndexModel(
                    _ascending("tenant", f"fields.{field.name}", "scope"),
                    name=f"field_{field.name}",
                    partialFilterExpression=there,
                )
            )
    for name in sorted(collection.ordered_texts):
        some.append(
            IndexModel(
                _ascending("tenant", "scope", f"fields.{name}", "id"),
                name=f"order_{name}",
                partialFilterExpression={"type": RECORD},
            )
        )
    for name in collection.orders:
        if name in collection.ordered_texts:
            continue
        # Marks and tombstones have no such order. Every query for records states that
        # it wants only records.
        some.append(
            IndexModel(
                _ascending("tenant", name, "id"),
                name=f"order_{name}",
                partialFilterExpression={"type": RECORD},
            )
        )
    for number, names in enumerate(collection.indexes):
        paths = [f"fields.{name}" for name in names]
        there = {paths[0]: {"$exists": True}}
        some.append(
            IndexModel(
                _ascending("tenant", *paths, "scope"), name=f"several_{number}", partialFilterExpression=there
            )
        )
    return [*some, *path_indexes(labels or {})]


async def make_ready(
    store: str,
    database: AsyncDatabase[Document],
    names: CollectionNames,
    collections: Sequence[Collection],
    labels: Mapping[str, Labels],
) -> str | None:
    """Create missing collections and indexes, and return the note of the format.

    It is safe beside other processes that do the same. `labels` names the paths in
    bodies that have an index, by collection.
    """
    noted = await _require_version(store, database, names)
    wanted = {names.of(collection): collection for collection in collections}
    async for found in await database.list_collections(filter={"name": {"$in": list(wanted)}}):
        _require_plain(store, found)
    for name, collection in wanted.items():
        paths = labels.get(collection.name, {})
        await database[name].create_indexes(indexes(collection, paths))
        await fill_copies(database[name], database[names.schema], paths)
    await database[names.quarantine].create_indexes(
        [IndexModel(_ascending("collection", "tenant", "scope"), name="where")]
    )
    return noted


async def versions_of(
    database: AsyncDatabase[Document], names: CollectionNames
) -> tuple[int | None, str | None]:
    """Return the layout's version and the note of the format."""
    found = await database[names.schema].find_one({"_id": "schema"})
    return (None, None) if found is None else (int(found["version"]), found.get("format"))


async def swap_format(
    database: AsyncDatabase[Document], names: CollectionNames, before: str | None, after: str
) -> bool:
    """Replace the note of the format if it equals `before`."""
    changed = await database[names.schema].update_one(
        {"_id": "schema", "format": before}, {"$set": {"format": after}}
    )
    return changed.matched_count == 1


async def _require_version(
    store: str, database: AsyncDatabase[Document], names: CollectionNames
) -> str | None:
    version, noted = await versions_of(database, names)
    if version is None:
        try:
            document = {
                "_id": "schema",
                "version": SCHEMA,
                "format": current_note(),
                "made_by": "memory-tiers",
            }
            await database[names.schema].insert_one(document)
            return current_note()
        except DuplicateKeyError:  # another process was faster
            version, noted = await versions_of(database, names)
    FormatNote.parse(store, noted)
    if version is not None and version > SCHEMA:
        raise ConfigError(
            f"store '{store}': its data has layout {version}, written by a later release; this one supports"
            f" up to {SCHEMA}: upgrade memory-tiers"
        )
    if version is not None and version < SCHEMA:
        raise ConfigError(
            f"store '{store}': its data has layout {version}, and this release writes {SCHEMA}: export its"
            " records with the version that wrote them, and import them under another prefix"
        )
    return noted


def _require_plain(store: str, found: Mapping[str, Any]) -> None:
    """Reject an existing collection with a collation, which would treat two ids as one.

    Views and capped collections are rejected, too.
    """
    options = found.get("options", {})
    if options.get("collation") or options.get("capped") or found.get("type") != "collection":
        raise ConfigError(
            f"store '{store}': {found['name']} is a view, capped, or has a collation; drop it, or choose"
            " another prefix"
        )


def _ascending(*fields: str) -> list[tuple[str, int]]:
    return [(field, 1) for field in fields]
