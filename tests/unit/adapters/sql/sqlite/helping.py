"""What several of these tests need: damage to files, and processes to kill."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import UUID

from memory.adapters.sql.sqlite.store import SqliteStore
from memory.ports.contract.collections import DECLARED
from memory.ports.record import JsonValue


@contextmanager
def raw(file: Path) -> Iterator[sqlite3.Connection]:
    """The file as any other program sees it."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        yield connection


def stored(record_id: str) -> bytes:
    """An id as its column holds it."""
    return UUID(record_id).bytes


def change(file: Path, statement: str, *values: object) -> None:
    """Change the file as damage or another program would; it must change something."""
    with raw(file) as connection:
        assert connection.execute(statement, values).rowcount != 0, statement


def size_of(*files: Path) -> int:
    return sum(file.stat().st_size for file in files)


async def opened(file: Path, **options: JsonValue) -> SqliteStore:
    store = SqliteStore(f"sqlite:///{file}", **options)
    await store.open(DECLARED)
    return store


async def problems(store: SqliteStore, *, repair: bool = False) -> tuple[str, ...]:
    return (await store.audit(repair=repair)).problems


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
