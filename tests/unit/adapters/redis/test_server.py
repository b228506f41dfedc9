"""What only a real server shows: frozen, dead, restarted, full, forbidding; expiry;
settings read at open.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from memory.adapters.redis.keys import SCHEMA
from memory.adapters.redis.store import RedisStore
from memory.domain.errors import ConfigError, StoreFull, StoreTimeout, StoreUnavailable
from memory.ports.candidates import Candidates
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import (
    HERE,
    apply_all,
    fetch_record,
    fetch_stored,
    id_of,
    key_of,
    one,
    put,
    query_ids,
    record,
)
from memory.ports.query import MAX_LIMIT, Order, Query, Tenant, Where, within
from memory.ports.record import PendingStep, Record, Role
from memory.ports.store import Store
from memory.ports.writes import Absent, Annotate, RaiseGeneration
from tests.support import redis_servers
from tests.support.servers import Server
from tests.support.waiting import until
from tests.unit.adapters.redis.conftest import NEEDS_SERVER

pytestmark = [pytest.mark.backend("redis"), *NEEDS_SERVER]

CALLS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "get": lambda s: s.get(SAMPLES, [key_of(1)]),
    "apply": lambda s: s.apply([put(record())]),
    "query": lambda s: s.query(Query(SAMPLES, within(HERE))),
    "count": lambda s: s.count(Query(SAMPLES, Tenant("acme"))),
    "candidates": lambda s: s.candidates(Candidates(SAMPLES, within(HERE), "heron")),
    "delete_matching": lambda s: s.delete_matching(Query(SAMPLES, within(HERE)), 1),
}


@contextmanager
def raw(server: Server) -> Iterator[Any]:
    """The server as any other program sees it."""
    with redis.Redis(port=server.port, socket_timeout=10) as client:
        yield client


@asynccontextmanager
async def opened(server: Server, **options: Any) -> AsyncIterator[RedisStore]:
    url = options.pop("url", f"redis://127.0.0.1:{server.port}")
    store = RedisStore(url, **options)
    await store.open(DECLARED)
    try:
        yield store
    finally:
        await store.close()


# -- no answer -------------------------------------------------------------------------


async def test_a_frozen_server_times_every_call_out_and_works_again_when_it_thaws(
    store: RedisStore, server: Server, prefix: str
) -> None:
    await apply_all(store, put(record()))
    async with opened(server, prefix=prefix, timeout=0.5) as hurried:

        async def works() -> bool:
            try:
                return (
                    isinstance(await fetch_stored(hurried, 1), Record)
                    and (await one(hurried, put(record(2)))).applied
                )
            except StoreTimeout:  # a busy machine takes its time too
                return False

        server.freeze()
        try:
            for call in CALLS.values():
                begun = time.monotonic()
                with pytest.raises(StoreTimeout):
                    await call(hurried)
                assert time.monotonic() - begun < 60
            assert not (await hurried.check()).ok
            with pytest.raises(StoreUnavailable):
                await RedisStore(f"redis://127.0.0.1:{server.port}", timeout=0.5).open(DECLARED)
        finally:
            server.thaw()
        await until(works)


async def test_more_callers_than_connections_wait_their_turn_and_no_longer_than_the_time_limit(
    server: Server, prefix: str
) -> None:
    async with opened(server, prefix=prefix, timeout=60, connections=2) as patient:
        await asyncio.gather(*(apply_all(patient, put(record(n))) for n in range(40)))
        assert len(await query_ids(patient)) == 40
    async with opened(server, prefix=prefix, timeout=0.7, connections=2) as store:
        server.freeze()
        try:
            begun = time.monotonic()
            results = await asyncio.gather(
                *(fetch_stored(store, n) for n in range(400)), return_exceptions=True
            )
            assert all(isinstance(r, StoreTimeout) for r in results)
            assert time.monotonic() - begun < 60, "one after the other would take 140 s"
        finally:
            server.thaw()


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster", "redis+sentinel"])
async def test_a_host_where_nothing_listens_is_unavailable(scheme: str) -> None:
    store = RedisStore(f"{scheme}://127.0.0.1:1{'/main' if 'sentinel' in scheme else ''}", timeout=2)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await store.open(DECLARED)


async def test_calls_cut_off_anywhere_leave_no_answer_for_the_next(server: Server, prefix: str) -> None:
    async with opened(server, prefix=prefix, connections=2) as store:
        await apply_all(store, *[put(record(n, body={"n": n})) for n in range(20)])
        for turn in range(120):
            call = asyncio.ensure_future(store.get(SAMPLES, [key_of(turn % 20)]))
            for _ in range(turn % 12):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            wanted = (turn * 7) % 20
            assert (await fetch_record(store, wanted)).body == {"n": wanted}


async def test_closing_waits_for_the_calls_under_way(server: Server, prefix: str) -> None:
    store = RedisStore(f"redis://127.0.0.1:{server.port}", prefix=prefix)
    await store.open(DECLARED)
    calls = [asyncio.ensure_future(store.apply([put(record(n))])) for n in range(50)]
    await asyncio.sleep(0)  # let them begin
    await store.close()
    assert [(await call)[0].applied for call in calls] == [True] * 50


# -- restarts --------------------------------------------------------------------------


async def test_a_restart_behind_an_open_store_is_noticed_and_costs_no_second_open(prefix: str) -> None:
    server = redis_servers.default()
    async with opened(server, prefix=prefix) as store:
        await apply_all(store, put(record()))
        before = store.epoch
        server.kill()
        with pytest.raises(StoreUnavailable):
            await store.apply([put(record(2))])
        server.revive()
        assert await fetch_stored(store, 1) is None
        assert store.epoch not in ("", before), (
            "what was cached before the restart must not be taken for fresh"
        )
        await apply_all(store, put(record(2)))
        assert (await store.check()).epoch == store.epoch


async def test_scripts_the_server_forgot_are_sent_again(store: RedisStore, server: Server) -> None:
    await apply_all(store, put(record()))
    with raw(server) as client:
        client.script_flush()
    await apply_all(store, put(record(2)))
    assert await query_ids(store) == [id_of(1), id_of(2)]


# -- refusals --------------------------------------------------------------------------


async def test_a_full_server_keeps_nothing_of_the_call_and_says_so(prefix: str) -> None:
    server = redis_servers.default()
    async with opened(server, prefix=prefix) as store:
        await apply_all(store, put(record()))
        with raw(server) as client:
            client.config_set("maxmemory", 1000)
            try:
                with pytest.raises(StoreFull):
                    await store.apply([put(record(2)), put(record(3))])
                assert await store.get(SAMPLES, [key_of(n) for n in (1, 2, 3)]) == [
                    await fetch_record(store, 1),
                    None,
                    None,
                ]
            finally:
                client.config_set("maxmemory", 0)
    redis_servers.emptied(server.port)


async def test_a_wrong_password_is_refused_without_repeating_it(server: Server) -> None:
    store = RedisStore(f"redis://ann:hunter2@127.0.0.1:{server.port}")
    with pytest.raises(ConfigError, match="refuses the user or the password") as caught:
        await store.open(DECLARED)
    assert "hunter2" not in str(caught.value)


async def test_a_user_who_may_not_read_settings_gets_a_store_that_does_not_claim_to_be_durable(
    server: Server, prefix: str
) -> None:
    with raw(server) as client:
        client.execute_command("ACL", "SETUSER", "ann", "on", ">hunter2", "~*", "+@all", "-config")
        try:
            async with opened(
                server, url=f"redis://ann:hunter2@127.0.0.1:{server.port}", prefix=prefix
            ) as store:
                assert not store.capabilities.durable
                assert store.capabilities.loss_window is None
                assert store.epoch
                await apply_all(store, put(record()))
                assert "CONFIG" in (await store.check()).detail
        finally:
            client.execute_command("ACL", "DELUSER", "ann")


@pytest.mark.parametrize("other", [SCHEMA + 1, SCHEMA - 1])
async def test_another_layout_is_refused(server: Server, prefix: str, other: int) -> None:
    with raw(server) as client:
        client.set(f"{{{prefix}}}:schema", str(other))
    with pytest.raises(ConfigError, match=f"layout {other}"):
        await RedisStore(f"redis://127.0.0.1:{server.port}", prefix=prefix).open(DECLARED)


async def test_a_cluster_is_not_opened_as_a_single_server_nor_the_other_way(server: Server) -> None:
    with pytest.raises(ConfigError, match=r"redis\+cluster://"):
        await RedisStore(f"redis://127.0.0.1:{redis_servers.cluster().port}").open(DECLARED)
    with pytest.raises(ConfigError, match="redis://"):
        await RedisStore(f"redis+cluster://127.0.0.1:{server.port}").open(DECLARED)


# -- settings --------------------------------------------------------------------------


async def test_opening_says_what_may_be_lost_and_what_to_change(
    prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = redis_servers.default()
    with raw(server) as client:
        client.config_set("appendonly", "yes")
        try:
            with caplog.at_level(logging.WARNING):
                async with opened(server, prefix=prefix, name="short") as store:
                    assert store.capabilities.loss_window == timedelta(seconds=2)
                    assert not store.capabilities.durable
            assert "appendfsync always" in caplog.text
            assert "'short'" in caplog.text
        finally:
            client.config_set("appendonly", "no")


async def test_settings_that_changed_since_opening_are_found_by_a_check(server: Server, prefix: str) -> None:
    async with opened(server, prefix=prefix) as store:
        assert (await store.check()).ok
        with raw(server) as client:
            client.config_set("appendfsync", "everysec")
            try:
                health = await store.check()
            finally:
                client.config_set("appendfsync", "always")
        assert not health.ok
        assert "no longer durable" in health.detail
        assert health.facts["appendfsync"] == "everysec"


# -- expiry ----------------------------------------------------------------------------


async def _cached(store: Store, where: Where | None = None) -> list[str]:
    page = await store.query(
        Query(
            SAMPLES,
            where or within(HERE),
            roles=frozenset({Role.CACHED}),
            order=(Order("created_at"),),
            limit=MAX_LIMIT,
        )
    )
    return [r.key.id for r in page.records]


async def test_what_expired_leaves_nothing_behind(server: Server, prefix: str) -> None:
    async with opened(server, prefix=prefix, grace=0) as store:
        soon = datetime.now(UTC) + timedelta(seconds=2)
        await apply_all(store, *[put(record(n, role=Role.CACHED, expires_at=soon)) for n in range(5)])
        assert len(await _cached(store)) == 5 or datetime.now(UTC) > soon - timedelta(milliseconds=50), (
            "before its time"
        )

        async def gone() -> bool:
            return await store.get(SAMPLES, [key_of(n) for n in range(5)]) == [None] * 5

        await until(gone)
        assert await _cached(store, Tenant("acme")) == []
        with raw(server) as client:
            assert set(client.keys(f"*{prefix}*")) <= {
                f"{{{prefix}}}:{name}".encode() for name in ("schema", "format", "mark")
            } | {*client.keys(f"*{prefix}*:a:*")}


async def test_an_index_forgets_what_expired_and_keeps_what_did_not(server: Server, prefix: str) -> None:
    async with opened(server, prefix=prefix, grace=0) as store:
        soon = datetime.now(UTC) + timedelta(seconds=0.3)
        await apply_all(
            store, *[put(record(n, role=Role.CACHED, expires_at=soon if n % 2 else None)) for n in range(10)]
        )

        async def gone() -> bool:
            return await fetch_stored(store, 1) is None

        await until(gone)
        assert await _cached(store) == [id_of(n) for n in range(0, 10, 2)]
        with raw(server) as client:
            for index in ("t", "a"):
                (name,) = client.keys(f"*{prefix}*:{index}:samples*")
                assert client.zcard(name) == 5


async def test_what_owes_a_step_is_kept_until_it_is_settled(server: Server, prefix: str) -> None:
    async with opened(server, prefix=prefix, grace=0) as store:
        past = datetime.now(UTC) - timedelta(days=1)
        step = PendingStep("deliver", "deliver", {"to": "long"})
        await apply_all(store, put(record(role=Role.CACHED, expires_at=past, owed=(step,))))
        assert isinstance(await fetch_stored(store, 1), Record)
        await apply_all(store, Annotate(SAMPLES, key_of(1), 1, settle=(step.id,)))
        assert await fetch_stored(store, 1) is None


async def test_a_cached_copy_that_becomes_a_home_is_not_forgotten(server: Server, prefix: str) -> None:
    async with opened(server, prefix=prefix, grace=3600) as store:
        await apply_all(
            store, put(record(role=Role.CACHED, expires_at=datetime.now(UTC) - timedelta(minutes=1)))
        )
        await apply_all(store, Annotate(SAMPLES, key_of(1), 1, role=Role.HOME))
        with raw(server) as client:
            assert [client.ttl(name) for name in client.keys(f"*{prefix}*:[rts]:*")] == [-1, -1, -1]


async def test_a_cached_copy_outlives_its_end_by_the_grace(server: Server, prefix: str) -> None:
    async with opened(server, prefix=prefix, grace=3600) as store:
        await apply_all(
            store, put(record(role=Role.CACHED, expires_at=datetime.now(UTC) - timedelta(minutes=1)))
        )
        assert isinstance(await fetch_stored(store, 1), Record)
        with raw(server) as client:
            (name,) = client.keys(f"*{prefix}*:r:*")
            assert 3500_000 < client.pttl(name) < 3600_000


# -- round trips -----------------------------------------------------------------------


async def test_each_operation_is_one_round_trip(store: RedisStore, server: Server) -> None:
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "put": lambda: store.apply([put(record(2), Absent())]),
        "batch": lambda: store.apply([put(record(3)), put(record(4)), RaiseGeneration(HERE)]),
        "get": lambda: store.get(SAMPLES, [key_of(n) for n in range(9)]),
        "query": lambda: store.query(Query(SAMPLES, within(HERE), limit=20)),
    }
    await apply_all(store, put(record(1)))
    for name, call in calls.items():
        await call()
        with raw(server) as client:
            client.config_resetstat()
            await call()
            stats = client.info("commandstats")
        sent = sum(stats.get(f"cmdstat_{c}", {}).get("calls", 0) for c in ("evalsha", "eval"))
        direct = stats.get("cmdstat_mget", {}).get("calls", 0) if name == "get" else 0
        assert sent + direct == 1, name


async def test_writers_at_one_version_from_many_stores_are_judged_one_by_one(
    server: Server, prefix: str
) -> None:
    async with opened(server, prefix=prefix) as one_store, opened(server, prefix=prefix) as other:
        outcomes = await asyncio.gather(
            *(one([one_store, other][n % 2], put(record(version=n + 1), Absent())) for n in range(64))
        )
        assert sum(o.applied for o in outcomes) == 1
