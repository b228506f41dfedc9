"""MySQL and MariaDB as platform teams run them: users with few rights, limits, servers
that are read only, TLS that is not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from memory.adapters.sql.mysql.store import MySqlStore
from memory.domain.errors import ConfigError, StoreUnavailable
from memory.ports.contract.collections import DECLARED
from memory.ports.contract.support import apply_all, fetch_record, put, record
from tests.support.mysql_servers import MySqlServer
from tests.unit.adapters import reading_only
from tests.unit.adapters.sql.growing import WIDE, fill, judge_read_only, rewound
from tests.unit.adapters.sql.mysql.conftest import ON_SERVER

pytestmark = ON_SERVER


@pytest_asyncio.fixture
async def reader(server: MySqlServer, database: str) -> AsyncIterator[str]:
    """The URL of a user who may only read what is there."""
    await reading_only.fill(server.url(database))
    await server.run_sql("CREATE OR REPLACE USER reader IDENTIFIED BY 'reader'")
    await server.run_sql(f"GRANT SELECT ON {database}.* TO reader")
    yield f"mysql://reader:reader@127.0.0.1:{server.port}/{database}"
    await server.run_sql("DROP USER reader")


async def test_a_user_who_may_only_read_opens_reads_and_searches(
    reader: str, caplog: pytest.LogCaptureFixture
) -> None:
    await reading_only.a_user_who_may_only_read_reads_and_searches(reader, "is denied for table", caplog)


async def test_a_user_who_may_only_read_takes_what_tables_of_an_earlier_release_lack_as_absent(
    reader: str, server: MySqlServer, database: str
) -> None:
    store = MySqlStore(server.url(database))
    await store.open(DECLARED)
    before = await fill(store)
    await store.close()
    for statement in rewound(f"{database}.memory_messages", f"{database}.memory_collections"):
        await server.run_sql(statement)
    store = MySqlStore(reader)
    await store.open(WIDE)
    await judge_read_only(store, before)
    await store.close()
    await reading_only.what_tables_lack_is_added_beside_it(reader, server.url(database))
    await server.run_sql(f"GRANT INSERT, UPDATE, DELETE ON {database}.* TO reader")
    with pytest.raises(ConfigError, match="is denied for table"):
        await MySqlStore(reader).open(WIDE)


async def test_a_call_waits_for_a_connection_of_its_own_process_where_the_server_gives_no_more(
    server: MySqlServer, database: str
) -> None:
    await server.run_sql("CREATE OR REPLACE USER few IDENTIFIED BY 'few' WITH MAX_USER_CONNECTIONS 2")
    await server.run_sql(f"GRANT ALL ON {database}.* TO few")
    store = MySqlStore(f"mysql://few:few@127.0.0.1:{server.port}/{database}?pool_size=8&pool_timeout=120")
    await store.open(DECLARED)
    try:
        await asyncio.gather(*(apply_all(store, put(record(n))) for n in range(30)))
        assert await fetch_record(store, 29)
    finally:
        await store.close()
        await server.run_sql("DROP USER few")


async def test_writes_go_on_once_the_server_takes_them_again(server: MySqlServer, database: str) -> None:
    await server.run_sql("CREATE OR REPLACE USER plain IDENTIFIED BY 'plain'")
    await server.run_sql(f"GRANT ALL ON {database}.* TO plain")
    store = MySqlStore(f"mysql://plain:plain@127.0.0.1:{server.port}/{database}")
    await store.open(DECLARED)
    try:
        await server.run_sql("SET GLOBAL read_only = 1")
        with pytest.raises(StoreUnavailable, match="read-only"):
            await store.apply([put(record(1))])
        await server.run_sql("SET GLOBAL read_only = 0")
        await apply_all(store, put(record(1)))
    finally:
        await server.run_sql("SET GLOBAL read_only = 0")
        await store.close()
        await server.run_sql("DROP USER plain")


async def test_a_server_that_is_read_only_is_opened_and_read(server: MySqlServer, database: str) -> None:
    await server.run_sql("CREATE OR REPLACE USER plain IDENTIFIED BY 'plain'")
    await server.run_sql(f"GRANT ALL ON {database}.* TO plain")
    url = f"mysql://plain:plain@127.0.0.1:{server.port}/{database}"
    writer, store = MySqlStore(url), MySqlStore(url)
    await writer.open(DECLARED)
    try:
        await apply_all(writer, put(record(1)))
        await server.run_sql("SET GLOBAL read_only = 1")
        await store.open(DECLARED)
        assert await fetch_record(store, 1)
        health = await store.check()
        assert not health.ok
        assert "takes no writes" in health.detail
        with pytest.raises(StoreUnavailable, match="read-only"):
            await store.apply([put(record(2))])
        await server.run_sql("SET GLOBAL read_only = 0")
        await apply_all(store, put(record(2)))
    finally:
        await server.run_sql("SET GLOBAL read_only = 0")
        await store.close()
        await writer.close()
        await server.run_sql("DROP USER plain")


async def test_a_server_without_tls_is_named(server: MySqlServer, database: str) -> None:
    with pytest.raises(ConfigError, match="offers no TLS, and ssl_mode=required"):
        await MySqlStore(server.url(database, ssl_mode="required")).open(DECLARED)
