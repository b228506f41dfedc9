"""What several of these tests need: damage to files, and processes to kill."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from memory.adapters.sql.sqlite.store import SqliteStore
from memory.ports.collections import Collection, Field, FieldType, TextPart
from memory.ports.contract.collections import DECLARED
from memory.ports.record import JsonValue


@contextmanager
def raw(file: Path) -> Iterator[sqlite3.Connection]:
    """The file as any other program sees it."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        yield connection


def change(file: Path, statement: str, *values: object) -> None:
    """Change the file as damage or another program would; it must change something."""
    with raw(file) as connection:
        assert connection.execute(statement, values).rowcount != 0, statement


def size_of(*files: Path) -> int:
    return sum(file.stat().st_size for file in files)


def registered(file: Path) -> list[Collection]:
    """The collections whose tables a file holds, as it says itself."""
    with raw(file) as connection:
        rows = connection.execute("SELECT name, declaration FROM memory_collections ORDER BY name").fetchall()
    return [
        Collection(
            name,
            tuple(Field(field, FieldType(kind), indexed) for field, kind, indexed in said["fields"]),
            tuple(TextPart(part, 1.0) for part in said["texts"]),
            said["vector"],
        )
        for name, said in ((name, json.loads(declaration)) for name, declaration in rows)
    ]


async def opened(file: Path, **options: JsonValue) -> SqliteStore:
    store = SqliteStore(f"sqlite:///{file}", **options)
    await store.open(DECLARED)
    return store


def content_of(file: Path) -> bytes:
    return file.read_bytes()


def write_content(file: Path, content: bytes | bytearray) -> None:
    file.write_bytes(content)


def flip_in_page(file: Path, page: int, size: int, what: bytes) -> None:
    """Change one bit of these bytes, in that page of a SQLite file."""
    content = bytearray(file.read_bytes())
    at = content.index(what, (page - 1) * size)
    assert at < page * size
    content[at] ^= 0x01
    file.write_bytes(content)
