"""One collection: its documents, conditions, and handles to read and write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pymongo import DeleteOne, InsertOne, UpdateOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from memory.adapters.mongo.codec import QUARANTINED, Document, address, document_of
from memory.adapters.mongo.filters import Conditions
from memory.adapters.mongo.paths import Labels
from memory.adapters.mongo.schema import CollectionNames
from memory.adapters.mongo.thresholds import Thresholds
from memory.ports.collections import Collection
from memory.ports.record import Key
from memory.ports.rows import Row

REFUSED: Document = {"$toInt": "$_id"}
"""Expression that fails, because no `_id` of ours is a number."""


class Table:
    """A collection of records.

    `documents` is for writes and for reads before a write. `unwaited` is for writes
    that a later write confirms. `settled` reads what a majority has, which no failover
    undoes.
    """

    def __init__(
        self,
        collection: Collection,
        database: AsyncDatabase[Document],
        names: CollectionNames,
        thresholds: Thresholds,
        *,
        majority: bool,
        sharded: bool,
        labels: Labels | None = None,
    ) -> None:
        self._sharded = sharded
        self.labels = labels or {}
        self.collection = collection
        self.thresholds = thresholds
        self.conditions = Conditions(collection, self.labels)
        self.documents: AsyncCollection[Document] = database[names.of(collection)]
        self.unwaited = self.documents.with_options(write_concern=WriteConcern(1))
        self.settled = (
            self.documents.with_options(read_concern=ReadConcern("majority")) if majority else self.documents
        )

    @property
    def name(self) -> str:
        """The collection's name in the database."""
        return self.documents.name

    def encode(self, row: Row) -> Document:
        """Return the document of a row. Raises `Unstorable` if it is too large."""
        return document_of(row, self.labels)

    def at(self, key: Key) -> Document:
        """Return a filter that matches the document of the key.

        On a sharded cluster the filter contains the tenant, which selects the shard.
        Elsewhere the tenant is left out, because the stored one may be damaged.
        """
        there: Document = {"_id": address(key)}
        return there | {"tenant": {"$eq": key.tenant}} if self._sharded else there

    def among(self, keys: Iterable[Key]) -> Document:
        """Return a filter that matches the documents of these keys."""
        wanted = list(keys)
        there: Document = {"_id": {"$in": [address(key) for key in wanted]}}
        return (
            there | {"tenant": {"$in": list({key.tenant: None for key in wanted})}}
            if self._sharded
            else there
        )

    async def all_kept(self) -> None:
        """Wait until a majority has all earlier writes to this collection, by anyone.

        `documents` may read data that a majority does not have yet. A caller that
        decided on such data calls this before it answers. The method waits by a write
        that changes nothing. MongoDB acknowledges that write once a majority has the
        latest write of the server that answers.
        """
        if self.settled is not self.documents:
            nobody: Document = {"_id": {"tenant": "", "id": ""}} | (
                {"tenant": {"$eq": ""}} if self._sharded else {}
            )
            await self.documents.update_one(nobody, {"$unset": {"nothing": ""}})

    def swap(
        self, key: Key, found: Document | None, document: Document | None
    ) -> InsertOne[Document] | UpdateOne | DeleteOne:
        """Return an operation that replaces the found document, or removes it.

        The server refuses the operation if the document has changed. In a bulk, it
        refuses only the operations whose documents have changed. Removing a missing
        document does nothing.
        """
        if found is None:
            assert document is not None  # noqa: S101 - replacing nothing by nothing is no change
            return InsertOne(document)
        if document is None:
            return DeleteOne(
                self.at(key) | {"$expr": {"$cond": [unchanged_expression(found), True, REFUSED]}}
            )
        return UpdateOne(
            self.at(key), replacement(document, unchanged_expression(found)), upsert=True
        )  # an upsert, because an update would not report a missing document


def as_it_was(found: Mapping[str, Any]) -> Document:
    """Return a filter that matches the found document if it is unchanged."""
    return {"token": {"$eq": found.get("token")}}


def unchanged_expression(found: Mapping[str, Any]) -> Document:
    """Return an expression that is true if the found document is unchanged."""
    return {"$eq": [{"$ifNull": ["$token", None]}, {"$literal": found.get("token")}]}


def replacement(document: Document | str, where: Document | bool = True) -> Sequence[Document]:
    """Return an update that replaces the document if the expression holds, else fails.

    `document` may be the name of a variable. A document is one literal, in which
    nothing is an expression. The mark of a quarantined copy is kept.
    """
    new = {
        "$mergeObjects": [
            document if isinstance(document, str) else {"$literal": document},
            {QUARANTINED: f"${QUARANTINED}"},
        ]
    }
    return [{"$replaceWith": new if where is True else {"$cond": [where, new, REFUSED]}}]
