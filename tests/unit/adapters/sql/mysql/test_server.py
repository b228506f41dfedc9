"""What only a real server shows: wrong passwords, settings, deadlocks, closing, what
its columns can hold. Frozen ones are the contract's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from memory.adapters.sql.mysql.connection import connect
from memory.adapters.sql.mysql.store import MySqlStore
from memory.adapters.sql.naming import FORM
from memory.adapters.sql.server.partitions import SCOPE_BYTES, TENANT_BYTES
from memory.domain.errors import ConfigError, NotOpen, StoreError
from memory.ports.base import record_bytes
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import (
    HERE,
    apply_all,
    delete,
    fetch_record,
    fetch_stored,
    hit_ids,
    id_of,
    key_of,
    one,
    put,
    query_ids,
    record,
    search_hits,
)
from memory.ports.query import Eq, Order, Query, Tenant, within
from memory.ports.record import Partition
from memory.ports.writes import Absent, AtVersion, Put, RaiseGeneration
from tests.support.mysql_servers import MySqlServer
from tests.unit.adapters.sql.mysql.conftest import ON_SERVER, Raw

pytestmark = ON_SERVER


@pytest.fixture(scope="module")
def own() -> MySqlServer:
    """A server that may be frozen, killed and set otherwise without disturbing other
    tests.
    """
    return MySqlServer()


@pytest_asyncio.fixture
async def few(own: MySqlServer) -> AsyncIterator[MySqlStore]:
    await own.fresh("few")
    store = MySqlStore(own.url("few", pool_size=2))
    await store.open(DECLARED)
    yield store
    await store.close()


async def test_a_wrong_password_is_a_config_error_that_does_not_show_it(
    server: MySqlServer, database: str
) -> None:
    store = MySqlStore(f"mysql://root:wrong-pw@127.0.0.1:{server.port}/{database}")
    with pytest.raises(ConfigError, match="password") as caught:
        await store.open(DECLARED)
    assert "wrong-pw" not in str(caught.value)


async def test_a_database_that_is_not_there_is_a_config_error(server: MySqlServer) -> None:
    with pytest.raises(ConfigError, match="no such database"):
        await MySqlStore(server.url("nowhere")).open(DECLARED)


async def test_tls_that_is_asked_for_and_not_offered_is_refused(
    server: MySqlServer, database: str, raw: Raw
) -> None:
    ((offered,),) = await raw("SELECT @@have_ssl")
    if offered == "YES":
        pytest.skip("this server offers TLS")
    with pytest.raises((ConfigError, StoreError)):
        await MySqlStore(server.url(database, ssl_mode="required")).open(DECLARED)


# -- settings --------------------------------------------------------------------------


async def test_health_tells_settings_and_no_secret(store: MySqlStore, database: str) -> None:
    health = await store.check()
    assert health.ok
    assert health.version.startswith(("MariaDB ", "MySQL "))
    assert health.facts["schema"] == str(FORM)
    assert "STRICT_ALL_TABLES" in str(health.facts["strict"])
    assert health.facts["innodb_flush_log_at_trx_commit"] == 1
    assert database in health.detail
    assert "p@ss" not in repr(health)


async def test_every_session_is_strict_whatever_the_server_is(own: MySqlServer, few: MySqlStore) -> None:
    await own.run_sql("SET GLOBAL sql_mode = ''")
    await own.run_sql("SET GLOBAL time_zone = '+05:00'")
    try:
        connection = await connect(few.config)
        row = await connection.fetchrow(
            "SELECT @@sql_mode, @@time_zone, @@tx_isolation"
            if "MariaDB" in (await few.check()).version
            else "SELECT @@sql_mode, @@time_zone, @@transaction_isolation"
        )
        await connection.goodbye()
    finally:
        await own.run_sql("SET GLOBAL sql_mode = DEFAULT")
        await own.run_sql("SET GLOBAL time_zone = DEFAULT")
    assert row is not None
    assert b"STRICT_ALL_TABLES" in row[0]
    assert row[1:] == (b"+00:00", b"READ-COMMITTED")


async def test_a_log_of_statements_is_refused_at_open_and_not_at_every_write() -> None:
    server = MySqlServer("--log-bin=binlog", "--server-id=1", "--binlog-format=STATEMENT")
    try:
        await server.fresh("logged")
        with pytest.raises(ConfigError, match="ROW or MIXED"):
            await MySqlStore(server.url("logged")).open(DECLARED)
    finally:
        server.stop()


@pytest.mark.parametrize(("flush", "window"), [(0, timedelta(seconds=1)), (2, timedelta(seconds=1))])
async def test_a_server_that_does_not_wait_for_the_disk_is_not_durable(
    own: MySqlServer, few: MySqlStore, flush: int, window: timedelta, caplog: pytest.LogCaptureFixture
) -> None:
    assert few.capabilities.durable
    assert few.epoch == ""
    await own.run_sql(f"SET GLOBAL innodb_flush_log_at_trx_commit = {flush}")
    try:
        hasty = MySqlStore(own.url("few"))
        await hasty.open(DECLARED)
        assert not hasty.capabilities.durable
        assert hasty.capabilities.loss_window == window
        health = await hasty.check()
        assert hasty.epoch == health.epoch != ""
        assert "set it to 1" in str(health.facts["advice"])
        assert "innodb_flush_log_at_trx_commit" in caplog.text
        await hasty.close()
    finally:
        await own.run_sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1")


async def test_the_largest_packet_decides_the_largest_record(own: MySqlServer, few: MySqlStore) -> None:
    await own.run_sql(f"SET GLOBAL max_allowed_packet = {2 * 2**20}")
    try:
        small = MySqlStore(own.url("few"))
        await small.open(DECLARED)
        limit = small.capabilities.max_record_bytes
        assert limit == (2 * 2**20 - 65_536) * 3 // 4
        worst = record(1, fields={"tags": tuple("x" * ((limit - 10_000) // 4))})
        assert limit * 0.9 < record_bytes(worst) <= limit
        await apply_all(small, put(worst))
        assert await fetch_record(small, 1) == replace(worst, generation=0)
        many = [record(n, body={"said": "y" * (limit // 8)}) for n in range(2, 40)]
        await apply_all(small, *[put(r) for r in many])
        assert len(await query_ids(small)) == 39
        await small.close()
    finally:
        await own.run_sql("SET GLOBAL max_allowed_packet = DEFAULT")


# -- columns ---------------------------------------------------------------------------

TWINS = ("acme", "ACME", "acmé", "acme\u0301", "acme ", "acme\t", "acme\0", " acme", "ａcme", "acme\u200b")


async def test_tenants_and_scopes_that_other_collations_take_for_one_stay_apart(store: MySqlStore) -> None:
    partitions = [Partition(tenant, scope) for tenant in TWINS for scope in ("s", "S", "s ")]
    await apply_all(store, *[put(record(n, at), Absent()) for at in partitions for n in range(3)])
    for tenant in TWINS:
        assert len(await query_ids(store, Tenant(tenant))) == 9
    for at in partitions:
        assert sorted(await query_ids(store, within(at))) == [id_of(n, at) for n in range(3)]


async def test_text_fields_compare_by_code_point_and_without_padding(store: MySqlStore) -> None:
    values = sorted(TWINS)
    await apply_all(
        store, *[put(record(n, fields={"type": value, "source": value})) for n, value in enumerate(values)]
    )
    for field in ("type", "source"):  # one has an index, the other none
        assert await query_ids(store, order=(Order(field),)) == [id_of(n) for n in range(len(values))]
        for n, value in enumerate(values):
            assert await query_ids(store, part=Eq(field, value)) == [id_of(n)]


async def test_long_texts_are_in_order_and_paged_beyond_what_servers_look_at_by_themselves(
    store: MySqlStore,
) -> None:
    alike = "é" * 15_000
    values = [f"{alike}{n:02}" for n in (3, 1, 2, 0)]
    await apply_all(store, *[put(record(n, fields={"source": value})) for n, value in enumerate(values)])
    order = (Order("source"),)
    assert await query_ids(store, order=order) == [id_of(n) for n in (3, 1, 2, 0)]
    first = await store.query(Query(SAMPLES, within(HERE), order=order, limit=2))
    second = await store.query(Query(SAMPLES, within(HERE), order=order, limit=2, cursor=first.cursor))
    assert [r.key.id for r in second.records] == [id_of(2), id_of(0)]


async def test_moments_are_exact_integers(store: MySqlStore, raw: Raw) -> None:
    for n, at in enumerate(
        (datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
    ):
        await apply_all(store, put(record(n, created_at=at, fields={"valid_from": at})))
        assert (await fetch_record(store, n)).fields["valid_from"] == at
    assert [row[0] for row in await raw("SELECT created_at FROM memory_samples ORDER BY created_at")] == [
        -62_135_596_799_999_999,
        253_402_300_799_999_999,
    ]


LONGEST = (("t" * TENANT_BYTES, "s" * SCOPE_BYTES), ("é" * 500, "😀" * 375))


@pytest.mark.parametrize(("tenant", "scope"), LONGEST)
async def test_names_as_long_as_a_key_may_be_are_told_apart_to_the_last_byte(
    store: MySqlStore, tenant: str, scope: str
) -> None:
    places = [
        Partition(tenant, scope),
        Partition(tenant, f"{scope[:-1]}x"),
        Partition(f"{tenant[:-1]}x", scope),
    ]
    records = [record(n, at) for n, at in enumerate(places)]
    await apply_all(store, *map(put, records))
    assert [getattr(r, "key", None) for r in await store.get(SAMPLES, [r.key for r in records])] == [
        r.key for r in records
    ]
    for at, stored in zip(places, records, strict=True):
        assert await query_ids(store, within(at)) == [stored.key.id]


@pytest.mark.parametrize("part", ["tenant", "scope"])
async def test_a_longer_name_is_rejected_by_name(store: MySqlStore, part: str) -> None:
    most = TENANT_BYTES if part == "tenant" else SCOPE_BYTES
    long = "é" * (most // 2) + "x"
    long_one = record(1, Partition(long if part == "tenant" else "acme", long if part == "scope" else "s"))
    for writes in ([put(long_one)], [Put(SAMPLES, long_one, AtVersion(1)), put(record(2))]):
        outcome = (await store.apply(writes))[0]
        assert outcome.status == "rejected"
        assert part in outcome.reason
        assert str(most) in outcome.reason
    assert await store.get(SAMPLES, [long_one.key]) == [None]


# -- others at work --------------------------------------------------------------------


async def test_a_deadlock_is_not_the_callers_affair(
    store: MySqlStore, server: MySqlServer, database: str
) -> None:
    """Another program locks two rows in the order opposite to the store's; the server
    ends the store's transaction, which is made again.
    """
    await apply_all(store, put(record(1)), put(record(2)))
    other = await connect(store.config)
    await other.begin()
    await other.fetch("SELECT number FROM memory_samples WHERE id = ? FOR UPDATE", id_of(2))
    for n in range(50):  # the heavier transaction is the one that is let live
        await other.change("INSERT INTO memory_record_numbers (name, given) VALUES (?, 1)", f"other-{n}")
    both = asyncio.ensure_future(
        store.apply(
            [put(record(1, version=2), AtVersion(1)), put(record(2, version=2), AtVersion(1))], together=True
        )
    )
    await _until_somebody_waits(server)
    await other.fetch("SELECT number FROM memory_samples WHERE id = ? FOR UPDATE", id_of(1))
    await other.rollback()
    await other.goodbye()
    assert [o.status for o in await both] == ["applied", "applied"]
    assert (await fetch_record(store, 2)).version == 2


async def test_sixty_four_writers_of_one_record_each_get_an_answer_and_one_wins_each_round(
    store: MySqlStore,
) -> None:
    await apply_all(store, put(record(1, texts={"content": "lantern"})))
    for version in range(2, 6):
        writes = [
            put(record(1, version=version, texts={"content": f"lantern {n}"}), AtVersion(version - 1))
            for n in range(64)
        ]
        outcomes = await asyncio.gather(*[one(store, write) for write in writes])
        assert sorted(o.status for o in outcomes) == ["applied"] + ["conflict"] * 63
    assert await hit_ids(store, "lantern") == {id_of(1)}


async def test_a_generation_raised_by_one_client_is_seen_by_the_next_put_of_another(
    store: MySqlStore, server: MySqlServer, database: str
) -> None:
    other = MySqlStore(server.url(database))
    await other.open(DECLARED)
    await apply_all(other, put(record(1)))
    assert (await one(store, RaiseGeneration(HERE))).number == 1
    assert (await one(other, put(record(2)))).generation == 1
    assert (await one(other, put(record(3, generation=0)))).reason == "generation"
    assert (await one(other, put(record(4, generation=7)))).generation == 7
    await other.close()


@pytest.mark.parametrize("batch", [False, True], ids=["one statement", "a transaction"])
async def test_a_put_waits_for_a_raise_under_way_and_is_judged_by_what_it_leaves(
    store: MySqlStore, server: MySqlServer, batch: bool
) -> None:
    await apply_all(store, put(record(1)))
    other = await connect(store.config)
    await other.begin()
    await other.change("UPDATE memory_partitions SET generation = 1")
    late = [put(record(2, generation=0), Absent()), *([put(record(3, generation=0))] if batch else [])]
    waiting = asyncio.ensure_future(store.apply(late))
    await _until_somebody_waits(server)
    assert not waiting.done()
    await other.commit()
    await other.goodbye()
    assert {o.reason for o in await waiting} == {"generation"}
    assert await query_ids(store) == [id_of(1)]


async def _until_somebody_waits(server: MySqlServer) -> None:
    """Until the server says that a transaction waits for a lock. Who asks more often
    than every 0.1 s is told the same again and again.
    """
    for _ in range(400):
        if (
            await server.run_sql(
                "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
            )
        )[0][0]:
            return
        await asyncio.sleep(0.15)
    raise AssertionError("nobody waits")


async def test_single_records_are_found_before_and_after_their_words_are_indexed(
    store: MySqlStore, raw: Raw
) -> None:
    for n in range(70):
        await apply_all(store, put(record(n, texts={"content": f"lantern number{n}"}), Absent()))
    waiting = (await raw("SELECT COUNT(*) FROM memory_samples WHERE lexemes = 0"))[0][0]
    assert 0 < waiting < 64, "some were taken up together, some still wait"
    assert len(await hit_ids(store, "lantern")) == 50
    for n in (0, 69):
        assert await hit_ids(store, f"number{n}") == {id_of(n)}
        await apply_all(store, put(record(n, version=2, texts={"content": "candle"}), AtVersion(1)))
        assert await hit_ids(store, f"number{n}") == set()
        await apply_all(store, delete(n))
    assert await hit_ids(store, "candle") == set()
    await store.delete_matching(Query(SAMPLES, within(HERE)), 100)
    assert await raw("SELECT * FROM memory_words_samples") == []


async def test_a_search_takes_up_what_others_left_waiting(store: MySqlStore, raw: Raw) -> None:
    await apply_all(store, *[put(record(n, texts={"content": "lantern"})) for n in range(600)])
    await raw("DELETE FROM memory_words_samples")
    await raw("UPDATE memory_samples SET lexemes = 0")
    assert len(await search_hits(store, "lantern", limit=1000)) == 600
    assert (await raw("SELECT COUNT(*) FROM memory_samples WHERE lexemes = 0"))[0][0] <= 512


# -- closing ---------------------------------------------------------------------------


async def test_closing_ends_who_waits_for_a_connection_serves_who_has_one_and_leaves_none_open(
    store: MySqlStore, server: MySqlServer, database: str
) -> None:
    """One call waits for a lock of someone else's, the others for its connection."""
    await apply_all(store, put(record(1)))
    narrow = MySqlStore(server.url(database, pool_size=1))
    await narrow.open(DECLARED)
    other = await connect(store.config)
    await other.begin()
    await other.fetch("SELECT number FROM memory_samples FOR UPDATE")
    under_way = asyncio.ensure_future(one(narrow, put(record(1, version=2), AtVersion(1))))
    await _until_somebody_waits(server)
    queued = [asyncio.ensure_future(fetch_stored(narrow, 1)) for _ in range(3)]
    await asyncio.sleep(0.05)
    closing = asyncio.ensure_future(narrow.close())
    assert [
        type(end) for end in await asyncio.wait_for(asyncio.gather(*queued, return_exceptions=True), 60)
    ] == [NotOpen] * 3
    assert not closing.done()
    await other.rollback()
    await closing
    assert (await under_way).applied
    await other.goodbye()
    await store.close()
    for _ in range(300):  # the server takes a moment to notice
        left = await server.run_sql("SELECT id FROM information_schema.processlist WHERE db = %s", database)
        if not left:
            break
        await asyncio.sleep(0.1)
    assert not left


# -- cancelled -------------------------------------------------------------------------


async def test_a_cancelled_write_leaves_its_connection_to_nobody(store: MySqlStore) -> None:
    await apply_all(store, put(record(0)))
    for n in range(1, 30):
        write = asyncio.ensure_future(store.apply([put(record(n)), put(record(n + 100))]))
        await asyncio.sleep(0.0002 * n)
        write.cancel()
        await asyncio.gather(write, return_exceptions=True)
        assert (await fetch_record(store, 0)).key == key_of(0)
    for n in range(1, 30):
        assert (await fetch_stored(store, n) is None) == (await fetch_stored(store, n + 100) is None), (
            "both or none"
        )
