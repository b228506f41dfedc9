"""PostgreSQL as platform teams run it: failovers, limits, poolers, roles with few
rights, TLS that is not there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest
import pytest_asyncio

from memory import Memory
from memory.adapters.sql.postgresql.store import PostgresStore
from memory.domain.errors import ConfigError, StoreUnavailable
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import HERE, apply_all, fetch_record, key_of, put, record
from memory.ports.query import Query, within
from tests.support import postgres_servers, servers
from tests.unit.adapters import reading_only
from tests.unit.adapters.sql.growing import WIDE, fill, judge_read_only, rewound

pytestmark = [
    pytest.mark.backend("postgresql"),
    pytest.mark.server,
    pytest.mark.skipif(servers.missing("postgres") is not None, reason=str(servers.missing("postgres"))),
]
SCHEMA = "platform"


@pytest_asyncio.fixture
async def admin() -> AsyncIterator[Any]:
    """A superuser, and the role `app`, who owns the schema."""
    connection = await asyncpg.connect(**postgres_servers.container().settings)
    await connection.execute(
        f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; DROP ROLE IF EXISTS app; CREATE ROLE app LOGIN PASSWORD"
        " 'app'"
    )
    await connection.execute(f"CREATE SCHEMA {SCHEMA} AUTHORIZATION app")
    yield connection
    await connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE; DROP OWNED BY app; DROP ROLE app")
    await connection.close()


def _url(role: str = "app", port: int | None = None, more: str = "") -> str:
    return f"postgresql://{role}:{role}@127.0.0.1:{port or postgres_servers.container().port}/postgres?schema={SCHEMA}{more}"


@contextlib.asynccontextmanager
async def _opened(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    await store.open(DECLARED)
    try:
        yield store
    finally:
        await store.close()


async def test_writes_go_on_once_another_server_has_taken_over(admin: Any) -> None:
    """Sessions of a server that became a standby stay read only; new ones reach the
    server that took over.
    """
    async with _opened(_url(more="&pool_size=4")) as store:
        await apply_all(store, put(record(1)))
        await admin.execute("ALTER ROLE app SET default_transaction_read_only = on")
        await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'")
        with contextlib.suppress(StoreUnavailable):  # the connection that was ended
            await store.get(SAMPLES, [key_of(1)])
        await asyncio.gather(*(fetch_record(store, 1) for _ in range(4)))
        with pytest.raises(StoreUnavailable, match="takes no writes"):
            await store.apply([put(record(2))])
        health = await store.check()
        assert (health.ok, "takes no writes" in health.detail) == (False, True)

        await admin.execute("ALTER ROLE app RESET default_transaction_read_only")
        for n in range(2, 6):
            await apply_all(store, put(record(n)))
        assert (await store.check()).ok


async def test_a_call_waits_for_a_connection_of_its_own_process_where_the_server_gives_no_more(
    admin: Any,
) -> None:
    async with _opened(_url(more="&pool_size=8")) as store:
        await admin.execute("ALTER ROLE app CONNECTION LIMIT 2")
        await asyncio.gather(*(apply_all(store, put(record(n))) for n in range(40)))
        assert await fetch_record(store, 39)
    await admin.execute("ALTER ROLE app CONNECTION LIMIT 0")
    with pytest.raises(StoreUnavailable, match="takes no more connections"):
        await PostgresStore(_url()).open(DECLARED)


async def test_behind_a_pooler_nothing_is_prepared_by_name(admin: Any) -> None:
    """PgBouncer in transaction mode gives each transaction another connection: a named
    statement of one is unknown, or known twice, on the next.
    """
    named: list[bytes] = []
    async with (
        _watched(named) as port,
        _opened(_url(port=port, more="&statement_cache_size=0&ssl=disable")) as store,
    ):
        await apply_all(store, *(put(record(n)) for n in range(5)))
        await store.query(Query(SAMPLES, within(HERE)))
        assert await store.delete_matching(Query(SAMPLES, within(HERE)), 10) == 5
        await store.audit()
    assert named == []


@contextlib.asynccontextmanager
async def _watched(named: list[bytes]) -> AsyncIterator[int]:
    """A port that leads to the server; `named` gets the names of the statements that
    are prepared through it.
    """

    async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inwards, outwards = await asyncio.open_connection("127.0.0.1", postgres_servers.container().port)
        back = asyncio.ensure_future(_forward(inwards, writer))
        with contextlib.suppress(asyncio.IncompleteReadError):
            first = await reader.readexactly(4)
            outwards.write(first + await reader.readexactly(int.from_bytes(first) - 4))
            while True:
                head = await reader.readexactly(5)
                body = await reader.readexactly(int.from_bytes(head[1:]) - 4)
                if head[:1] == b"P" and (name := body.partition(b"\0")[0]):
                    named.append(name)
                outwards.write(head + body)
        outwards.close()
        await back

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.parametrize(
    ("error", "message", "said"),
    [
        ("26000", 'prepared statement "__asyncpg_1__" does not exist', "statement_cache_size=0"),
        ("42P05", 'prepared statement "__asyncpg_1__" already exists', "statement_cache_size=0"),
        ("08P01", "transaction blocks not allowed in statement pooling mode", "pool_mode = transaction"),
    ],
)
def test_a_pooler_in_the_way_is_named(error: str, message: str, said: str) -> None:
    store = PostgresStore("postgresql://127.0.0.1/x")
    ours = store._translate_driver(asyncpg.PostgresError.new({"C": error, "M": message}))
    assert isinstance(ours, ConfigError)
    assert said in str(ours)


async def test_a_password_that_changes_while_a_memory_is_open_is_an_outage(admin: Any) -> None:
    with pytest.raises(ConfigError, match="refuses the user or the password"):
        await Memory(_url().replace("app:app", "app:wrong")).open()
    async with Memory(_url(), embedder="none") as memory:
        await memory.write("Ada likes tea", scope="user:ada")
        await admin.execute("ALTER ROLE app PASSWORD 'other'")
        await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'")
        refused = [one async for one in _refusals(memory, 3)]
        assert any("refuses the user or the password" in str(one) for one in refused)
        await admin.execute("ALTER ROLE app PASSWORD 'app'")
        assert [entry.content for entry in await memory.retrieve("user:ada")] == ["Ada likes tea"]


async def _refusals(memory: Memory, times: int) -> AsyncIterator[StoreUnavailable]:
    """Read some times; the first read may meet a connection that was just ended."""
    for _ in range(times):
        with pytest.raises(StoreUnavailable) as refused:
            await memory.get("01a22d50-2786-88d4-8624-1a2f709cbb14")
        yield refused.value


# -- rights ----------------------------------------------------------------------------


@pytest_asyncio.fixture
async def reader(admin: Any) -> AsyncIterator[str]:
    """A role that may only read what `app` wrote."""
    await reading_only.fill(_url())
    await admin.execute("DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN PASSWORD 'reader'")
    await admin.execute(
        f"GRANT USAGE ON SCHEMA {SCHEMA} TO reader; GRANT SELECT ON ALL TABLES IN SCHEMA {SCHEMA} TO reader"
    )
    yield "reader"
    await admin.execute("DROP OWNED BY reader; DROP ROLE reader")


async def test_a_role_that_may_only_read_opens_reads_and_searches(
    reader: str, caplog: pytest.LogCaptureFixture
) -> None:
    await reading_only.a_user_who_may_only_read_reads_and_searches(
        _url(reader), "permission denied for table", caplog
    )


async def test_a_role_that_may_only_read_takes_what_tables_of_an_earlier_release_lack_as_absent(
    reader: str, admin: Any
) -> None:
    async with _opened(_url()) as store:
        before = await fill(store)
    await admin.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {SCHEMA} TO reader")
    await admin.execute("; ".join(rewound(f"{SCHEMA}.memory_messages", f"{SCHEMA}.memory_collections")))
    store = PostgresStore(_url(reader))
    await store.open(WIDE)
    await judge_read_only(store, before)
    await reading_only.what_tables_lack_is_added_beside_it(_url(reader), _url())
    await admin.execute(f"GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {SCHEMA} TO reader")
    with pytest.raises(ConfigError, match="must be owner of table"):
        await PostgresStore(_url(reader)).open(WIDE)
    await store.close()


async def test_a_missing_permission_is_named(admin: Any) -> None:
    await admin.execute(f"ALTER SCHEMA {SCHEMA} OWNER TO postgres")
    with pytest.raises(ConfigError, match=f"permission denied for schema {SCHEMA}"):
        await PostgresStore(_url()).open(DECLARED)


# -- TLS -------------------------------------------------------------------------------


async def test_a_server_without_tls_is_named(admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="offers no TLS"):
        await PostgresStore(_url(more="&ssl=require")).open(DECLARED)
    monkeypatch.setenv("PGSSLMODE", "require")
    with pytest.raises(ConfigError, match="offers no TLS"):
        await PostgresStore(_url()).open(DECLARED)
    async with _opened(_url(more="&sslmode=prefer")) as store:
        assert (await store.check()).ok


async def test_a_missing_file_of_authorities_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"sslrootcert names .*nowhere.pem"):
        await PostgresStore(
            _url(more=f"&ssl=verify-full&sslrootcert={quote(str(tmp_path / 'nowhere.pem'))}")
        ).open(DECLARED)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="set sslrootcert"):
        await PostgresStore(_url(more="&ssl=verify-full")).open(DECLARED)
