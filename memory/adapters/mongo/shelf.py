"""One collection: its documents, its conditions, and its handles for reading and writing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pymongo import DeleteOne, InsertOne, UpdateOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from memory.adapters.mongo.codec import ASIDE, Layout, address
from memory.adapters.mongo.filters import Conditions
from memory.adapters.mongo.schema import Names
from memory.adapters.mongo.thresholds import Thresholds
from memory.adapters.mongo.values import Document
from memory.ports.collections import Collection
from memory.ports.record import Key


class Shelf:
    """`documents` is for writing and for looking before a write, `unwaited` for what a later write makes sure of; `settled` reads what a majority
    has, which no failover takes back.
    """

    def __init__(
        self, collection: Collection, database: AsyncDatabase[Document], names: Names, thresholds: Thresholds, *, majority: bool, sharded: bool
    ) -> None:
        self._sharded = sharded
        self.collection = collection
        self.thresholds = thresholds
        self.layout = Layout(collection)
        self.conditions = Conditions(collection)
        self.documents: AsyncCollection[Document] = database[names.of(collection)]
        self.unwaited = self.documents.with_options(write_concern=WriteConcern(1))
        self.settled = self.documents.with_options(read_concern=ReadConcern("majority")) if majority else self.documents

    @property
    def name(self) -> str:
        """The collection's name in the database."""
        return self.documents.name

    def at(self, key: Key) -> Document:
        """A filter for the document under the key. For a cluster's shard key the tenant is said apart from the `_id`; elsewhere a document is found
        whose tenant is damaged.
        """
        stands = address(key)
        return {"_id": stands, "tenant": {"$eq": stands["tenant"]}} if self._sharded else {"_id": stands}

    def among(self, keys: Sequence[Key]) -> Document:
        """A filter for the documents under these keys."""
        addresses = [address(key) for key in keys]
        there: Document = {"_id": {"$in": addresses}}
        return there | {"tenant": {"$in": list({stands["tenant"]: None for stands in addresses})}} if self._sharded else there

    async def all_kept(self) -> None:
        """Wait until a majority has whatever was written here before, by anyone: who decided on what `documents` showed may answer then.

        A write that changes nothing is acknowledged when a majority has what the member that took it had last.
        """
        if self.settled is not self.documents:
            await self.in_the_journal()

    async def in_the_journal(self) -> None:
        """Wait until what was written here before without waiting is in the journal."""
        nobody: Document = {"_id": {"tenant": "", "id": ""}} | ({"tenant": {"$eq": ""}} if self._sharded else {})
        await self.documents.update_one(nobody, {"$unset": {"nothing": ""}})

    def swap(self, key: Key, found: Mapping[str, Any] | None, document: Document | None) -> InsertOne[Document] | UpdateOne | DeleteOne:
        """Put the document, or nothing, in the place of what was found.

        Where that does not stand there any more a document is refused, for each write of a bulk apart; a deletion does nothing.
        """
        if document is None:
            return DeleteOne(self.at(key) | as_it_was(found))
        if found is None:
            return InsertOne(document)
        return UpdateOne(self.at(key), replacement(document, unchanged(found)), upsert=True)  # an upsert, or nobody would say that it is gone


def as_it_was(found: Mapping[str, Any] | None) -> Document:
    """A filter that lets through what was found, as it was: every write has a checksum of its own."""
    return {"checksum": {"$eq": (found or {}).get("checksum")}}


def unchanged(found: Mapping[str, Any]) -> Document:
    """The same as an expression."""
    return {"$eq": [{"$ifNull": ["$checksum", None]}, {"$literal": found.get("checksum")}]}


def replacement(document: Document | str, where: Document | bool = True) -> list[Document]:
    """An update that puts the document (or the variable of this name) in the place of what stands there, where the expression holds; else it fails.

    The document is one literal: nothing in it is an expression. That a copy is set aside is kept.
    """
    new = {"$mergeObjects": [document if isinstance(document, str) else {"$literal": document}, {ASIDE: f"${ASIDE}"}]}
    refused = {"$toInt": "$_id"}  # no `_id` of ours is a number
    return [{"$replaceWith": new if where is True else {"$cond": [where, new, refused]}}]
