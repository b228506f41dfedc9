"""The numbers that appends are given."""

from __future__ import annotations

from typing import Any

from pymongo import ReturnDocument
from pymongo.asynchronous.database import AsyncDatabase

from memory.adapters.mongo.errors import is_refused
from memory.adapters.mongo.schema import Names
from memory.adapters.mongo.values import Document, text_of
from memory.ports.record import Partition

Counter = tuple[Partition, str]


class Counters:
    """One document a counter. A number taken whose record is then not written is given back; where another was taken meanwhile it is lost."""

    def __init__(self, database: AsyncDatabase[Document], names: Names) -> None:
        self._counters = database[names.counters]

    async def take(self, counter: Counter, count: int, session: Any = None) -> int:
        """The first of so many numbers that nobody else is given."""
        while True:
            try:
                found = await self._counters.find_one_and_update(
                    {"_id": _id(counter)}, {"$inc": {"value": count}}, upsert=True, return_document=ReturnDocument.AFTER, session=session
                )
            except Exception as exc:
                if session is not None or not is_refused(exc):
                    raise
                continue  # another one made the counter meanwhile
            assert found is not None  # noqa: S101 - of an upsert the document after it
            return int(found["value"]) - count + 1

    async def give_back(self, counter: Counter, number: int) -> None:
        await self._counters.update_one({"_id": _id(counter), "value": {"$eq": number}}, {"$inc": {"value": -1}})


def _id(counter: Counter) -> Document:
    (partition, name) = counter
    return {"tenant": text_of(partition.tenant), "scope": text_of(partition.scope), "counter": text_of(name)}
