"""One collection: its documents, its conditions, and its handles for reading and
writing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pymongo import DeleteOne, InsertOne, UpdateOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from memory.adapters.mongo.codec import QUARANTINED, Document, address
from memory.adapters.mongo.filters import Conditions
from memory.adapters.mongo.schema import CollectionNames
from memory.adapters.mongo.thresholds import Thresholds
from memory.ports.collections import Collection
from memory.ports.record import Key

REFUSED: Document = {"$toInt": "$_id"}
"""An expression that fails: no `_id` of ours is a number."""


class Table:
    """`documents` is for writing and for looking before a write, `unwaited` for what a
    later write makes sure of; `settled` reads what a majority has, which no failover
    takes back.
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
    ) -> None:
        self._sharded = sharded
        self.collection = collection
        self.thresholds = thresholds
        self.conditions = Conditions(collection)
        self.documents: AsyncCollection[Document] = database[names.of(collection)]
        self.unwaited = self.documents.with_options(write_concern=WriteConcern(1))
        self.settled = (
            self.documents.with_options(read_concern=ReadConcern("majority")) if majority else self.documents
        )

    @property
    def name(self) -> str:
        """The collection's name in the database."""
        return self.documents.name

    def at(self, key: Key) -> Document:
        """What stands under the key. A sharded cluster finds it by the tenant, which
        elsewhere may be damaged.
        """
        there: Document = {"_id": address(key)}
        return there | {"tenant": {"$eq": key.tenant}} if self._sharded else there

    def among(self, keys: Iterable[Key]) -> Document:
        """What stands under these keys."""
        wanted = list(keys)
        there: Document = {"_id": {"$in": [address(key) for key in wanted]}}
        return (
            there | {"tenant": {"$in": list({key.tenant: None for key in wanted})}}
            if self._sharded
            else there
        )

    async def all_kept(self) -> None:
        """Wait until a majority has whatever was written here before, by anyone: who
        decided on what `documents` showed may answer then.

        A write that changes nothing is acknowledged when a majority has what the member
        that took it had last.
        """
        if self.settled is not self.documents:
            nobody: Document = {"_id": {"tenant": "", "id": ""}} | (
                {"tenant": {"$eq": ""}} if self._sharded else {}
            )
            await self.documents.update_one(nobody, {"$unset": {"nothing": ""}})

    def swap(
        self, key: Key, found: Document | None, document: Document | None
    ) -> InsertOne[Document] | UpdateOne | DeleteOne:
        """Put the document, or nothing, in the place of what was found; refused where
        something else stands there, for each write of a bulk apart. To take away what
        is gone does nothing.
        """
        if found is None:
            assert document is not None  # noqa: S101 - nothing in the place of nothing is no change
            return InsertOne(document)
        if document is None:
            return DeleteOne(
                self.at(key) | {"$expr": {"$cond": [unchanged_expression(found), True, REFUSED]}}
            )
        return UpdateOne(
            self.at(key), replacement(document, unchanged_expression(found)), upsert=True
        )  # an upsert, or nobody would say that it is gone


def as_it_was(found: Mapping[str, Any]) -> Document:
    """A filter that lets through what was found, as it was."""
    return {"token": {"$eq": found.get("token")}}


def unchanged_expression(found: Mapping[str, Any]) -> Document:
    """The same as an expression."""
    return {"$eq": [{"$ifNull": ["$token", None]}, {"$literal": found.get("token")}]}


def replacement(document: Document | str, where: Document | bool = True) -> Sequence[Document]:
    """An update that puts the document (or the variable of this name) in the place of
    what stands there, where the expression holds; else it fails.

    The document is one literal: nothing in it is an expression. That a copy is in
    quarantine is kept.
    """
    new = {
        "$mergeObjects": [
            document if isinstance(document, str) else {"$literal": document},
            {QUARANTINED: f"${QUARANTINED}"},
        ]
    }
    return [{"$replaceWith": new if where is True else {"$cond": [where, new, REFUSED]}}]
