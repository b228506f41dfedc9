"""What only a real server shows and the contract does not ask: wrong passwords,
settings, connections, races of its own, limits.
"""

from __future__ import annotations

import asyncio

import pytest

from memory.adapters.sql.naming import FORM
from memory.adapters.sql.postgresql.store import PostgresStore
from memory.adapters.sql.server.sharing import AT_ONCE
from memory.domain.errors import ConfigError
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import (
    HERE,
    apply_all,
    delete,
    fetch_record,
    fetch_stored,
    id_of,
    key_of,
    one,
    put,
    query_ids,
    record,
    search_hits,
)
from memory.ports.query import Near, Query, Search, within
from memory.ports.record import Partition, Record, pack_vector
from memory.ports.writes import Absent, AtVersion, Newer
from tests.support.postgres_servers import Postgres
from tests.unit.adapters.sql.postgresql.conftest import BOTH, ON_SERVER, Raw

pytestmark = ON_SERVER


async def test_a_wrong_password_is_a_config_error_that_does_not_show_it(server: Postgres) -> None:
    right = server.settings
    store = PostgresStore(f"postgresql://postgres:wrong-pw@127.0.0.1:{right['port']}/postgres")
    with pytest.raises(ConfigError, match="password") as caught:
        await store.open(DECLARED)
    assert "wrong-pw" not in str(caught.value)


async def test_a_database_that_is_not_there_is_a_config_error(server: Postgres) -> None:
    store = PostgresStore(server.url().replace("/postgres?", "/nowhere?"))
    with pytest.raises(ConfigError, match="no such database"):
        await store.open(DECLARED)


async def test_health_tells_settings_and_no_secret(store: PostgresStore, schema: str) -> None:
    health = await store.check()
    assert health.ok
    assert health.version.startswith("PostgreSQL ")
    assert health.facts["schema"] == str(FORM)
    assert (health.facts["fsync"], health.facts["synchronous_commit"]) == ("on", "on")
    assert str(health.facts["pgvector"]).startswith("off: ")
    assert schema in health.detail
    assert "p@ss" not in repr(health)
    assert not store.capabilities.semantic


async def test_a_server_that_does_not_wait_for_the_disk_is_not_durable(
    store: PostgresStore, server: Postgres, schema: str, raw: Raw
) -> None:
    assert store.capabilities.durable
    await raw("ALTER ROLE postgres SET synchronous_commit = off")
    try:
        hasty = PostgresStore(server.url(schema))
        await hasty.open(DECLARED)
        assert not hasty.capabilities.durable
        assert hasty.capabilities.loss_window is not None
        assert hasty.epoch == (await hasty.check()).epoch != ""
        await hasty.close()
    finally:
        await raw("ALTER ROLE postgres RESET synchronous_commit")


# -- connections -----------------------------------------------------------------------


async def test_more_callers_than_connections_wait_their_turn(
    server: Postgres, store: PostgresStore, schema: str
) -> None:
    small = PostgresStore(server.url(schema, pool_size=2))
    await small.open(DECLARED)
    await asyncio.gather(*[apply_all(small, put(record(n))) for n in range(60)])
    assert len(await query_ids(store)) == 60
    assert small.pool is not None
    assert small.pool._made <= 2
    await small.close()


async def test_without_prepared_statements_that_outlive_a_transaction_everything_works(
    server: Postgres, store: PostgresStore, schema: str
) -> None:
    plain = PostgresStore(server.url(schema, statement_cache_size=0))
    await plain.open(DECLARED)
    await apply_all(plain, *[put(record(n, texts={"content": "lantern"})) for n in range(5)])
    await apply_all(plain, put(record(9, texts={"content": "lantern"})), delete(1))
    assert len(await search_hits(plain, "lantern")) == 5
    assert await plain.delete_matching(Query(SAMPLES, within(HERE)), 50) == 5
    await plain.close()


# -- races -----------------------------------------------------------------------------


def test_puts_that_an_event_loop_left_when_it_ended_keep_nobody_waiting_on_another(
    server: Postgres, schema: str
) -> None:
    store = PostgresStore(server.url(schema))

    async def left() -> list[asyncio.Task[object]]:
        await store.open(DECLARED)
        return [asyncio.create_task(store.apply([put(record(n), Absent())])) for n in range(AT_ONCE)]

    async def on_another() -> None:
        await store.close()
        await store.open(DECLARED)
        async with asyncio.timeout(30):
            assert await apply_all(store, put(record(9), Absent()))
        await store.close()

    assert all(task.cancelled() for task in asyncio.run(left()))
    asyncio.run(on_another())


