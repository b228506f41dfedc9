"""What several of these tests need: damage to files, and processes to kill."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from memory.adapters.sql.store import SqlStore
from memory.ports.collections import COLLECTIONS
from memory.ports.record import JsonValue


@contextmanager
def raw(file: Path) -> Iterator[sqlite3.Connection]:
    """The file as any other program sees it."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        yield connection


async def opened(file: Path, **options: JsonValue) -> SqlStore:
    store = SqlStore(f"sqlite:///{file}", **options)
    await store.open(COLLECTIONS)
    return store


def started(program: str, *arguments: object) -> subprocess.Popen[str]:
    """Another Python running this program."""
    return subprocess.Popen([sys.executable, "-c", program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(processes: Sequence[subprocess.Popen[str]], within: float = 60) -> list[str]:
    """What each printed; all must have ended well."""
    outputs = []
    for process in processes:
        out, err = process.communicate(timeout=within)
        assert process.returncode == 0, err
        outputs.append(out)
    return outputs


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
