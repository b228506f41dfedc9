"""What goes over the wire to a server, and what is made of its answers
(`tests.support.qdrant_wire`).

What a server does with it is for `test_server.py`, and for the contract on
`qdrant_server`.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from qdrant_client import AsyncQdrantClient

from memory import Memory
from memory.adapters.qdrant.keys import generation_point, record_point
from memory.adapters.qdrant.store import QdrantStore
from memory.domain.errors import ConfigError, NotOpen, StoreError, StoreFull, StoreTimeout, StoreUnavailable
from memory.ports.base import record_bytes
from memory.ports.candidates import Candidates
from memory.ports.collections import FieldType
from memory.ports.comparisons import SYSTEM_TYPES
from memory.ports.contract.collections import DECLARED, MORE_SAMPLES, SAMPLES
from memory.ports.contract.support import (
    HERE,
    T0,
    apply_all,
    delete,
    fetch_record,
    id_of,
    key_of,
    put,
    query_ids,
    record,
    search_hits,
)
from memory.ports.query import (
    And,
    Condition,
    Eq,
    Everywhere,
    Ge,
    Gt,
    Has,
    In,
    IsNull,
    Le,
    Lt,
    Near,
    Not,
    Or,
    Order,
    Query,
    Search,
    within,
)
from memory.ports.record import Partition, Role, pack_vector
from memory.ports.store import Store
from memory.ports.writes import Absent, Annotate, AtVersion, Newer, Purge, RaiseGeneration
from tests.support.qdrant_wire import Request, StandIn, failure

pytestmark = pytest.mark.backend("qdrant_local")
POINT = record_point("samples", key_of(1))
MEBIBYTE = 2**20
STRICT = {"enabled": True, "unindexed_filtering_retrieve": False, "unindexed_filtering_update": False}


@pytest.fixture
def server() -> StandIn:
    return StandIn()


@pytest_asyncio.fixture
async def store(server: StandIn) -> AsyncIterator[QdrantStore]:
    opened = server.store(
        "qdrant://stand.in?shard_key=eu&replication_factor=2&write_consistency_factor=2&exact=true"
    )
    await opened.open(DECLARED)
    yield opened
    await opened.close()


def _token(server: StandIn) -> str:
    """The token of the write that was sent last."""
    (written,) = server.operations()[0].values()
    payload = written["points"][0]["payload"] if "points" in written else written["payload"]
    return str(payload["token"])


# -- what is sent ----------------------------------------------------------------------


async def test_the_collection_is_made_as_configured_with_a_tenants_index(
    server: StandIn, store: QdrantStore
) -> None:
    made = server.params or {}
    assert (made["replication_factor"], made["write_consistency_factor"], made["sharding_method"]) == (
        2,
        2,
        "custom",
    )
    assert made["shard_number"] == 1
    assert made["sparse_vectors"] == {"words": {"modifier": "idf"}}
    assert server.shard_keys == ["eu"]
    assert server.indexes["partition"] == {"type": "keyword", "is_tenant": True}
    assert (server.indexes["rank"], server.indexes["samples.tags"]) == ("integer", "keyword")


async def test_a_new_record_is_inserted_only_where_nothing_is(server: StandIn, store: QdrantStore) -> None:
    await apply_all(store, put(record(vector=pack_vector([0.6, 0.8]), body={"big": 2**63 - 1}), Absent()))
    (operation,) = server.operations()
    assert (operation["upsert"]["update_mode"], operation["upsert"]["shard_key"]) == ("insert_only", "eu")
    assert server.asked("/vectors/dense_2") == [{"dense": {"size": 2, "distance": "Dot"}}]
    *_, batch = [request for request in server.requests if request.path == "/points/batch"]
    assert batch.parameters == {"wait": ["true"], "ordering": ["strong"]}
    assert (await fetch_record(store)).vector == pack_vector([0.6, 0.8])
    assert dict((await fetch_record(store)).body) == {"big": 2**63 - 1}


async def test_a_write_takes_three_requests(server: StandIn, store: QdrantStore) -> None:
    """One that reads, one that writes, and one that tells whether the write was made
    and whether the generation is still the one read.
    """
    await apply_all(store, put(record(1)))
    server.requests.clear()
    await apply_all(store, put(record(2)))
    assert [request.path for request in server.requests] == ["/points", "/points/batch", "/points"]
    assert server.requests[0].body["ids"] == sorted(
        [record_point("samples", key_of(2)), generation_point(HERE)]
    )
    assert server.requests[2].body["ids"] == [record_point("samples", key_of(2)), generation_point(HERE)]


async def test_whatever_changes_a_record_is_conditional_on_its_token(
    server: StandIn, store: QdrantStore
) -> None:
    await apply_all(store, put(record(role=Role.CACHED)))

    def still(token: str) -> dict[str, Any]:
        return {"must": [{"has_id": [POINT]}, {"key": "token", "match": {"value": token}}]}

    first = _token(server)
    await apply_all(store, put(record(version=2, role=Role.CACHED), AtVersion(1)))
    upsert = server.operations()[0]["upsert"]
    assert (upsert["update_mode"], upsert["update_filter"]) == ("update_only", still(first))

    second = _token(server)
    await apply_all(store, Annotate(SAMPLES, key_of(1), 2, tier="x"))
    overwrite = server.operations()[0]["overwrite_payload"]
    assert (overwrite["filter"], overwrite["shard_key"]) == (still(second), "eu")

    third = _token(server)
    await apply_all(store, Purge(SAMPLES, key_of(1), 2))
    assert server.operations()[0]["delete"] == {"filter": still(third), "shard_key": "eu"}


async def test_searches_ask_for_the_partitions_own_statistics_and_one_replica(
    server: StandIn, store: QdrantStore
) -> None:
    await apply_all(store, put(record(texts={"content": "lantern"}, vector=pack_vector([1.0]))))
    assert len(await search_hits(store, "lantern", limit=5)) == 1
    (asked,) = server.asked("/points/query/batch")[-1]["searches"]
    assert asked["params"]["idf"]["corpus"] == asked["filter"]
    assert asked["filter"]["must"][0] == {"key": "partition", "match": {"value": "samples/4/acme/user:ann"}}
    assert asked["shard_key"] == "eu"
    assert len(await store.search(Search(SAMPLES, within(HERE), Near(pack_vector([2.0])), 5))) == 1
    assert not any("consistency" in request.parameters for request in server.requests), (
        "a majority fails while one of two is away"
    )


async def test_whole_bounds_are_sent_as_whole_numbers(server: StandIn, store: QdrantStore) -> None:
    """A server reads `4017926597983778.0` one step off, in one of seven such numbers."""
    chance = random.Random(1)  # noqa: S311
    for digits in (3, 15, 16, 17, 18):
        number = chance.randrange(10 ** (digits - 1), 10**digits) * chance.choice((1, -1))
        moment = T0 + timedelta(microseconds=abs(number) % 10**15)
        for part in (
            Ge("number", number),
            Gt("number", number),
            Le("number", number),
            Lt("number", number),
            Ge("valid_from", moment),
        ):
            server.requests.clear()
            await store.query(Query(SAMPLES, within(HERE), part, order=(Order("valid_from"),)))
            sent = b"".join(request.sent for request in server.requests)
            assert b'"range"' in sent
            assert not re.search(rb"\d\.0\b", sent), sent
    await apply_all(
        store, *[put(record(n, fields={"valid_from": T0 + timedelta(microseconds=n)})) for n in range(3)]
    )
    page = await store.query(Query(SAMPLES, within(HERE), order=(Order("valid_from"),), limit=2))
    rest = await store.query(
        Query(SAMPLES, within(HERE), order=(Order("valid_from"),), limit=2, cursor=page.cursor)
    )
    assert isinstance(server.asked("/points/scroll")[-1]["order_by"]["start_from"], int)
    assert [r.key for r in rest.records] == [key_of(2)]


async def test_a_bound_of_real_numbers_has_room_for_one_that_is_read_one_step_off(
    server: StandIn, store: QdrantStore
) -> None:
    await apply_all(store, put(record(1, fields={"confidence": 0.1234567890123456})))
    await store.query(Query(SAMPLES, within(HERE), Ge("confidence", 0.1234567890123456)))
    (bound,) = re.findall(rb'"gte":([\d.e-]+)', server.requests[-1].sent)
    assert float(bound) < 0.1234567890123456 - 2**-50


_VALUES: dict[FieldType, Any] = {
    FieldType.TEXT: "x",
    FieldType.TAGS: ("x",),
    FieldType.REAL: 0.5,
    FieldType.INTEGER: 3,
    FieldType.BOOLEAN: True,
    FieldType.BYTES: b"x",
    FieldType.TIME: T0,
}


def _filters() -> Iterator[Condition]:
    """Each field of the collection and of the system, compared in each way that suits
    it.
    """
    for name, kind in [*SYSTEM_TYPES.items(), *[(f.name, f.type) for f in SAMPLES.fields]]:
        value = id_of(1) if name == "id" else _VALUES[kind]
        yield from (Eq(name, value), IsNull(name), In(name, (value,)))
        if kind in (FieldType.INTEGER, FieldType.REAL, FieldType.TIME):
            yield Ge(name, value)
        if kind is FieldType.TAGS:
            yield Has(name, "x")


async def test_in_strict_mode_whatever_is_asked_has_an_index() -> None:
    """Qdrant Cloud refuses filters without an index, of reads and of writes."""
    server = StandIn(strict=STRICT)
    store = server.store()
    await store.open(DECLARED)
    await apply_all(
        store, *[put(record(n, texts={"content": "lantern"}, fields={"confidence": n / 7})) for n in range(3)]
    )
    await apply_all(store, put(record(3, role=Role.CACHED)))
    await apply_all(
        store,
        Annotate(SAMPLES, key_of(1), 1, tier="x"),
        delete(2),
        RaiseGeneration(HERE),
        Purge(SAMPLES, key_of(3), 1),
    )
    for part in _filters():
        await store.query(Query(SAMPLES, within(HERE), part))
    await store.count(Query(SAMPLES, Everywhere(), Eq("id", id_of(1))))
    for name in ("created_at", "updated_at", "expires_at", "valid_from", "confidence"):
        await store.query(Query(SAMPLES, within(HERE), order=(Order(name, descending=True),)))
    await store.candidates(
        Candidates(SAMPLES, within(HERE), "lantern", among=(id_of(0),), counted=("lantern",))
    )
    await store.due(T0, expired={SAMPLES: T0})
    await store.audit(repair=True)
    await store.delete_matching(Query(SAMPLES, within(HERE)), 9)
    assert await store.idle_partitions() == [(HERE, 1)]
    assert await store.forget_partitions([(HERE, 1)]) == 1
    assert (await store.check()).ok
    await store.close()


async def test_filters_keep_within_the_sizes_that_strict_mode_sets() -> None:
    """Long lists are split, and what is still too much for one filter is applied to
    what comes back.
    """
    server = StandIn(strict={**STRICT, "condition_max_size": 64, "filter_max_conditions": 64})
    store = server.store()
    await store.open(DECLARED)
    elsewhere = [Partition("acme", f"user:{n}") for n in range(300)]
    await apply_all(
        store,
        *[
            put(record(n, texts={"content": "lantern"}, fields={"type": f"t{n}"}, vector=pack_vector([1.0])))
            for n in range(4)
        ],
    )
    await apply_all(store, put(record(4, elsewhere[299])))
    everywhere = within(HERE, *elsewhere)
    assert sorted(await query_ids(store, everywhere)) == sorted(
        [*[id_of(n) for n in range(4)], id_of(4, elsewhere[299])]
    )
    long = In("type", tuple(f"t{n}" for n in range(1, 200)))
    many = Or(tuple(And((Eq("type", f"t{n}"), IsNull("confidence"))) for n in range(1, 200)))
    for part in (long, many, Not(many), And((long, many))):
        wanted = {id_of(0)} if isinstance(part, Not) else {id_of(n) for n in range(1, 4)}
        assert set(await query_ids(store, within(HERE), part)) == wanted
        assert (await store.count(Query(SAMPLES, within(HERE), part))).records == len(wanted)
        assert {hit.head.key.id for hit in await search_hits(store, "lantern", filter=part)} == wanted
        near = await store.search(Search(SAMPLES, within(HERE), Near(pack_vector([1.0])), 10, filter=part))
        assert {hit.head.key.id for hit in near} == wanted
    ids = tuple(id_of(n) for n in range(200))
    await store.candidates(
        Candidates(SAMPLES, within(HERE), "lantern", among=ids, counted=("lantern",), filter=many)
    )
    assert await store.delete_matching(Query(SAMPLES, within(HERE), many), 9) == 3
    await store.close()


@pytest.mark.parametrize(
    "setting",
    [
        {"search_allow_exact": False},
        {"max_query_limit": 100},
        {"read_rate_limit": 60},
        {"write_rate_limit": 60},
        {"max_payload_index_count": 5},
        {"condition_max_size": 10},
        {"filter_max_conditions": 10},
    ],
    ids=lambda setting: next(iter(setting)),
)
async def test_a_strict_mode_that_cannot_be_worked_with_is_named(setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        await StandIn(strict={"enabled": True, **setting}).store().open(DECLARED)
    off = StandIn(strict={"enabled": False, **setting}).store()
    await off.open(DECLARED)
    await off.close()


# -- opening ---------------------------------------------------------------------------

OURS: dict[str, Any] = {
    "sparse_vectors": {"words": {"modifier": "idf"}},
    "shard_number": 1,
    "replication_factor": 1,
}


@pytest.mark.parametrize(
    ("has", "keys", "options", "says"),
    [
        ({"sharding_method": "custom"}, ["us"], "shard_key=eu", "has the shard keys 'us'"),
        ({"sharding_method": "custom"}, ["us"], "", "has the shard keys 'us'"),
        ({}, [], "shard_key=eu", "distributes its points itself"),
        ({}, [], "shard_number=3", "shard_number=3, but the collection 'memory' has 1"),
        ({}, [], "replication_factor=2", "replication_factor=2, but"),
        ({"replication_factor": 3}, [], "write_consistency_factor=2", "write_consistency_factor=2, but"),
        ({"sparse_vectors": {"text": {}}}, [], "", "was not created by this library"),
    ],
)
async def test_what_contradicts_the_collection_is_refused(
    has: dict[str, Any], keys: list[str], options: str, says: str
) -> None:
    server = StandIn(params={**OURS, **has})
    server.shard_keys = keys
    with pytest.raises(ConfigError, match=re.escape(says)):
        await server.store(f"qdrant://stand.in?{options}").open(DECLARED)
    assert (server.indexes, server.shard_keys) == ({}, keys), "nothing was made"


async def test_a_crash_before_the_shard_key_was_made_is_mended() -> None:
    server = StandIn(params={**OURS, "sharding_method": "custom"})
    store = server.store("qdrant://stand.in?shard_key=eu")
    await store.open(DECLARED)
    assert server.shard_keys == ["eu"]
    await store.close()


async def test_of_two_first_openings_at_once_both_succeed() -> None:
    """The server answers one of them with status 500, and the collection may not be
    there yet.
    """
    server = StandIn()
    refused = iter([True, True, False])

    def failing(request: Request) -> httpx.Response | None:
        making = (request.method, request.path) == ("PUT", "")
        return (
            failure(500, "Service internal error: Collection is being made")
            if making and next(refused, False)
            else None
        )

    server.failing = failing
    stores = [server.store("qdrant://stand.in?shard_key=eu") for _ in range(2)]
    await asyncio.gather(*[store.open(DECLARED) for store in stores])
    await apply_all(stores[0], put(record()))
    assert (await fetch_record(stores[1])).key == key_of(1)
    for store in stores:
        await store.close()


async def test_with_several_shards_exact_statistics_are_not_claimed(caplog: pytest.LogCaptureFixture) -> None:
    store = StandIn(params={**OURS, "shard_number": 2}).store()
    assert store.capabilities.tenant_statistics
    await store.open(DECLARED)
    assert not store.capabilities.tenant_statistics
    assert "2 shards" in caplog.text
    await store.close()


# -- answers ---------------------------------------------------------------------------


def _is_read_or_batch(request: Request) -> bool:
    return request.path.startswith("/points")


@pytest.mark.parametrize("when", ["seconds", "date"])
async def test_a_wait_that_the_server_asks_for_is_honoured(
    server: StandIn, store: QdrantStore, when: str
) -> None:
    asked: list[Request] = []

    def failing(request: Request) -> httpx.Response | None:
        if not _is_read_or_batch(request) or len(asked) >= 2:
            return None
        asked.append(request)
        wait = "0" if when == "seconds" else "Wed, 21 Oct 2015 07:28:00 GMT"
        return failure(429, "Rate limiting exceeded", **{"Retry-After": wait})

    server.failing = failing
    await apply_all(store, put(record()))
    assert (await fetch_record(store)).key == key_of(1)
    assert len(asked) == 2


_HTML = httpx.Response(200, content=b"<html>Sign in</html>", headers={"Content-Type": "text/html"})
_FAILURES: dict[str, tuple[httpx.Response, type[StoreError]]] = {
    "a long wait": (failure(429, "Rate limiting exceeded", **{"Retry-After": "3600"}), StoreUnavailable),
    "a wait until a far date": (
        failure(429, "x", **{"Retry-After": "Fri, 21 Oct 2163 07:28:00 GMT"}),
        StoreUnavailable,
    ),
    "a wait that cannot be read": (failure(429, "x", **{"Retry-After": "soon"}), StoreUnavailable),
    "no wait": (failure(429, "Rate limiting exceeded"), StoreUnavailable),
    "a page": (_HTML, StoreError),
    "no object": (httpx.Response(200, json=["what"]), StoreError),
    "no result": (httpx.Response(200, json={"status": "ok"}), StoreError),
    "another result": (httpx.Response(200, json={"status": "ok", "result": 5}), StoreError),
    "no replica": (
        failure(
            500,
            "Service internal error: The replica set for shard 0 on peer 1 does not have enough active"
            " replicas",
        ),
        StoreUnavailable,
    ),
    "an inconsistent update": (
        failure(
            500,
            "Service internal error: Failed to apply operation to at least one `Active` replica. Please"
            " retry.",
        ),
        StoreUnavailable,
    ),
    "no leader": (
        failure(
            500, "Service internal error: Failed to propose operation: leader is not established within 10s"
        ),
        StoreUnavailable,
    ),
    "consensus": (
        failure(
            500,
            "Service internal error: Waiting for consensus operation commit failed. Timeout set at: 10"
            " seconds",
        ),
        StoreTimeout,
    ),
    "a deadline": (failure(500, "Service internal error: Deadline Exceeded"), StoreTimeout),
    "a disk": (failure(500, "Service internal error: cannot read the disk cache of segment 3"), StoreError),
    "a field of that name": (failure(400, "Bad request: no space left on device is no field"), StoreError),
}


@pytest.mark.parametrize("name", _FAILURES)
async def test_every_failure_of_a_server_is_one_of_ours(
    server: StandIn, store: QdrantStore, name: str
) -> None:
    answer, kind = _FAILURES[name]
    await apply_all(store, put(record(texts={"content": "lantern"})))
    server.failing = lambda _request: httpx.Response(
        answer.status_code, content=answer.content, headers=answer.headers
    )
    calls = [
        store.get(SAMPLES, [key_of(1)]),
        store.apply([put(record(2))]),
        store.query(Query(SAMPLES, within(HERE))),
        store.count(Query(SAMPLES, within(HERE))),
        search_hits(store, "lantern"),
        store.candidates(Candidates(SAMPLES, within(HERE), "lantern", counted=("lantern",))),
        store.delete_matching(Query(SAMPLES, within(HERE)), 9),
        store.audit(),
    ]
    for call in calls:
        with pytest.raises(StoreError) as caught:
            await call
        assert type(caught.value) is kind
    health = await store.check()
    assert not health.ok
    with pytest.raises(StoreError) as caught:
        await server.store().open(DECLARED)
    assert type(caught.value) is kind


@pytest.mark.parametrize("stops_at", [0, 1, 20])
@pytest.mark.parametrize("why", ["full", "busy"])
async def test_a_batch_that_stops_in_the_middle_does_not_promise_that_nothing_was_kept(
    server: StandIn, store: QdrantStore, stops_at: int, why: str
) -> None:
    """A server stops at the first error and keeps what came before."""
    await apply_all(store, put(record(0)))
    server.stops_at = stops_at
    if why == "busy":
        server.full = failure(429, "Rate limiting exceeded")
    with pytest.raises(StoreError) as caught:
        await store.apply([put(record(n)) for n in range(1, 41)])
    server.stops_at = None
    stands = [stored is not None for stored in await store.get(SAMPLES, [key_of(n) for n in range(1, 41)])]
    assert sum(stands) == stops_at
    if stops_at:
        assert type(caught.value) is StoreUnavailable
        assert "a part of it was kept" in str(caught.value)
    else:
        assert type(caught.value) is (StoreFull if why == "full" else StoreUnavailable)
    outcomes = await store.apply([put(record(n, version=2), Newer()) for n in range(1, 41)])
    assert all(outcome.applied for outcome in outcomes)


async def test_a_deletion_that_stops_in_the_middle_does_not_either(
    server: StandIn, store: QdrantStore
) -> None:
    await apply_all(store, *[put(record(n)) for n in range(9)])
    server.stops_at = 4
    with pytest.raises(StoreUnavailable, match="a part of it was kept"):
        await store.delete_matching(Query(SAMPLES, within(HERE)), 9)
    server.stops_at = None
    assert await store.delete_matching(Query(SAMPLES, within(HERE)), 9) == 5


async def _closed_under(store: Store, calls: list[Any]) -> list[Any]:
    tasks = [asyncio.ensure_future(call) for call in calls]
    await asyncio.sleep(0)
    await store.close()
    return list(await asyncio.gather(*tasks, return_exceptions=True))


async def test_a_call_under_way_while_the_store_closes_ends_with_its_own_answer(
    server: StandIn, store: QdrantStore
) -> None:
    await apply_all(store, put(record(texts={"content": "lantern"})))
    answers = await _closed_under(
        store,
        [
            store.apply([put(record(2))]),
            store.get(SAMPLES, [key_of(1)]),
            store.audit(),
            search_hits(store, "lantern"),
            store.check(),
        ],
    )
    assert not [answer for answer in answers if isinstance(answer, Exception)]
    with pytest.raises(NotOpen):
        await store.get(SAMPLES, [key_of(1)])


# -- how much is sent ------------------------------------------------------------------


def _words(count: int) -> str:
    """The shortest words that all differ: of all text they take the most, for what they
    are found by.
    """
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    return " ".join(letters[n // 1296 % 36] + letters[n // 36 % 36] + letters[n % 36] for n in range(count))


async def test_no_request_is_larger_than_a_server_takes(server: StandIn, store: QdrantStore) -> None:
    """What is sent is measured as it is sent: it takes many times a text's length. A
    server takes 32 MiB.
    """
    limit = store.capabilities.max_record_bytes
    assert limit is not None
    chinese = "".join(chr(0x4E00 + n * 7919 % 20_000) for n in range(10_000))
    wordy = [
        record(n, texts={"content": _words(10_000)}, vector=pack_vector([0.123] * 2_000)) for n in range(30)
    ]
    many = [
        record(n, texts={"content": chinese}, body={"said": chinese + '"\\\u0007' * 500}) for n in range(30)
    ]
    server.stops_at, server.full = (
        0,
        failure(429, "x"),
    )  # nothing is kept: what is sent is all that is looked at
    for records in (wordy[:1], many):
        server.requests.clear()
        with pytest.raises(StoreUnavailable):
            await store.apply([put(one) for one in records])
        (sent,) = [len(request.sent) for request in server.requests if request.path == "/points/batch"]
        assert sent < 9 * MEBIBYTE
        if len(records) == 1:
            assert sent / record_bytes(records[0]) * limit < 30 * MEBIBYTE


async def test_one_record_that_is_too_large_is_rejected_by_itself(store: QdrantStore) -> None:
    limit = store.capabilities.max_record_bytes
    assert limit is not None
    too_large = put(record(1, body={"said": "x" * limit}))
    refused, kept = await store.apply([too_large, put(record(2))])
    assert not refused.applied
    assert str(limit) in refused.reason
    assert kept.applied


# -- how often is asked ----------------------------------------------------------------


async def test_a_search_asks_three_times_in_two_rounds(server: StandIn, store: QdrantStore) -> None:
    """All ways and the statistics at once, then the records of the hits; nothing is
    fetched to be counted.
    """
    words = ["lantern", "moor", "stork", "gull", "brook"]
    writes = [
        put(
            record(
                n,
                texts={"content": " ".join(words[: 1 + n % 5]) + " x" * (n % 7)},
                vector=pack_vector([1.0, float(n)]),
            )
        )
        for n in range(60)
    ]
    await apply_all(store, *writes)
    server.requests.clear()
    asked = Candidates(
        SAMPLES,
        within(HERE),
        " ".join(words),
        pack_vector([1.0, 2.0]),
        5,
        among=(id_of(3), id_of(4)),
        counted=tuple(words),
        roles=frozenset(Role),
    )
    found = await store.candidates(asked)
    assert sorted(request.path for request in server.requests) == ["/facet", "/points/query/batch"]
    assert found.statistics.documents == 60
    assert dict(found.statistics.containing) == {word: 60 - 12 * n for n, word in enumerate(words)}
    assert {id_of(3), id_of(4)} <= set(found.ids)
    (searches,) = [body["searches"] for body in server.asked("/points/query/batch")]
    assert all(search["limit"] == 1 for search in searches[-len(words) :]), "nothing is fetched to be counted"
    assert all(search["with_payload"] is not True for search in searches), "payload by name only"
    await store.get(SAMPLES, [key_of(n) for n in range(5)])
    assert len(server.requests) == 3


async def test_records_with_other_collections_between_them_are_counted_apart(store: QdrantStore) -> None:
    """What is counted by the score of one record is what the asked partitions hold."""
    await apply_all(store, *[put(record(n, texts={"content": "lantern"})) for n in range(7)])
    await apply_all(
        store, *[put(record(n, texts={"content": "lantern"}), collection=MORE_SAMPLES) for n in range(30)]
    )
    await apply_all(store, delete(6))
    found = await store.candidates(Candidates(SAMPLES, within(HERE), counted=("lantern", "nowhere")))
    assert (found.statistics.documents, dict(found.statistics.containing)) == (
        6,
        {"lantern": 6, "nowhere": 0},
    )


async def test_a_search_of_a_memory_asks_a_server_at_most_three_times(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = AsyncQdrantClient
    client = server.client()
    monkeypatch.setattr(
        "memory.adapters.qdrant.client.AsyncQdrantClient",
        lambda **options: made(**options) if "location" in options else client,
    )
    stores = {"lite": {"url": f"sqlite:///{tmp_path}/memory.db"}, "far": {"url": "qdrant://stand.in"}}
    async with Memory({"stores": stores, "tiers": {"short": "lite", "mid": "lite", "long": "far"}}) as memory:
        for n in range(12):
            await memory.write(
                f"The lantern number {n} hangs by the moor", scope="user:ada", type="reference"
            )
        await memory.search(
            "lantern moor", scope="user:ada"
        )  # what is pending since the writes is done by the first call
        server.requests.clear()
        assert len(await memory.search("lantern moor", scope="user:ada", limit=5)) == 5
        reading = [
            r.path
            for r in server.requests
            if r.path in ("/points/query/batch", "/facet", "/points/scroll", "/points/count")
        ]
        assert 1 <= len(reading) <= 3, "besides what the memory does in the background"
