"""Messages of a megabyte and of ten, said and read by a process that has not seen them,
beside one row of each in the raw store.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.measure import Figure, side_by_side
from memory import Memory

SIZES = {1: 12, 10: 4}
"""Megabytes, and how often each is said."""
Execute = Callable[..., Awaitable[Any]]


async def large_messages(name: str, memory: Memory, config: dict[str, Any], raw: Execute) -> list[Figure]:
    """`raw` carries out a statement, with parameters, in the store where messages are
    kept, and returns what it finds.
    """
    figures: list[Figure] = []
    async with Memory(config) as other:
        for size, times in SIZES.items():
            texts = [b64encode(os.urandom(size * 2**20 * 3 // 4)).decode() for _ in range(times)]
            sessions = [await memory.sessions.create() for _ in texts]
            await raw("CREATE TABLE large (place INTEGER PRIMARY KEY, said TEXT)")

            async def append(number: int, sessions: list[Any] = sessions, texts: list[str] = texts) -> None:
                await sessions[number].append({"role": "user", "content": texts[number]})

            async def put(number: int, texts: list[str] = texts) -> None:
                await raw("INSERT INTO large VALUES ($1, $2)", number, texts[number])

            async def read(number: int, sessions: list[Any] = sessions, texts: list[str] = texts) -> None:
                assert (await other.session(sessions[number].id).context()).messages[0].content == texts[
                    number
                ]

            async def select(number: int, texts: list[str] = texts) -> None:
                assert (await raw("SELECT said FROM large WHERE place = $1", number))[0][0] == texts[number]

            said, raw_put = await side_by_side(times, append, put)
            shown, raw_read = await side_by_side(times, read, select)
            figures += [
                Figure(f"{name}: append {size} MiB", said * 1000, "ms", raw=raw_put * 1000),
                Figure(f"{name}: read {size} MiB, not seen before", shown * 1000, "ms", raw=raw_read * 1000),
            ]
            await raw("DROP TABLE large")
    return figures


def in_file(path: Path) -> Execute:
    """Statements in an SQLite file, each kept when it is answered."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")

    async def execute(statement: str, *parameters: object) -> Any:
        return await asyncio.to_thread(
            lambda: connection.execute(statement.replace("$", "?"), parameters).fetchall()
        )

    return execute
