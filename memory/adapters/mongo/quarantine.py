"""Quarantine of damaged documents.

A copy is kept for people to inspect, and a marker document takes its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from memory.adapters.mongo.codec import QUARANTINED, Document, document_of, key_in
from memory.adapters.mongo.schema import CollectionNames
from memory.adapters.mongo.table import Table, as_it_was, replacement
from memory.domain.time import micros
from memory.ports.clock import system_clock
from memory.ports.record import Key
from memory.ports.rows import corrupt_row


@dataclass(frozen=True, slots=True)
class DamagedDocument:
    """A document found unreadable, as it was read."""

    table: Table
    document: Mapping[str, Any]
    problem: str


class Quarantine:
    """The copies of damaged documents."""

    def __init__(self, database: AsyncDatabase[Document], names: CollectionNames) -> None:
        self.copies = database[names.quarantine]

    async def keep(self, damaged: Sequence[DamagedDocument]) -> None:
        """Move documents that have not changed since they were read into quarantine."""
        for one in damaged:
            table, key = one.table, key_in(one.document)
            whole = await table.documents.find_one(table.at(key) | as_it_was(one.document))
            if whole is None:
                continue
            scope, version = whole.get("scope"), whole.get("version")
            bare = corrupt_row(key, int(version) if isinstance(version, int) and version > 0 else 0)
            note = document_of(
                bare._replace(scope=scope if isinstance(scope, str) else None, note=one.problem)
            ) | {QUARANTINED: True}
            place = _id(table, key)
            copy = {
                "_id": place,
                **place,
                "scope": note.get("scope"),
                "problem": one.problem,
                "found_at": micros(system_clock()),
                "document": whole,
            }
            await self.copies.replace_one({"_id": place}, copy, upsert=True)
            done = await table.documents.update_one(table.at(key) | as_it_was(whole), replacement(note))
            if (
                not done.matched_count
            ):  # changed meanwhile: by another call that quarantined it, or perhaps by a deletion
                now = await table.documents.find_one(table.at(key), {QUARANTINED: 1})
                if now is None or QUARANTINED not in now:
                    await self.forget(table, [key])

    async def forget(self, table: Table, keys: Iterable[Key], session: Any = None) -> None:
        """Delete the copies, so that no deleted data stays readable."""
        if ids := [_id(table, key) for key in keys]:
            await self.copies.delete_many({"_id": {"$in": ids}}, session=session)


def _id(table: Table, key: Key) -> Document:
    return {"collection": table.collection.name, "tenant": key.tenant, "id": key.id}
