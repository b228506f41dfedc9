"""Many callers about the same records."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import asyncpg
import pytest

from memory.adapters.sql.postgresql.store import PostgresStore
from memory.ports.contract.support import apply_all, put, record
from memory.ports.record import Partition
from memory.ports.store import Store
from memory.ports.writes import Absent, Outcome, Put, Status
from tests.support.postgres_servers import Postgres
from tests.unit.adapters.contention import (
    callers_about_the_same_records_all_get_an_answer_that_is_true,
    new_records_of_many_callers_at_once_are_each_answered_as_alone,
)
from tests.unit.adapters.sql.postgresql.conftest import ON_SERVER

pytestmark = ON_SERVER


async def test_a_hundred_callers_about_the_same_records_all_get_an_answer_that_is_true(store: Store) -> None:
    await callers_about_the_same_records_all_get_an_answer_that_is_true(store)


async def test_new_records_of_many_callers_at_once_go_together_and_are_each_answered_as_alone(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried_out: list[int] = []
    put_shared = store._put_shared

    async def counted(puts: Sequence[Put]) -> list[Outcome]:
        carried_out.append(len(puts))
        return await put_shared(puts)

    monkeypatch.setattr(store, "_put_shared", counted)
    await new_records_of_many_callers_at_once_are_each_answered_as_alone(store, carried_out)


@pytest.mark.parametrize(
    ("table", "answered"),
    [("memory_samples", [Status.CONFLICT]), ("memory_partitions", [])],
    ids=["a record", "a partition"],
)
async def test_what_one_of_those_who_share_a_call_would_wait_for_keeps_no_other_waiting(
    server: Postgres, store: PostgresStore, schema: str, table: str, answered: list[Status]
) -> None:
    other = Partition("acme", "user:other")
    await apply_all(store, put(record(1, other), Absent()))
    held_up = await asyncpg.connect(
        timeout=10, **server.settings
    )  # another process, which stands still within a transaction
    await held_up.execute("BEGIN")
    await held_up.execute(f"SELECT * FROM {schema}.{table} FOR UPDATE")  # noqa: S608
    repeat, *calls = [
        asyncio.create_task(store.apply([put(one, Absent())]))
        for one in (record(1, other), *map(record, range(2, 40)))
    ]
    try:
        async with asyncio.timeout(store.config.command_timeout / 2):
            assert {(await call)[0].status for call in calls} == {Status.APPLIED}
            assert [(await repeat)[0].status for _ in answered] == answered
    finally:
        await held_up.close()
    assert (await repeat)[0].status is Status.CONFLICT
