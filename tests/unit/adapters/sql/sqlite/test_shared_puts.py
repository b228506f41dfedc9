"""New records of many callers share a call on a file, too."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from memory.adapters.sql.sqlite.store import SqliteStore
from memory.domain.errors import StoreError
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import key_of, put, record
from memory.ports.writes import Absent, Outcome, Write


async def test_puts_at_once_share_a_call_and_where_it_fails_each_is_put_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, calls, fails = SqliteStore(f"sqlite:///{tmp_path}/m.db"), list[int](), set[int]()
    await store.open(DECLARED)
    carry_out = store._carry_out

    async def counted(writes: Sequence[Write], together: bool) -> list[Outcome]:
        calls.append(len(writes))
        if fails & {write.record.version for write in writes}:  # type: ignore[union-attr]
            raise sqlite3.OperationalError("the disk had enough")
        return await carry_out(writes, together)

    monkeypatch.setattr(store, "_carry_out", counted)
    try:
        await store.apply([put(record(3), Absent())])
        outcomes = await asyncio.gather(*(store.apply([put(record(number), Absent())]) for number in range(20)))
        assert calls == [1, 20]
        assert [number for number, [one] in enumerate(outcomes) if not one.applied] == [3]
        fails.add(77)
        puts = [put(record(number, version=77 if number == 25 else 5), Absent()) for number in range(20, 30)]
        answers = await asyncio.gather(*(store.apply([one]) for one in puts), return_exceptions=True)
        assert [number for number, one in enumerate(answers, 20) if isinstance(one, StoreError)] == [25]
        stand = await store.get(SAMPLES, [key_of(number) for number in range(30)])
        assert [number for number, one in enumerate(stand) if one is None] == [25]
    finally:
        await store.close()