async def test_a_database_that_is_serializable_by_default_loses_no_write(
    server: Postgres, store: PostgresStore, schema: str, raw: Raw
) -> None:
    await raw("ALTER ROLE postgres SET default_transaction_isolation = 'serializable'")
    try:
        strict = PostgresStore(server.url(schema))
        await strict.open(DECLARED)
        await apply_all(strict, put(record(1, version=1, body={"n": 0})))

        async def increment() -> None:
            while True:
                now = await fetch_record(strict, 1)
                if (
                    await one(
                        strict,
                        put(
                            record(1, version=now.version + 1, body={"n": now.body["n"] + 1}),
                            AtVersion(now.version),
                        ),
                    )
                ).applied:
                    return

        await asyncio.gather(*[increment() for _ in range(8)])
        assert dict((await fetch_record(strict, 1)).body) == {"n": 8}
        await strict.close()
    finally:
        await raw("ALTER ROLE postgres RESET default_transaction_isolation")


async def test_batches_over_the_same_keys_in_any_order_all_end(
    server: Postgres, store: PostgresStore, schema: str
) -> None:
    other = PostgresStore(server.url(schema))
    await other.open(DECLARED)

    async def churn(client: PostgresStore, seed: int) -> None:
        for version in range(1, 12):
            ids = [(seed * 7 + i * (1 + seed % 3)) % 20 for i in range(12)]
            await client.apply([put(record(n, version=version * 100 + seed), Newer()) for n in ids])
            await client.apply(
                [put(record(n, version=version * 100 + seed + 50), Newer()) for n in dict.fromkeys(ids)],
                together=True,
            )

    await asyncio.wait_for(
        asyncio.gather(*[churn(client, seed) for seed, client in enumerate([store, other] * 4)]), 60
    )
    stands = await store.get(SAMPLES, [key_of(n) for n in range(20)])
    assert all(s is None or (isinstance(s, Record) and s.version > 1100) for s in stands)
    await other.close()


@pytest.mark.parametrize("server", BOTH, indirect=True)
async def test_vectors_stay_exact_beside_the_extension(store: PostgresStore) -> None:
    vector = pack_vector([1e-30, 3e38, -0.0, 0.1])
    await apply_all(store, put(record(1, vector=vector)))
    assert (await fetch_record(store, 1)).vector == vector
    if store.capabilities.semantic:
        hits = await store.search(Search(SAMPLES, within(HERE), Near(vector), 5))
        assert [(h.head.key.id, h.head.vector) for h in hits] == [(id_of(1), None)]


async def test_long_and_hostile_values_are_kept_or_refused_by_name(store: PostgresStore) -> None:
    noise = "".join(
        [chr(0x4E00 + (n * 7919) % 20_000) for n in range(20_000)]
    )  # what no compression makes fit into an index
    await apply_all(
        store,
        put(
            record(
                1,
                fields={"type": noise, "source": "a\x00b", "tags": (noise, "\x00", "\x01")},
                body={"\x00k": ["\x01\x00", -0.0, 1e300]},
            )
        ),
    )
    stored = await fetch_record(store, 1)
    assert (stored.fields["type"], stored.fields["source"], stored.fields["tags"]) == (
        noise,
        "a\x00b",
        (noise, "\x00", "\x01"),
    )
    assert dict(stored.body) == {"\x00k": ["\x01\x00", -0.0, 1e300]}
    for bad, named in (
        (record(2, Partition(HERE.tenant, "s" * 3000)), "scope"),
        (record(2, fields={"type": "\ud800"}), "surrogate"),
        (record(2, body={"x": "\udfff"}), "surrogate"),
    ):
        for outcome in (await one(store, put(bad)), (await store.apply([put(record(3)), put(bad)]))[1]):
            assert outcome.status == "rejected"
            assert named in outcome.reason
    assert await fetch_stored(store, 2) is None


async def test_a_text_beyond_the_limits_of_a_tsvector_is_kept_and_found(store: PostgresStore) -> None:
    many = " ".join([f"word{n}x" for n in range(120_000)])
    await apply_all(
        store,
        put(record(1, texts={"title": "lantern", "content": many})),
        put(record(2, texts={"content": "lantern " * 40_000})),
    )
    assert (await fetch_record(store, 1)).texts["content"] == many
    assert {h.head.key.id for h in await search_hits(store, "lantern")} == {id_of(1), id_of(2)}
    assert [h.head.key.id for h in await search_hits(store, "word17x")] == [id_of(1)]
