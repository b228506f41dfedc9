"""What a process keeps of the partitions it searches: current after whatever any client
did, read in one trip, never of a server that is another.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
import redis

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.redis.keys import address_of, record_key
from memory.adapters.redis.store import RedisStore
from memory.adapters.redis.thresholds import THRESHOLDS
from memory.ports.candidates import Candidates
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.random_work import DIMENSIONS, PLACES, RandomWork
from memory.ports.contract.support import (
    ELSEWHERE,
    HERE,
    T0,
    apply_all,
    delete,
    id_of,
    key_of,
    one,
    put,
    record,
)
from memory.ports.query import Query, Tenant, within
from memory.ports.record import Partition, Record, Role
from memory.ports.writes import Always, Annotate, Newer, Purge, RaiseGeneration, Release
from tests.support import redis_servers
from tests.support.counting import Counting
from tests.support.depth import drawn
from tests.support.gathering import rows
from tests.support.servers import Server
from tests.unit.adapters.redis.conftest import NEEDS_SERVER, SERVERS

pytestmark = [pytest.mark.backend("redis"), *NEEDS_SERVER]

ASKED = Candidates(SAMPLES, within(HERE), "lantern", counted=("lantern",))


@asynccontextmanager
async def opened(
    server: Server, prefix: str, scheme: str = "redis", port: int | None = None, **options: Any
) -> AsyncIterator[RedisStore]:
    store = RedisStore(f"{scheme}://127.0.0.1:{port or server.port}", prefix=prefix, **options)
    await store.open(DECLARED)
    try:
        yield store
    finally:
        await store.close()


@pytest_asyncio.fixture
async def other(server: Server, prefix: str) -> AsyncIterator[RedisStore]:
    """Another client of the same server."""
    async with opened(server, prefix) as store:
        yield store


def lantern(n: int, at: Partition = HERE, version: int = 1, **parts: Any) -> Record:
    return record(n, at, version, texts={"content": "lantern"}, **parts)


async def lanterns(store: RedisStore) -> set[str]:
    found = await store.candidates(ASKED)
    assert found.statistics.containing["lantern"] == len(found)
    return set(found.ids)


def ids(*numbers: int) -> set[str]:
    return {id_of(n) for n in numbers}


# -- long histories --------------------------------------------------------------------


class _Work(RandomWork):
    """Draws questions for candidates too."""

    def candidates(self) -> Candidates:
        chance = self.chance
        where = chance.choice((within(HERE), within(HERE, ELSEWHERE), within(*PLACES[:3]), Tenant("acme")))
        asked = Candidates(
            SAMPLES,
            where,
            self._words(4),
            self.vector(),
            chance.choice((2, 5, 100)),
            filter=self.maybe_filter(),
            roles=self.roles(),
        )
        asked = replace(
            asked,
            counted=tuple(chance.sample(("deploi", "cafe", "東", "connect", "server"), 3)),
            dimensions=DIMENSIONS,
        )
        return chance.choice((asked, asked, replace(asked, text=""), replace(asked, near=None)))


@pytest.mark.parametrize("scheme", SERVERS)
@pytest.mark.parametrize("told", [3, 250])
@pytest.mark.parametrize("seed", range(drawn(4, 1)))
async def test_after_every_history_of_two_clients_both_answer_as_the_specification(
    scheme: str, prefix: str, told: int, seed: int
) -> None:
    """With few changes told, what was kept is mostly read anew; with many it is mostly
    brought up.
    """
    server = redis_servers.cluster() if scheme == "redis+cluster" else redis_servers.durable()
    thresholds, claims = (
        replace(THRESHOLDS, changes_told=told, page=5),
        replace(RedisStore.claims, tenant_wide=False),
    )
    work, specified = _Work(seed, claims), InMemoryStore()
    await specified.open(DECLARED)
    answered = 0
    async with (
        opened(server, prefix, scheme, thresholds=thresholds) as first,
        opened(server, prefix, scheme, thresholds=thresholds) as second,
    ):
        for turn in range(drawn(150, 60)):
            for store in (first, second):
                writes = [work.write() for _ in range(work.chance.choice((1, 2, 6)))]
                if (
                    turn % 3 == 0
                ):  # of low versions: else most keys would come to hold what hardly any write is newer than
                    writes += [
                        put(replace(work.record(), version=work.chance.randrange(1, 4)), Always())
                        for _ in range(3)
                    ]
                assert await store.apply(writes) == await specified.apply(writes)
                if work.chance.random() < 0.05:
                    erased = Query(SAMPLES, within(HERE, ELSEWHERE), work.maybe_filter())
                    assert await store.delete_matching(erased, 7, T0) == await specified.delete_matching(
                        erased, 7, T0
                    )
            asked = work.candidates()
            wanted = await specified.candidates(asked)
            for store in (first, second):
                found = await store.candidates(asked)
                assert (rows(found), found.statistics) == (rows(wanted), wanted.statistics), (turn, asked)
            answered += len(wanted)
            if turn % 20 == 19:
                assert [(await store.audit()).problems for store in (first, second)] == [(), ()]
    redis_servers.emptied(server.port)
    assert answered > 100, "hardly anything was ever found"


async def test_questions_and_writers_at_once_leave_what_is_true(store: RedisStore, other: RedisStore) -> None:
    chance = random.Random(4)  # noqa: S311
    await apply_all(store, *[put(lantern(n)) for n in range(40)])

    async def write(client: RedisStore, mine: range) -> None:
        for version in range(2, 12):
            n = chance.choice(mine)
            await apply_all(
                client, put(lantern(n, version=version), Newer()) if version % 3 else delete(n, version)
            )
            assert (id_of(n) in await lanterns(client)) is bool(version % 3), (
                "every write is followed at once"
            )

    async def ask(client: RedisStore) -> None:
        for _ in range(30):
            await client.candidates(
                chance.choice(
                    (
                        ASKED,
                        replace(ASKED, where=within(ELSEWHERE, HERE)),
                        replace(ASKED, where=within(HERE, ELSEWHERE)),
                    )
                )
            )

    await asyncio.gather(
        *[write(c, range(start, start + 10)) for start, c in ((0, store), (10, other), (20, store))],
        ask(store),
        ask(other),
    )
    assert await lanterns(store) == await lanterns(other)
    assert [(await client.audit()).problems for client in (store, other)] == [(), ()]


# -- one change at a time --------------------------------------------------------------

CHANGES: dict[str, tuple[Callable[[RedisStore], Any], set[int]]] = {
    "a put": (lambda s: apply_all(s, put(lantern(4))), {1, 2, 3, 4}),
    "another text": (
        lambda s: apply_all(s, put(record(1, version=2, texts={"content": "harbour"}), Newer())),
        {2, 3},
    ),
    "a deletion": (lambda s: apply_all(s, delete(1)), {2, 3}),
    "a departure": (lambda s: apply_all(s, Release(SAMPLES, key_of(1), 1, "long")), {2, 3}),
    "an arrival": (lambda s: apply_all(s, Annotate(SAMPLES, key_of(5), 1, role=Role.HOME)), {1, 2, 3, 5}),
    "a purge": (lambda s: apply_all(s, Purge(SAMPLES, key_of(5), 1, Role.ARRIVING)), {1, 2, 3}),
    "what is cached from now on": (
        lambda s: apply_all(s, put(lantern(1, version=2, role=Role.CACHED), Newer())),
        {2, 3},
    ),
    "an erasure": (lambda s: s.delete_matching(Query(SAMPLES, within(HERE)), 9), set()),
    "a generation": (lambda s: apply_all(s, RaiseGeneration(HERE), put(lantern(4))), {1, 2, 3, 4}),
}


@pytest.mark.parametrize("what", CHANGES)
async def test_what_another_client_did_is_followed_in_one_trip(
    server: Server, prefix: str, other: RedisStore, what: str
) -> None:
    change, left = CHANGES[what]
    async with Counting(server.port) as way, opened(server, prefix, port=way.port) as store:
        await apply_all(other, *[put(lantern(n)) for n in (1, 2, 3)], put(lantern(5, role=Role.ARRIVING)))
        assert await lanterns(store) == ids(1, 2, 3)
        await change(other)
        before = way.trips
        assert await lanterns(store) == ids(*left)
        assert await lanterns(store) == ids(*left)
        assert way.trips - before == (2 if left else 4), "an answer that is empty looks for the mark, too"


async def test_more_changes_than_are_told_in_one_call_are_all_seen(server: Server, prefix: str) -> None:
    few = replace(THRESHOLDS, changes_told=3)
    async with (
        opened(server, prefix, thresholds=few) as store,
        opened(server, prefix, thresholds=few) as other,
    ):
        await apply_all(store, *[put(lantern(n)) for n in range(8)])
        assert await lanterns(store) == ids(*range(8))
        for several in (2, 4, 3, 7):
            await other.apply(
                [put(record(n, version=several + 1, texts={"content": "harbour"})) for n in range(several)]
            )
            assert await lanterns(store) == ids(*range(several, 8))
            await other.apply([put(lantern(n, version=several + 2)) for n in range(8)])
            assert await lanterns(store) == ids(*range(8))


async def test_what_is_changed_again_and_again_takes_no_more_and_more_room(store: RedisStore) -> None:
    await apply_all(store, *[put(lantern(n)) for n in range(10)])
    assert await lanterns(store) == ids(*range(10))
    few = store._forms.bytes
    for version in range(2, 40):
        await apply_all(store, *[put(lantern(n, version=version), Newer()) for n in range(10)])
        assert await lanterns(store) == ids(*range(10))
        assert store._forms.bytes < 12 * few


async def test_a_partition_of_many_pages_is_read_once(server: Server, prefix: str, other: RedisStore) -> None:
    tiny = replace(THRESHOLDS, page=3, answer_bytes=1)
    async with Counting(server.port) as way, opened(server, prefix, port=way.port, thresholds=tiny) as store:
        await apply_all(other, *[put(lantern(n)) for n in range(20)])
        assert await lanterns(store) == ids(*range(20))
        before = way.trips
        assert await lanterns(store) == ids(*range(20))
        assert way.trips - before == 1


async def test_copies_that_the_server_forgets_are_found_only_while_they_stand(store: RedisStore) -> None:
    now = datetime.now(UTC)
    await apply_all(
        store, put(lantern(1)), put(lantern(2, role=Role.CACHED, expires_at=now + timedelta(days=1)))
    )
    both = replace(ASKED, roles=frozenset({Role.HOME, Role.CACHED}))
    assert set((await store.candidates(both)).ids) == ids(1, 2)
    assert await lanterns(store) == ids(1)
    await apply_all(
        store, put(lantern(2, version=2, role=Role.CACHED, expires_at=now - timedelta(days=1)), Newer())
    )
    assert set((await store.candidates(both)).ids) == await lanterns(store) == ids(1)


async def test_questions_cut_off_anywhere_leave_what_is_kept_as_it_is(
    server: Server, prefix: str, other: RedisStore
) -> None:
    async with opened(server, prefix, thresholds=replace(THRESHOLDS, page=2, changes_told=4)) as store:
        for turn in range(1, 80):
            await apply_all(other, *[put(lantern(n, version=2 * turn), Newer()) for n in range(turn % 9 + 1)])
            call = asyncio.ensure_future(store.candidates(ASKED))
            for _ in range(turn % 16):
                await asyncio.sleep(0.0003 if turn % 2 else 0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            await apply_all(other, delete(turn % 9, 2 * turn + 1))
            if turn % 3 == 0:
                assert await lanterns(store) == await lanterns(other)
                assert (await store.audit()).problems == ()


async def test_a_full_server_is_asked_all_the_same(store: RedisStore, server: Server, prefix: str) -> None:
    await apply_all(store, put(lantern(1)))
    with redis.Redis(port=server.port) as client:
        client.delete(*client.keys(f"*{prefix}*:c:*"))
    redis_servers.limit(server.port, -1_000)
    try:
        assert await lanterns(store) == await lanterns(store) == ids(1)
    finally:
        redis_servers.limit(server.port, None)


# -- another server --------------------------------------------------------------------


@pytest.mark.parametrize("written", [0, 1])
async def test_nothing_is_left_of_a_server_that_was_emptied(
    store: RedisStore, server: Server, written: int
) -> None:
    await apply_all(store, put(lantern(1)))
    assert await lanterns(store) == ids(1)
    redis_servers.emptied(server.port)
    await apply_all(store, *[put(lantern(n)) for n in range(2, 2 + written)])
    assert await lanterns(store) == ids(*range(2, 2 + written))


def set_back(server: Server, prefix: str) -> Callable[[], None]:
    """What sets the server back to what it holds now, as a snapshot does."""
    with redis.Redis(port=server.port) as client:
        held = {key: client.dump(key) for key in client.keys(f"*{prefix}*")}

    def back() -> None:
        with redis.Redis(port=server.port) as client:
            for key in client.keys(f"*{prefix}*"):
                client.delete(key)
            for key, value in held.items():
                client.restore(key, 0, value)

    return back


async def test_a_server_that_was_set_back_and_written_as_often_as_before_is_seen_as_it_is(
    store: RedisStore, other: RedisStore, server: Server, prefix: str
) -> None:
    await apply_all(store, put(lantern(1)))
    assert await lanterns(store) == ids(1)
    back = set_back(server, prefix)
    await apply_all(store, put(lantern(2)), put(lantern(3)))
    assert await lanterns(store) == ids(1, 2, 3)
    back()
    assert await lanterns(store) == ids(1)
    await apply_all(store, put(lantern(2)), put(lantern(3)))
    assert await lanterns(store) == ids(1, 2, 3)
    back()
    await apply_all(other, put(lantern(4)), put(lantern(5)))
    assert await lanterns(store) == ids(1, 4, 5)


async def test_what_is_kept_outlives_a_lost_connection_and_not_the_store(
    server: Server, prefix: str, other: RedisStore
) -> None:
    async with opened(server, prefix) as store:
        await apply_all(store, put(lantern(1)))
        assert await lanterns(store) == ids(1)
        with redis.Redis(port=server.port) as client:
            client.client_kill_filter(_type="normal", skipme=True)
        assert await lanterns(store) == await lanterns(other) == ids(1)
        await apply_all(other, put(lantern(2)))
        assert await lanterns(store) == ids(1, 2)
        await store.close()
        await apply_all(other, delete(1))
        await store.open(DECLARED)
        assert await lanterns(store) == ids(2)


async def test_a_server_that_may_drop_anything_is_asked_anew_each_time(prefix: str) -> None:
    server = redis_servers.server("--maxmemory", "200mb", "--maxmemory-policy", "allkeys-lru")
    try:
        async with opened(server, prefix) as store:
            await apply_all(store, put(lantern(1)), put(lantern(2)))
            assert await lanterns(store) == ids(1, 2)
            with redis.Redis(port=server.port) as client:
                client.delete(record_key(prefix, address_of("samples", key_of(1))))
            assert await lanterns(store) == ids(2)
    finally:
        server.stop()


# -- damage ----------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 18, 80, -1])
@pytest.mark.parametrize("after", ["a put", "a deletion", "a question by id"])
async def test_what_was_damaged_and_written_over_is_not_found_as_it_was(
    store: RedisStore, server: Server, prefix: str, at: int, after: str
) -> None:
    """Wherever it was damaged: of some it is not even known which partition they are
    of.
    """
    await apply_all(store, put(lantern(1)), put(lantern(2)))
    assert await lanterns(store) == ids(1, 2)
    name = record_key(prefix, address_of("samples", key_of(1)))
    with redis.Redis(port=server.port) as client:
        value = bytearray(client.get(name) or b"")
        value[at] ^= 1
        client.set(name, bytes(value))
    match after:
        case "a put":
            await apply_all(store, put(record(1, version=2, texts={"content": "harbour"}), Newer()))
        case "a deletion":
            await apply_all(store, delete(1))
        case _:
            await store.get(SAMPLES, [key_of(1)])
    assert await lanterns(store) == ids(2)
    assert not [problem for problem in (await store.audit()).problems if "keeps" in problem]
    await apply_all(store, delete(1, 200))
    assert await lanterns(store) == ids(2)


@pytest.mark.parametrize("at", [0, 18, 80, -1])
async def test_what_cannot_be_read_is_quarantined_on_the_way(
    store: RedisStore, server: Server, prefix: str, at: int
) -> None:
    await apply_all(store, put(lantern(1)), put(lantern(2)))
    name = record_key(prefix, address_of("samples", key_of(1)))
    with redis.Redis(port=server.port) as client:
        value = bytearray(client.get(name) or b"")
        value[at] ^= 1
        client.set(name, bytes(value))
        assert await lanterns(store) == ids(2)
        assert [kept for key in client.keys(f"*{prefix}*:q:*") for kept in client.hvals(key)] == [
            bytes(value)
        ]
    assert await lanterns(store) == ids(2)


async def test_a_repaired_index_tells_what_it_had_lost(
    store: RedisStore, other: RedisStore, server: Server, prefix: str
) -> None:
    await apply_all(store, put(lantern(1)), put(lantern(2)))
    with redis.Redis(port=server.port) as client:
        index = client.keys(f"*{prefix}*:t:samples*")[0]
        client.zpopmin(index)
    assert await lanterns(store) == ids(2)
    assert (await other.audit(repair=True)).problems
    assert await lanterns(store) == ids(1, 2)


async def test_a_record_that_is_gone_is_told_by_whoever_finds_it_missing(
    store: RedisStore, other: RedisStore, server: Server, prefix: str
) -> None:
    for find in (lambda: other.query(Query(SAMPLES, within(HERE))), lambda: other.audit(repair=True)):
        await apply_all(store, put(lantern(1)), put(lantern(2)))
        assert await lanterns(store) == ids(1, 2)
        with redis.Redis(port=server.port) as client:
            client.delete(record_key(prefix, address_of("samples", key_of(1))))
        await find()
        assert await lanterns(store) == ids(2)


async def test_the_audit_names_what_is_kept_otherwise_and_lets_go_of_it(
    store: RedisStore, server: Server, prefix: str
) -> None:
    name = record_key(prefix, address_of("samples", key_of(1)))
    await apply_all(store, put(lantern(1)))
    with redis.Redis(port=server.port) as client:
        old = client.get(name)
        await apply_all(store, put(record(1, version=2, texts={"content": "harbour"}), Newer()))
        assert await lanterns(store) == set()
        client.set(name, old)
    problems = (await store.audit()).problems
    assert problems == ("samples: the process's data of a partition differs from the server's data",)
    assert (await store.audit(repair=True)).problems == problems
    assert (await store.audit()).problems == ()
    assert await lanterns(store) == ids(1)


# -- room ------------------------------------------------------------------------------


async def test_no_more_is_kept_than_there_is_room_for_the_longest_unasked_first(
    server: Server, prefix: str
) -> None:
    async with (
        Counting(server.port) as way,
        opened(
            server, prefix, port=way.port, cache_bytes=12_000, thresholds=replace(THRESHOLDS, page=1)
        ) as store,
    ):
        for place in PLACES[:3]:
            await apply_all(store, *[put(lantern(n, place)) for n in range(2)])

        async def trips(place: int) -> int:
            before = way.trips
            assert len(await store.candidates(replace(ASKED, where=within(PLACES[place])))) == 2
            return way.trips - before

        assert await trips(0) > 1
        assert await trips(1) > 1
        assert (await trips(0), await trips(1), await trips(0)) == (1, 1, 1), "two have room"
        assert await trips(2) > 1
        assert (await trips(0), await trips(2)) == (1, 1)
        assert await trips(1) > 1, "the longest unasked had to go"
        await apply_all(store, *[put(lantern(n)) for n in range(2, 40)])
        assert len(await store.candidates(ASKED)) == 40, (
            "what is too long to be kept is answered all the same"
        )
        assert store._forms.bytes <= 12_000


async def test_nothing_is_left_on_the_server_of_partitions_that_are_empty(
    store: RedisStore, server: Server, prefix: str
) -> None:
    for _ in range(2):
        await apply_all(store, put(lantern(1)), put(lantern(2)))
        assert await lanterns(store) == ids(1, 2)
        await apply_all(store, delete(1), delete(2))
        assert await lanterns(store) == set()
        with redis.Redis(port=server.port) as client:
            assert client.keys(f"*{prefix}*:c:*") == []
        await apply_all(store, Purge(SAMPLES, key_of(1), 100), Purge(SAMPLES, key_of(2), 100))


async def test_the_list_of_changes_does_not_grow(store: RedisStore, server: Server, prefix: str) -> None:
    for version in range(1, 13):
        await store.apply([put(record(n, version=version)) for n in range(100)])
    assert (await one(store, put(record(1, version=99)))).applied
    with redis.Redis(port=server.port) as client:
        (changes,) = client.keys(f"*{prefix}*:c:*")
        assert client.llen(changes) <= 2 * THRESHOLDS.changes_told
