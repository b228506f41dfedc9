"""Questions about subtrees: the scopes that begin with a prefix, and named ones."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from memory.domain.errors import InvalidInput
from memory.ports.candidates import Candidates
from memory.ports.contract.capability_tests import needs
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import DECLARED, PLAIN, SAMPLES
from memory.ports.contract.harness import Harness
from memory.ports.contract.support import (
    T0,
    apply_all,
    fetch_stored,
    hit_ids,
    id_of,
    key_of,
    put,
    query_ids,
    record,
)
from memory.ports.contract.test_candidates import (
    BESIDE,
    QUESTIONS,
    SELECT,
    check_candidates,
    random_record,
)
from memory.ports.full_scan import scan
from memory.ports.query import (
    MAX_LIMIT,
    Eq,
    Hit,
    Near,
    Order,
    Query,
    Search,
    Tenant,
    Under,
    Where,
    Words,
    within,
)
from memory.ports.record import Corrupt, Partition, Record, Role, Tombstone, pack_vector
from memory.ports.store import Store

ROOT = "path:teams/"
LABELS = (
    "red", "Red", "RED", "redder", "re", "r_d", "r%25d", "%25", "_", "*", "r*", "?", ".", "..", "%2F", "0", "-",
    "red\n", "red ", " red", "red\t", "red\x01", "red\u200b", "\\", "red\\", "'", '"', "' OR '1'='1", "$ne", "{}", "[a-z]",
    "é", "e\u0301", "ß", "東京", "\uffff", "\ud7ff", "\ue000", "\U00010000", "\U0001f600", "\U0010ffff",
    "x" * 128, "x" * 127,
)  # fmt: skip
"""Labels of which each is data: none matches another."""
LONG = ROOT + ("y" * 128 + "/") * 7
"""The beginning of scopes whose text is longer than names in many file systems."""
TREE_SCOPES = (
    ROOT,
    *[f"{ROOT}{label}/" for label in LABELS],
    *[f"{ROOT}{label}/notes/" for label in LABELS[:6]],
    f"{ROOT}red/notes/old/",
    LONG,
    f"{LONG}a/",
    f"{LONG}b/",
    f"{LONG}{'z' * (1_023 - len(LONG))}/",
    *("path:teams", "path:teams0/", "path:teams./", "path:teamsx/", "path:Teams/", "path:team/", "path:/", "path:"),
    *("user:path:teams/", "user:teams/", "conversation:path:teams/", "path:teams\n/", "path:teams%2Fred/"),
)  # fmt: skip
ALIKE_TENANTS = ("acme", "Acme", "acme/")
PREFIXES = tuple(scope for scope in TREE_SCOPES if scope.endswith("/"))


def _places() -> list[Partition]:
    return [Partition(tenant, scope) for tenant in ALIKE_TENANTS for scope in TREE_SCOPES]


def _ids(where: Under) -> set[str]:
    return {
        id_of(1, place) for place in _places() if place.tenant == where.tenant and where.contains(place.scope)
    }


async def _fill(store: Store) -> None:
    await apply_all(
        store,
        *[
            put(
                record(
                    1,
                    place,
                    texts={"content": "lantern"},
                    vector=pack_vector([1.0, n]),
                    fields={"number": n % 7},
                    role=Role.REPLICA if n % 11 == 5 else Role.HOME,
                )
            )
            for n, place in enumerate(_places())
        ],
    )


ALL_ROLES = frozenset(Role)


@clause("under.exact", since=2)
@needs("tenant_wide")
@pytest.mark.asyncio
async def test_a_prefix_has_exactly_the_scopes_that_begin_with_it(store: Store) -> None:
    """Each label matches itself only; other tenants and collections never match."""
    await _fill(store)
    await apply_all(store, put(record(1, Partition("acme", ROOT)), collection=PLAIN))
    for prefix in PREFIXES:
        where = Under("acme", (prefix,))
        found = await query_ids(store, where, roles=ALL_ROLES)
        assert sorted(found) == sorted(_ids(where)), ascii(prefix)
    for where in (Under("Acme", (f"{ROOT}red/",)), Under("acme/", (LONG,)), Under("acme", (f"{LONG}b/",))):
        expected = _ids(where)
        assert set(await query_ids(store, where, roles=ALL_ROLES)) == expected
        counted = await store.count(Query(SAMPLES, where, roles=ALL_ROLES))
        assert counted.records == len(expected)
        if store.capabilities.lexical:
            assert await hit_ids(store, "lantern", where) <= expected
    assert await query_ids(store, Under("acme", (ROOT,)), collection=PLAIN) == [
        id_of(1, Partition("acme", ROOT))
    ]


OVERLAPPING: dict[str, Under] = {
    "a prefix below another": Under("acme", (f"{ROOT}red/notes/", f"{ROOT}red/")),
    "a prefix twice": Under("acme", (f"{ROOT}red/", f"{ROOT}red/")),
    "a scope below a prefix": Under("acme", (f"{ROOT}red/",), (f"{ROOT}red/", f"{ROOT}red/notes/")),
    "prefixes and scopes": Under(
        "acme", (f"{ROOT}red/", f"{LONG}a/"), ("user:teams/", "path:teams", f"{ROOT}Red/", "user:nobody")
    ),
    "a scope is no prefix": Under("acme", (f"{ROOT}%25/",), (f"{ROOT}re/", "user:teams")),
    "very many": Under("acme", PREFIXES, tuple(f"user:{n}" for n in range(1_100))),
}


@clause("under.exact", "under.pages", since=2)
@needs("tenant_wide")
@pytest.mark.asyncio
async def test_overlapping_places_have_each_record_once(store: Store) -> None:
    await _fill(store)
    for name, where in OVERLAPPING.items():
        expected = _ids(where)
        assert sorted(await query_ids(store, where, roles=ALL_ROLES)) == sorted(expected), name
        assert (await store.count(Query(SAMPLES, where, roles=ALL_ROLES))).records == len(expected), name
        if store.capabilities.lexical:
            home = await query_ids(store, where)
            assert sorted(await hit_ids(store, "lantern", where)) == sorted(home)[:50], name


@clause("under.exact", "everywhere.all", since=2)
@needs("tenant_wide", "filter")
@pytest.mark.asyncio
async def test_filters_roles_and_expiry_mean_the_same_there(store: Store) -> None:
    """Expired records are returned, as in every other place; tombstones are not."""
    there, gone = Partition("acme", f"{ROOT}red/"), Partition("acme", f"{ROOT}red/gone/")
    await apply_all(
        store,
        put(record(1, there, fields={"type": "a"}, expires_at=T0)),
        put(record(2, there, fields={"type": "b"}, role=Role.REPLICA)),
        put(record(3, there, fields={"type": "a"})),
        put(record(1, gone)),
    )
    await store.delete_matching(Query(SAMPLES, within(gone)), 100)
    where = Under("acme", (ROOT,))
    assert set(await query_ids(store, where)) == {id_of(1, there), id_of(3, there)}
    assert await query_ids(store, where, roles=frozenset({Role.REPLICA})) == [id_of(2, there)]
    assert set(await query_ids(store, where, Eq("type", "a"), roles=ALL_ROLES)) == {
        id_of(1, there),
        id_of(3, there),
    }
    assert await query_ids(store, where, Eq("scope", gone.scope), roles=ALL_ROLES) == []


@clause("under.exact", since=2)
@needs("tenant_wide")
@pytest.mark.asyncio
async def test_a_subtree_without_records_answers_nothing(store: Store) -> None:
    await _fill(store)
    for where in (
        Under("acme", (f"{ROOT}blue/",)),
        Under("nobody", (ROOT,)),
        Under("acme", ("user:x/",), ("q",)),
    ):
        page = await store.query(Query(SAMPLES, where, limit=1))
        assert (page.records, page.cursor, page.corrupt) == ((), None, ())
        assert (await store.count(Query(SAMPLES, where))).records == 0
        assert await store.delete_matching(Query(SAMPLES, where), 100) == 0
        if store.capabilities.lexical:
            assert await store.search(Search(SAMPLES, where, Words("lantern"), 5)) == []
        if store.capabilities.semantic:
            assert await store.search(Search(SAMPLES, where, Near(pack_vector([1.0, 1.0])), 5)) == []
        asked = Candidates(
            SAMPLES, where, "lantern", pack_vector([1.0, 1.0]), counted=("lantern",), select=SELECT
        )
        answer = await store.candidates(asked)
        assert len(answer) == 0
        assert (answer.statistics.documents, dict(answer.statistics.containing)) == (0, {"lantern": 0})


@clause("under.exact", since=2)
@needs("tenant_wide")
@pytest.mark.asyncio
async def test_a_prefix_without_an_end_and_half_a_character_are_refused(store: Store) -> None:
    for where in (
        Under("acme", ("path:teams",)),
        Under("acme", ("",)),
        Under("acme", (ROOT, "path:a")),
        Under("acme", ("path:\ud800/",)),
        Under("acme", (ROOT,), ("user:\udfff",)),
    ):
        for call in (
            store.query(Query(SAMPLES, where)),
            store.count(Query(SAMPLES, where)),
            store.delete_matching(Query(SAMPLES, where), 100),
            store.candidates(Candidates(SAMPLES, where)),
        ):
            with pytest.raises(InvalidInput):
                await call
    with pytest.raises(InvalidInput, match="prefix"):
        Under("acme", ())


# -- pages -----------------------------------------------------------------------------

PAGE_ORDERS: dict[str, tuple[Order, ...]] = {
    "by id": (),
    "oldest first": (Order("created_at"),),
    "newest first": (Order("created_at", descending=True),),
    "by a value that many share": (Order("number"), Order("id", descending=True)),
    "by scope": (Order("scope"),),
}


@clause("under.pages", since=2)
@needs("tenant_wide", "order")
@pytest.mark.asyncio
@cells("order", PAGE_ORDERS)
async def test_pages_are_in_order_over_all_scopes(store: Store, order: str) -> None:
    """Pages of records and of heads are those of the same scopes, named one by one."""
    places = [Partition("acme", f"{ROOT}{n}/") for n in range(9)]
    outside = Partition("acme", "path:teamsx/")
    await apply_all(
        store,
        *[
            put(
                record(
                    n,
                    place,
                    fields={"number": n % 3} if n else {},
                    created_at=T0.replace(hour=(7 * n + m) % 23),
                )
            )
            for m, place in enumerate([*places, outside])
            for n in range(4)
        ],
    )
    where, by = Under("acme", (ROOT,)), PAGE_ORDERS[order]
    whole = Query(SAMPLES, where, order=by, limit=MAX_LIMIT)
    expected = [r.key.id for r in (await store.query(replace(whole, where=within(*places)))).records]
    assert len(expected) == 36
    assert [r.key.id for r in (await store.query(whole)).records] == expected
    paged = [r.key.id async for page in scan(store, whole, 5) for r in page.records]
    assert paged == expected
    select = frozenset({"type"})
    heads = [h async for page in scan(store, replace(whole, select=select), 7) for h in page.heads]
    assert [h.key.id for h in heads] == expected
    assert all(h.fields.keys() <= select for h in heads)


MANY = 520
"""More partitions than some engines take in one list."""


@clause("under.exact", "under.pages", "under.found", "under.erased", since=2)
@needs("tenant_wide", "order", "filter")
@pytest.mark.asyncio
async def test_many_scopes_are_one_place(store: Store) -> None:
    places = [Partition("acme", f"{ROOT}{n:04}/") for n in range(MANY)]
    best, others = places[MANY - 3], [Partition("acme", f"path:teamsx/{n}/") for n in range(3)]
    await apply_all(
        store,
        *[
            put(
                record(
                    1,
                    place,
                    created_at=T0.replace(microsecond=n),
                    texts={"content": "lantern lantern" if place == best else "lantern of the harbour"},
                    vector=pack_vector([1.0, 0.0] if place == best else [n / MANY, 1.0]),
                )
            )
            for n, place in enumerate([*places, *others])
        ],
    )
    where = Under("acme", (ROOT,))
    whole = Query(SAMPLES, where, order=(Order("created_at", descending=True),))
    assert (await store.count(whole)).records == MANY
    paged = [r.key.id async for page in scan(store, whole, 200) for r in page.records]
    assert paged == [id_of(1, place) for place in reversed(places)]
    asked = Candidates(SAMPLES, where, "lantern", pack_vector([1.0, 0.0]), 3, counted=("lantern", "harbour"))
    answer = await store.candidates(asked)
    assert id_of(1, best) in set(answer.ids)
    assert set(answer.ids) <= {id_of(1, place) for place in places}
    assert answer.statistics.documents == MANY
    assert dict(answer.statistics.containing) == {"lantern": MANY, "harbour": MANY - 1}
    for by, offered in ((Words("lantern"), "lexical"), (Near(pack_vector([1.0, 0.0])), "semantic")):
        if getattr(store.capabilities, offered):
            hits = await store.search(Search(SAMPLES, where, by, 3))
            assert len(hits) == 3
            assert hits[0].head.key.id == id_of(1, best)
    assert await store.delete_matching(Query(SAMPLES, where), 100) == MANY
    assert sorted(await query_ids(store, Tenant("acme"))) == sorted(id_of(1, place) for place in others)


# -- searches --------------------------------------------------------------------------

TREE = tuple(Partition("acme", f"{ROOT}{label}/") for label in ("red", "red/notes", "Red", "r_d", "redder"))
INSIDE = Under("acme", (f"{ROOT}red/",), (f"{ROOT}r_d/",))
NAMED = within(*(place for place in TREE if INSIDE.contains(place.scope)))


def _tree_records(seed: int) -> list[Record]:
    chance = random.Random(seed)  # noqa: S311  the same each time
    outside = Partition("Acme", TREE[0].scope)
    return [random_record(chance, n, place) for place in (*TREE, outside) for n in range(16)]


@clause("under.found", "candidates.statistics", since=2)
@needs("tenant_wide", "filter")
@pytest.mark.asyncio
@cells("seed", range(2))
async def test_candidates_there_are_measured_by_the_whole_subtree(
    store: Store, harness: Harness, seed: int
) -> None:
    if seed >= harness.depth.seeds:
        return
    records = _tree_records(seed)
    await apply_all(store, *map(put, records))
    among = tuple(id_of(n, place) for place in TREE for n in (1, 6))
    for name, question in QUESTIONS.items():
        for where in (INSIDE, Under("acme", (ROOT,))):
            asked = replace(question, where=where, among=among if question.among else ())
            try:
                await check_candidates(store, asked, records)
            except AssertionError as wrong:
                raise AssertionError(f"asked for {name} in {where}: {wrong}") from wrong
    assert BESIDE in {question.around for question in QUESTIONS.values()}


async def _scores(store: Store, where: Where, by: Words | Near, **rest: object) -> list[tuple[str, Any]]:
    hits: list[Hit] = await store.search(Search(SAMPLES, where, by, 12, **rest))  # type: ignore[arg-type]
    return [(hit.head.key.id, pytest.approx(hit.score, rel=1e-5)) for hit in hits]


@clause("under.found", since=2)
@needs("tenant_wide", "filter")
@pytest.mark.asyncio
async def test_searches_there_find_and_score_as_in_the_same_scopes_by_name(store: Store) -> None:
    """Scores by words depend on the statistics, which the filter does not change."""
    if not (store.capabilities.lexical or store.capabilities.semantic):
        return
    await apply_all(store, *map(put, _tree_records(7)))
    ways: list[Words | Near] = (
        [Words("lantern of the harbour"), Words("penguin")] if store.capabilities.lexical else []
    )
    ways += [Near(pack_vector([1.0, 0.0, 0.0, 1.0]))] if store.capabilities.semantic else []
    for by in ways:
        for part in (None, Eq("type", "a")):
            for roles in (frozenset({Role.HOME}), ALL_ROLES):
                expected = await _scores(store, NAMED, by, filter=part, roles=roles)
                found = await _scores(store, INSIDE, by, filter=part, roles=roles)
                assert found == expected, by
                assert expected, "or this proves nothing"
    every = Search(SAMPLES, INSIDE, ways[0], 5, select=frozenset({"type", "number", "scope"}))
    assert await store.search(every) == await store.search(replace(every, where=NAMED))


@clause("under.found", since=2)
@needs("tenant_wide", "lexical", "tenant_statistics")
@pytest.mark.asyncio
async def test_scopes_beside_a_subtree_change_no_score_in_it(store: Store) -> None:
    there = [Partition("acme", f"{ROOT}red/{n}/") for n in range(3)]
    await apply_all(
        store,
        *[
            put(record(n, place, texts={"content": "lantern harbour" if n else "lantern"}))
            for place in there
            for n in range(3)
        ],
    )
    where = Under("acme", (f"{ROOT}red/",))
    before = await _scores(store, where, Words("lantern harbour"))
    beside = [Partition("acme", f"{ROOT}redder/"), Partition("Acme", f"{ROOT}red/"), Partition("acme", ROOT)]
    await apply_all(
        store,
        *[
            put(record(n, place, texts={"content": "harbour harbour and much more beside it"}))
            for place in beside
            for n in range(5)
        ],
    )
    assert await _scores(store, where, Words("lantern harbour")) == before


# -- erasing ---------------------------------------------------------------------------


@clause("under.erased", since=2)
@needs("tenant_wide", "filter")
@pytest.mark.asyncio
async def test_erasing_a_subtree_leaves_all_other_scopes(store: Store) -> None:
    await _fill(store)
    everything = {
        i for tenant in ALIKE_TENANTS for i in await query_ids(store, Tenant(tenant), roles=ALL_ROLES)
    }
    where = Under("acme", (f"{ROOT}red/",), (f"{ROOT}%25/",))
    inside = _ids(where)
    some = set(await query_ids(store, where, Eq("number", 3)))
    assert some < inside
    assert await store.delete_matching(Query(SAMPLES, where, Eq("number", 3)), 100) == len(some)
    assert await store.delete_matching(Query(SAMPLES, where, roles=ALL_ROLES), 100) == len(inside - some)
    assert await query_ids(store, where, roles=ALL_ROLES) == []
    left = {i for tenant in ALIKE_TENANTS for i in await query_ids(store, Tenant(tenant), roles=ALL_ROLES)}
    assert left == everything - inside
    tombstone = await fetch_stored(store, 1, Partition("acme", f"{ROOT}red/"))
    assert isinstance(tombstone, Tombstone)
    assert tombstone.version == 100


@clause("under.erased", "damage.apart", since=2)
@needs("durable", "tenant_wide")
@pytest.mark.asyncio
async def test_corrupt_records_of_a_subtree_are_named_and_erased_and_no_others(
    harness: Harness, store: Store
) -> None:
    inside, outside = Partition("acme", f"{ROOT}red/"), Partition("acme", f"{ROOT}redder/")
    body = {"said": "what was said " * 20}
    await apply_all(store, *[put(record(n, place, body=body)) for place in (inside, outside) for n in (1, 2)])
    await store.close()
    for place in (inside, outside):
        await harness.damage(store, SAMPLES, key_of(1, place))
    await store.open(DECLARED)
    where = Under("acme", (f"{ROOT}red/",))
    for _ in range(2):
        page = await store.query(Query(SAMPLES, where))
        assert [r.key for r in page.records] == [key_of(2, inside)]
        assert set(page.corrupt) <= {key_of(1, inside)}
    assert await store.delete_matching(Query(SAMPLES, where), 100) == 2
    assert isinstance(await fetch_stored(store, 1, inside), Tombstone)
    assert isinstance(await fetch_stored(store, 1, outside), Corrupt)
    assert await query_ids(store, within(outside)) == [id_of(2, outside)]
