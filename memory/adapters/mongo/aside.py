"""Damaged documents: a copy is kept for people to look at, and a bare document that says so takes their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from memory.adapters.mongo.codec import ASIDE, CORRUPT, key_in
from memory.adapters.mongo.schema import Names
from memory.adapters.mongo.shelf import Shelf, as_it_was, replacement
from memory.adapters.mongo.values import Document
from memory.domain.time import micros
from memory.ports.clock import system_clock
from memory.ports.record import Key


@dataclass(frozen=True, slots=True)
class Spoiled:
    """A document found unreadable, as it was read."""

    shelf: Shelf
    document: Mapping[str, Any]
    problem: str


def is_fresh(document: Mapping[str, Any]) -> bool:
    """Whether an unreadable document is still in its place."""
    return document.get("kind") != CORRUPT


class Aside:
    """The copies."""

    def __init__(self, database: AsyncDatabase[Document], names: Names) -> None:
        self._copies = database[names.aside]

    async def keep(self, spoiled: Sequence[Spoiled]) -> None:
        """Move documents that still are as they were read out of the way."""
        for one in spoiled:
            key = key_in(one.document)
            whole = await one.shelf.documents.find_one(one.shelf.at(key) | as_it_was(one.document))
            if whole is None:
                continue
            note = one.shelf.layout.corrupt(whole, one.problem) | {ASIDE: True}
            place = _id(one.shelf, key)
            copy = {"_id": place, **place, "scope": note.get("scope"), "problem": one.problem, "found_at": micros(system_clock()), "document": whole}
            await self._copies.replace_one({"_id": place}, copy, upsert=True)
            done = await one.shelf.documents.update_one(one.shelf.at(key) | as_it_was(whole), replacement(note))
            if not done.matched_count:  # changed meanwhile: by one who set it aside too, or by one who may have deleted it
                now = await one.shelf.documents.find_one(one.shelf.at(key), {ASIDE: 1})
                if now is None or ASIDE not in now:
                    await self.forget(one.shelf, [key])

    async def forget(self, shelf: Shelf, keys: Sequence[Key], session: Any = None) -> None:
        """Nothing of what was deleted stays readable."""
        if keys:
            await self._copies.delete_many({"_id": {"$in": [_id(shelf, key) for key in keys]}}, session=session)


def _id(shelf: Shelf, key: Key) -> Document:
    return {"collection": shelf.collection.name, "tenant": key.tenant, "id": key.id}
