"""What only a real server shows: injection, indexes in use, colliding upserts, settings
read at open, damage, and callers that give up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory.adapters.mongo.filters import both
from memory.adapters.mongo.schema import SCHEMA
from memory.adapters.mongo.store import MongoStore
from memory.domain.errors import ConfigError
from memory.domain.ids import derived_id
from memory.ports.contract.collections import DECLARED, PLAIN, SAMPLES
from memory.ports.contract.support import (
    HERE,
    T0,
    apply_all,
    fetch_record,
    fetch_stored,
    hit_ids,
    id_of,
    key_of,
    one,
    put,
    query_ids,
    record,
)
from memory.ports.query import (
    Condition,
    Eq,
    Everywhere,
    Has,
    In,
    Not,
    Order,
    Query,
    Tenant,
    decode_cursor,
    within,
)
from memory.ports.record import Corrupt, Key, Partition, Record, Role
from memory.ports.writes import Absent, Always, Newer, Put, Status
from tests.support.mongo_servers import Mongo
from tests.unit.adapters.mongo.conftest import EITHER, Raw

pytestmark = pytest.mark.parametrize("server", EITHER, indirect=True)

OPERATORS = [
    '{"$ne": 1}',
    "$where",
    "$gt",
    "{$ne: null}",
    "function() { return true }",
    "fields.type",
    "$$ROOT",
    "a.b",
    "\x00",
    "$literal",
]


# -- text is text ----------------------------------------------------------------------


@pytest.mark.parametrize("text", OPERATORS)
async def test_operators_are_only_text_wherever_they_stand(store: MongoStore, text: str) -> None:
    at = Partition(text, text)
    strange = Record(
        Key(text, derived_id(text, text, "strange")),
        text,
        1,
        T0,
        T0,
        fields={"type": text, "tags": (text,)},
        body={text: {text: 1}},
        texts={"title": text},
        tier=text,
    )
    await apply_all(store, put(record(1, fields={"type": "plain"})), put(strange))

    assert (await store.get(SAMPLES, [strange.key, Key("acme", strange.key.id), Key(text, id_of(1))]))[
        1:
    ] == [None, None]
    for part in (
        Eq("type", text),
        In("type", (text, "x")),
        Has("tags", text),
        Eq("tier", text),
        Not(Eq("type", "plain")),
    ):
        assert await query_ids(store, Tenant(text), part) == [strange.key.id]
        assert await query_ids(store, within(HERE), part) == []
    await apply_all(store, put(Record(strange.key, text, 2, T0, T0, body={text: text}), Newer()))
    (after,) = await store.get(SAMPLES, [strange.key])
    assert isinstance(after, Record)
    assert dict(after.body) == {text: text}
    assert await store.delete_matching(Query(SAMPLES, within(at)), 9) == 1
    await fetch_record(store, 1)


# -- indexes ---------------------------------------------------------------------------


def _stages(plan: Any) -> list[tuple[str, str]]:
    """Stage and index of every step that the server says it takes."""
    if isinstance(plan, list):
        return [step for inner in plan for step in _stages(inner)]
    if not isinstance(plan, dict):
        return []
    own = [(str(plan["stage"]), str(plan.get("indexName", "")))] if "stage" in plan else []
    return own + [step for key, inner in plan.items() if key != "rejectedPlans" for step in _stages(inner)]


def _explained(raw: Raw, store: MongoStore, query: Query) -> list[tuple[str, str]]:
    table = store.table(query.collection)
    wanted = table.conditions.query(query)
    if query.cursor is not None:
        wanted = both(
            wanted, table.conditions.after(query.order, decode_cursor(query.cursor, query.order), query.where)
        )
    sort = table.conditions.ordering(query.order, query.where)
    found = {"find": table.name, "filter": wanted, "sort": sort, "limit": 21}
    return _stages(raw.command("explain", found, verbosity="queryPlanner")["queryPlanner"]["winningPlan"])


async def test_the_newest_of_a_partition_come_from_an_index_in_order_on_every_page(
    store: MongoStore, raw: Raw
) -> None:
    await apply_all(
        store,
        *[put(record(n)) for n in range(60)],
        *[put(record(n, Partition("acme", f"s{n}"))) for n in range(40)],
    )
    query = Query(SAMPLES, within(HERE), order=(Order("created_at", True),), limit=20)
    first = await store.query(query)
    second = Query(SAMPLES, within(HERE), order=query.order, limit=20, cursor=first.cursor)
    for page in (query, second):
        stages = _explained(raw, store, page)
        assert ("IXSCAN", "newest") in stages
        assert not [stage for stage, _ in stages if stage in ("SORT", "COLLSCAN")]


async def test_what_changed_last_of_a_tenant_comes_from_an_index_in_order_on_every_page(
    store: MongoStore, raw: Raw
) -> None:
    await apply_all(
        store,
        *[put(record(n, Partition("acme", f"s{n % 7}"))) for n in range(60)],
        *[put(record(n, Partition("other", "s"))) for n in range(40)],
    )
    query = Query(
        SAMPLES,
        Tenant("acme"),
        order=(Order("updated_at", True),),
        limit=20,
        roles=frozenset({Role.HOME, Role.ARRIVING}),
    )
    first = await store.query(query)
    assert [row.key for row in first.records] == [
        key_of(n, Partition("acme", f"s{n % 7}")) for n in range(59, 39, -1)
    ]
    for page in (query, replace(query, cursor=first.cursor)):
        stages = _explained(raw, store, page)
        assert ("IXSCAN", "order_updated_at") in stages
        assert not [stage for stage, _ in stages if stage in ("SORT", "COLLSCAN")]


@pytest.mark.parametrize("part", [None, Eq("tier", "mid")], ids=str)
async def test_pages_over_everything_come_from_an_index_in_order(
    store: MongoStore, raw: Raw, part: Condition | None
) -> None:
    """As maintenance asks for them."""
    records = [put(record(n, Partition(f"tenant {n % 3}", f"s{n % 5}"), tier="mid")) for n in range(200)]
    await apply_all(store, *records)
    query = Query(SAMPLES, Everywhere(), part, limit=20)
    seen: list[Key] = []
    while True:
        assert _explained(raw, store, query)[-1] == ("IXSCAN", "everywhere")
        raw.command({"profile": 2})
        page = await store.query(query)
        raw.command({"profile": 0})
        seen += [r.key for r in page.records]
        if page.cursor is None:
            break
        query = replace(query, cursor=page.cursor)
    assert seen == sorted([w.key for w in records], key=lambda key: (key.id, key.tenant))
    asked = list(raw["system.profile"].find({"command.aggregate": "memory_samples", "op": "command"}))
    assert len(asked) >= 10
    assert all(one["docsExamined"] <= 2 * 20 + 2 for one in asked)


@pytest.mark.parametrize(
    "where", [within(HERE), Tenant("acme"), within(HERE, Partition("acme", "other"))], ids=str
)
@pytest.mark.parametrize("part", [None, Eq("type", "common")], ids=str)
async def test_a_question_about_a_place_is_not_answered_by_what_serves_everything(
    store: MongoStore, raw: Raw, where: Any, part: Condition | None
) -> None:
    """In a small scope of a large collection that would read nearly all of it."""
    fields = {"type": "common"}
    await apply_all(
        store,
        *[put(record(n, Partition(f"tenant {n}", "s"), fields=fields)) for n in range(300)],
        put(record(999, fields=fields)),
    )
    for order in ((), (Order("id", True),), (Order("created_at"),)):
        assert not {"everywhere", "passing"} & {
            index for _, index in _explained(raw, store, Query(SAMPLES, where, part, order, limit=20))
        }


BY_INDEX: list[tuple[Any, Condition, str]] = [
    (within(HERE), Eq("type", "rare"), "field_type"),
    (Tenant("acme"), Eq("type", "rare"), "field_type"),
    (within(HERE), Has("tags", "rare"), "field_tags"),
]


@pytest.mark.parametrize(("where", "part", "index"), BY_INDEX, ids=str)
async def test_what_is_declared_as_indexed_is_found_by_its_index(
    store: MongoStore, raw: Raw, where: Any, part: Condition, index: str
) -> None:
    fields = {"type": "common", "tags": ("common",)}
    await apply_all(
        store,
        *[put(record(n, fields=fields if n else {"type": "rare", "tags": ("rare",)})) for n in range(200)],
    )
    assert ("IXSCAN", index) in _explained(raw, store, Query(SAMPLES, where, part))


async def test_many_lists_of_tags_are_asked_for_whole(store: MongoStore) -> None:
    lists = tuple((f"tag {n}", "tag") for n in range(1_100))
    tags = [lists[0], lists[49], lists[50], lists[-1], ("tag 7",), ("tag", "tag 7")]
    rows = [record(n, fields={"tags": one}) for n, one in enumerate(tags)]
    await apply_all(store, *map(put, rows), put(record(6)))
    assert await query_ids(store, part=In("tags", lists)) == [id_of(n) for n in range(4)]
    assert await query_ids(store, part=Not(In("tags", lists))) == [id_of(n) for n in (4, 5, 6)]


async def test_words_are_found_by_their_index_and_lengths_are_summed_without_reading_records(
    store: MongoStore, raw: Raw
) -> None:
    await apply_all(store, *[put(record(n, texts={"content": f"word{n} common"})) for n in range(200)])
    there = {
        "tenant": {"$eq": "acme"},
        "scope": {"$eq": HERE.scope},
        "type": {"$eq": "record"},
        "role": {"$eq": "home"},
    }
    found_ = {"find": "memory_samples", "filter": {**there, "stems": {"$in": ["word7"]}}}
    assert ("IXSCAN", "stems") in _stages(
        raw.command("explain", found_, verbosity="queryPlanner")["queryPlanner"]["winningPlan"]
    )
    summed = [{"$match": there}, {"$group": {"_id": None, "n": {"$sum": 1}, "words": {"$sum": "$length"}}}]
    stages = [
        stage
        for stage, _ in _stages(
            raw.command(
                "explain",
                {"aggregate": "memory_samples", "pipeline": summed, "cursor": {}},
                verbosity="queryPlanner",
            )
        )
    ]
    assert "IXSCAN" in stages
    assert "FETCH" not in stages


async def test_every_index_begins_with_the_tenant_or_serves_maintenance(store: MongoStore, raw: Raw) -> None:
    for collection in DECLARED:
        for name, index in raw[f"memory_{collection.name}"].index_information().items():
            assert (
                name in ("_id_", "passing", "owing", "expires", "discarded", "everywhere", "age")
                or index["key"][0][0] == "tenant"
            )


# -- at once ---------------------------------------------------------------------------


@pytest.mark.parametrize("when", [Newer(), Always()], ids=str)
async def test_upserts_that_collide_are_decided_again_and_raise_nothing(store: MongoStore, when: Any) -> None:
    for n in range(5):
        outcomes = await asyncio.gather(*(one(store, put(record(n, version=v), when)) for v in range(1, 33)))
        assert {o.status for o in outcomes} <= {Status.APPLIED, Status.CONFLICT}
        if isinstance(when, Newer):
            assert (await fetch_record(store, n)).version == 32


async def test_batches_that_meet_on_the_same_keys_give_each_key_one_winner(store: MongoStore) -> None:
    batches = [[put(record(n, version=1, body={"by": by}), Absent()) for n in range(20)] for by in range(6)]
    answers = await asyncio.gather(*(store.apply(batch) for batch in batches))
    for n in range(20):
        winners = [by for by, outcomes in enumerate(answers) if outcomes[n].applied]
        assert len(winners) == 1
        assert dict((await fetch_record(store, n)).body) == {"by": winners[0]}


async def test_a_caller_that_gives_up_leaves_the_connections_and_transactions_clean(
    store: MongoStore,
) -> None:
    for turn in range(30):
        call = asyncio.ensure_future(
            store.apply([put(record(n, version=turn + 1), Newer()) for n in range(5)])
        )
        for _ in range(turn):
            await asyncio.sleep(0)
        call.cancel()
    await apply_all(store, *[put(record(n, version=1000)) for n in range(5)])
    assert [(await fetch_record(store, n)).version for n in range(5)] == [1000] * 5
    await store.close()


# -- limits ----------------------------------------------------------------------------


async def test_a_record_over_what_a_document_holds_is_rejected_and_its_neighbours_are_kept(
    store: MongoStore,
) -> None:
    whole = record(2, body={"said": "y" * (8 * 2**20 - 2_000)})
    many_tags = record(3, fields={"tags": ("",) * 1_500_000})
    outcomes = await store.apply([put(record(1)), put(whole), put(many_tags), put(record(4))])
    assert [o.status for o in outcomes] == ["applied", "applied", "rejected", "applied"]
    assert "MongoDB stores at most" in outcomes[2].reason
    assert (await fetch_record(store, 2)).body == whole.body


async def test_text_that_is_no_text_is_rejected_by_name(store: MongoStore) -> None:
    half = "a\ud800"
    wrong = [
        Put(SAMPLES, Record(Key(half, "x"), "s", 1, T0, T0), Always()),
        Put(SAMPLES, Record(Key("t", "x"), half, 1, T0, T0), Always()),
        put(record(1, body={"x": half})),
    ]
    for write in wrong:
        for batch in ([write], [write, put(record(9, version=5), Newer())]):
            (outcome, *_) = await store.apply(batch)
            assert outcome.status is Status.REJECTED
            assert "surrogate" in outcome.reason
    assert await store.get(SAMPLES, [Key(half, id_of(1))]) == [None]


# -- damage ----------------------------------------------------------------------------


async def test_a_damaged_document_is_quarantined_with_a_copy_that_erasure_reaches(
    store: MongoStore, raw: Raw
) -> None:
    await apply_all(
        store, *[put(record(n, texts={"content": "lantern"}, body={"said": n})) for n in range(3)]
    )
    raw["memory_samples"].update_one({"id": id_of(1)}, {"$set": {"body": '{"said":9}'}})

    page = await store.query(Query(SAMPLES, within(HERE)))
    assert ([r.key.id for r in page.records], page.corrupt) == ([id_of(0), id_of(2)], (key_of(1),))
    assert isinstance(await fetch_stored(store, 1), Corrupt)
    assert await hit_ids(store, "lantern") == {id_of(0), id_of(2)}
    copy = raw["memory_store.quarantine"].find_one({"_id.id": id_of(1)})
    assert copy is not None
    assert copy["document"]["body"] == '{"said":9}'

    assert await store.delete_matching(Query(SAMPLES, within(HERE)), 50) == 3
    assert raw["memory_store.quarantine"].count_documents({}) == 0


async def test_a_document_of_which_nothing_is_left_is_corrupt_and_raises_nothing(
    store: MongoStore, raw: Raw
) -> None:
    await apply_all(store, *[put(record(n)) for n in range(4)])
    changes: list[dict[str, Any]] = [
        {"$unset": {"version": ""}},
        {"$set": {"fields": 5}},
        {"$set": {"created_at": "x", "checksum": None}},
    ]
    for n, change in enumerate(changes):
        raw["memory_samples"].update_one({"id": id_of(n)}, change)
    assert [isinstance(s, Corrupt) for s in await store.get(SAMPLES, [key_of(n) for n in range(4)])] == [
        True,
        True,
        True,
        False,
    ]


# -- what is found at open -------------------------------------------------------------


@pytest.mark.parametrize(("other", "advice"), [(SCHEMA + 1, "upgrade"), (SCHEMA - 1, "export")])
async def test_data_of_another_layout_is_refused_by_name(
    other: int, advice: str, store: MongoStore, build: Callable[[], MongoStore], raw: Raw
) -> None:
    raw["memory_store.schema"].update_one({}, {"$set": {"version": other}})
    with pytest.raises(ConfigError, match=f"layout {other}.*{advice}"):
        await build().open(DECLARED)
    assert not (await store.check()).ok


async def test_a_collection_that_takes_twins_for_one_is_refused(
    build: Callable[[], MongoStore], raw: Raw
) -> None:
    raw.create_collection("memory_samples", collation={"locale": "en", "strength": 1})
    with pytest.raises(ConfigError, match="memory_samples"):
        await build().open(DECLARED)


async def test_prefixes_keep_stores_of_one_database_apart(build: Callable[..., MongoStore], raw: Raw) -> None:
    one_, other = build(prefix="one_"), build(prefix="other_")
    await asyncio.gather(one_.open(DECLARED), other.open(DECLARED))
    await apply_all(one_, put(record(1)))
    assert await fetch_stored(other, 1) is None
    assert {name.split("_")[0] for name in raw.list_collection_names()} == {"one", "other"}
    await one_.close()
    await other.close()


async def test_many_processes_may_open_an_empty_database_at_once(
    build: Callable[..., MongoStore], raw: Raw
) -> None:
    stores = [build() for _ in range(4)]
    await asyncio.gather(*(store.open(DECLARED) for store in stores))
    await apply_all(stores[0], put(record(1), collection=PLAIN))
    await asyncio.gather(*(store.close() for store in stores))


async def test_check_says_what_the_server_is(store: MongoStore, server: Mongo) -> None:
    health = await store.check()
    assert health.version.startswith("MongoDB 6.")
    assert health.facts["transactions"] is store.capabilities.atomic
    assert health.facts["journal"] is True
    assert health.facts["schema"] == SCHEMA
    assert ("--replSet" in health.detail) is not store.capabilities.atomic
    assert f"127.0.0.1:{server.port}" in health.detail


async def test_a_person_who_opens_the_database_can_read_it(store: MongoStore, raw: Raw) -> None:
    await apply_all(
        store,
        put(
            record(
                1,
                fields={"type": "fact", "tags": ("a",), "confidence": 0.5},
                texts={"title": "A lantern"},
                role=Role.HOME,
            )
        ),
    )
    document = raw["memory_samples"].find_one(
        {"tenant": "acme", "scope": HERE.scope, "fields.type": "fact", "fields.confidence": {"$gt": 0.4}}
    )
    assert document is not None
    assert (document["texts"], document["fields"]["tags"], document["role"]) == (
        {"title": "A lantern"},
        ["a"],
        "home",
    )
    assert T0 + timedelta(seconds=1) == record(1).created_at
