"""Partitions that nothing is left of."""

from __future__ import annotations

from memory.adapters.sql.postgresql.store import PostgresStore
from memory.ports.contract.collections import DECLARED
from tests.support.postgres_servers import Postgres
from tests.unit.adapters import forgetting
from tests.unit.adapters.sql.postgresql.conftest import ON_SERVER, Raw

pytestmark = ON_SERVER


async def test_dead_scopes_leave_no_row_behind(store: PostgresStore, raw: Raw) -> None:
    async def counted() -> object:
        tables = await raw(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = '{s}' ORDER BY 1"
        )
        return {name: (await raw(f'SELECT count(*) FROM {{s}}."{name}"'))[0][0] for (name,) in tables}  # noqa: S608

    await forgetting.dead_scopes_leave_nothing_behind(store, counted)


async def test_a_writer_who_begins_in_a_partition_that_is_just_forgotten_loses_nothing(
    store: PostgresStore, server: Postgres, schema: str
) -> None:
    other = PostgresStore(server.url(schema))
    await other.open(DECLARED)
    try:
        await forgetting.a_writer_who_begins_meanwhile_loses_nothing(store, other)
    finally:
        await other.close()
