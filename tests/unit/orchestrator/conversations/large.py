"""What must hold of the large texts of messages whatever happened, and some such texts."""

from __future__ import annotations

from typing import Any

from memory.orchestrator.conversations.blobs.large_texts import chunk_key, chunks_of
from memory.orchestrator.conversations.blobs.reservations import LOOK_FOR_ROW
from memory.orchestrator.conversations.blobs.uploads import DROP, UPLOAD
from memory.orchestrator.conversations.log.events import artifacts_of
from memory.orchestrator.storage.collections import ARTIFACTS, MESSAGES, RESERVATIONS
from memory.ports.due import LEFT
from memory.ports.query import Everywhere, Query
from memory.ports.record import Record
from memory.ports.store import Store


def large(word: str, characters: int = 70_000) -> str:
    """A text that is stored apart from its message, and consists of the word."""
    return (f"{word} " * (characters // (len(word) + 1) + 1))[:characters]


async def unsound(store: Store, *, settled: bool = True) -> list[str]:
    """What is wrong with the large texts in a store; with `settled` nothing is under
    way either.

    Every chunk that a row names is there. Every chunk is named by a row, belongs to an
    upload under way, or is owed to be dropped.
    """
    rows = [
        r
        for r in (await store.query(Query(MESSAGES, Everywhere(), limit=10_000))).records
        if isinstance(r, Record)
    ]
    reserved = [
        r
        for r in (await store.query(Query(RESERVATIONS, Everywhere(), limit=10_000))).records
        if isinstance(r, Record)
    ]
    there = [
        r
        for r in (await store.query(Query(ARTIFACTS, Everywhere(), limit=10_000))).records
        if isinstance(r, Record)
    ]
    left = [
        (await store.query(Query(of, Everywhere(), types=LEFT, limit=10_000))).records
        for of in (MESSAGES, ARTIFACTS, RESERVATIONS)
    ]
    named = {
        chunk_key(row.key.tenant, row.scope, chunk).id
        for row in rows
        for chunk in chunks_of(artifacts_of(row))
    }
    chunks = {record.key.id for record in there if "data" in record.fields}
    owners: list[Any] = [*rows, *there, *reserved, *(row for rows in left for row in rows)]
    owed = {
        one
        for owner in owners
        for owed in owner.owed
        if owed.step in (UPLOAD, LOOK_FOR_ROW, DROP)
        for one in owed.data["ids"]
    }
    problems = [f"{one} is named and not there" for one in named - chunks]
    problems += [f"{one} is there and nobody's" for one in chunks - named - owed]
    if settled:
        problems += [f"{one} is still owed" for one in owed]
        problems += [
            f"upload {record.key.id} is under way" for record in there if "data" not in record.fields
        ]
    return problems


async def everything(*stores: Store) -> str:
    """All that stands in the stores about messages and their large texts."""
    found: list[str] = []
    for store in dict.fromkeys(stores):
        for collection in (MESSAGES, ARTIFACTS):
            for row in (await store.query(Query(collection, Everywhere(), limit=10_000))).records:
                if isinstance(row, Record):
                    found.append(str((dict(row.fields), dict(row.body), dict(row.texts))))
    return "\n".join(found)
