"""Partitions that nothing is left of."""

from __future__ import annotations

from memory.adapters.sql.mysql.store import MySqlStore
from memory.ports.contract.collections import DECLARED
from tests.support.mysql_servers import MySqlServer
from tests.unit.adapters import forgetting
from tests.unit.adapters.sql.mysql.conftest import ON_SERVER, Raw

pytestmark = ON_SERVER


async def test_dead_scopes_leave_no_row_behind(store: MySqlStore, raw: Raw) -> None:
    async def counted() -> object:
        tables = await raw(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY 1"
        )
        return {name: (await raw(f"SELECT count(*) FROM `{name}`"))[0][0] for (name,) in tables}  # noqa: S608

    await forgetting.dead_scopes_leave_nothing_behind(store, counted)


async def test_a_writer_who_begins_in_a_partition_that_is_just_forgotten_loses_nothing(
    store: MySqlStore, server: MySqlServer, database: str
) -> None:
    other = MySqlStore(server.url(database))
    await other.open(DECLARED)
    try:
        await forgetting.a_writer_who_begins_meanwhile_loses_nothing(store, other)
    finally:
        await other.close()
