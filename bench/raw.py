"""The raw engine, as bare as one can use it: the adapter's own driver and thread, one
table, one statement, no promises.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy

from memory.adapters.embedders.wordllama import WordLlamaEmbedder
from memory.adapters.sql.sqlite.config import SqliteConfig
from memory.adapters.sql.sqlite.connection import SqliteDriver
from memory.adapters.sql.sqlite.session import Session
from memory.ports.collections import Collection

UPSERT = (
    "INSERT INTO entries (id, scope, body, vector) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (id) DO UPDATE SET body = excluded.body, vector = excluded.vector"
)


class RawStore:
    """One SQLite file with a table of entries and a plain full-text index over it."""

    def __init__(self, path: Path) -> None:
        self._driver = SqliteDriver("raw", SqliteConfig(path))
        self._embedder = WordLlamaEmbedder()
        self._matrix = numpy.zeros((0, 256), dtype="<f4")

    async def open(self) -> None:
        await self._driver.open(_create, lambda _: {}, lambda _: None)
        await self._embedder.embed(["warm"])

    async def close(self) -> None:
        await self._driver.close()

    async def upsert(self, scope: str, content: str) -> None:
        """Embed one text and store it in a transaction of its own."""
        (vector,) = await self._embedder.embed([content])
        row = (str(uuid.uuid4()), scope, json.dumps({"content": content}), vector)
        await self._driver.write(lambda session: session.run(UPSERT, row))

    async def upsert_many(self, scope: str, contents: Sequence[str]) -> None:
        """Embed the texts together and store and index them in one transaction."""
        vectors = await self._embedder.embed(contents)
        rows = [
            (str(uuid.uuid4()), scope, json.dumps({"content": c}), v)
            for c, v in zip(contents, vectors, strict=True)
        ]

        def store(session: Session) -> None:
            for row, content in zip(rows, contents, strict=True):
                session.run(UPSERT, row)
                session.run(
                    "INSERT INTO words (id, scope, content) VALUES (?, ?, ?)", (row[0], scope, content)
                )

        await self._driver.write(store)
        self._matrix = numpy.vstack([self._matrix, *(numpy.frombuffer(v, dtype="<f4") for v in vectors)])

    async def search(self, scope: str, query: str) -> int:
        """The ten best by FTS5's bm25 and the ten nearest by an exact scan of
        everything written; how many were found.
        """
        (vector,) = await self._embedder.embed([query])
        match = " OR ".join(f'"{word}"' for word in query.split())
        sql = "SELECT id FROM words WHERE words MATCH ? AND scope = ? ORDER BY bm25(words) LIMIT 10"
        rows = await self._driver.read(lambda session: session.rows(sql, (match, scope)))
        near = numpy.argsort(self._matrix @ numpy.frombuffer(vector, dtype="<f4"))[-10:]
        return len(rows) + len(near)


def _create(session: Session) -> Mapping[str, Collection]:
    session.run(
        "CREATE TABLE entries (id TEXT PRIMARY KEY, scope TEXT NOT NULL, body TEXT NOT NULL, vector BLOB)"
    )
    session.run("CREATE INDEX by_scope ON entries (scope)")
    session.run(
        "CREATE VIRTUAL TABLE words USING fts5(id UNINDEXED, scope UNINDEXED, content, tokenize='porter"
        " unicode61')"
    )
    return {}
