"""Hostile names of tenants and scopes, in every method.

Each is kept exactly and reached by itself alone, or refused. `test_isolation` has the
reads of the partitions that they name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from memory.domain.errors import InvalidInput
from memory.ports.collections import Collection
from memory.ports.contract.capability_tests import needs
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.hostile_names import (
    FAMILIES,
    NAMES,
    SINGLE,
    STRANGE,
    keys_and_scopes,
    owned_record,
    owner,
    partition_of,
)
from memory.ports.contract.support import HERE, T0, apply_all, id_of, key_of, one, put, query_ids, record
from memory.ports.query import Count, Eq, In, Not, Order, Query, within
from memory.ports.record import Key, Mark, Record, Role, Stored, Tombstone
from memory.ports.store import Store
from memory.ports.writes import (
    Absent,
    Annotate,
    AtVersion,
    Delete,
    Newer,
    Purge,
    RaiseGeneration,
    Release,
    Status,
    Write,
)

Place = tuple[Key, str]


async def _stands(
    store: Store, places: Sequence[Place], collection: Collection = SAMPLES
) -> list[Stored | None]:
    return await store.get(collection, [key for key, _ in places])


def _whose(stored: Stored | None) -> object:
    """Return the owner that the record names."""
    return stored.body.get("of") if isinstance(stored, Record) else stored


@clause("names.apart")
@pytest.mark.asyncio
@cells("family", FAMILIES)
async def test_names_that_are_alike_are_held_apart(store: Store, family: str) -> None:
    places = keys_and_scopes(family)
    await apply_all(store, *[put(owned_record(*place)) for place in places[::2]])
    owners = [owner(key, scope) if n % 2 == 0 else None for n, (key, scope) in enumerate(places)]
    assert [_whose(s) for s in await _stands(store, places)] == owners

    await apply_all(store, *[put(owned_record(*place)) for place in places[1::2]])
    stands = await _stands(store, places)
    assert [_whose(s) for s in stands] == [owner(key, scope) for key, scope in places]
    assert [(s.key, s.scope) for s in stands if isinstance(s, Record)] == places


# -- writes ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kind:
    """A kind of write: the write for the n-th name, and its result.

    `before` is stored already, under another version each.
    """

    write: Callable[[int, Key, str], Write]
    leaves: Callable[[int, Key, str], object]
    before: Role | None = Role.HOME
    collection: Collection = SAMPLES


def _summary(stored: Stored | None) -> object:
    """Return the facts that a test can know of a stored item."""
    match stored:
        case Record():
            return ("record", stored.version, stored.tier, stored.scope, dict(stored.body))
        case Mark():
            return ("mark", stored.version, stored.to, stored.scope)
        case Tombstone():
            return ("tombstone", stored.version, dict(stored.note))
        case _:
            return stored


def _of(key: Key, scope: str, version: int, tier: str = "") -> object:
    return ("record", version, tier, scope, {"of": owner(key, scope)})


KINDS = {
    "put absent": _Kind(
        lambda n, k, s: put(owned_record(k, s, 1000 + n), Absent()),
        lambda n, k, s: _of(k, s, 1000 + n),
        before=None,
    ),
    "put newer": _Kind(
        lambda n, k, s: put(owned_record(k, s, 1000 + n), Newer()), lambda n, k, s: _of(k, s, 1000 + n)
    ),
    "put at its version": _Kind(
        lambda n, k, s: put(owned_record(k, s, 1000 + n), AtVersion(n + 1)),
        lambda n, k, s: _of(k, s, 1000 + n),
    ),
    "delete": _Kind(
        lambda n, k, s: Delete(SAMPLES, k, 1000 + n, AtVersion(n + 1), note={"n": n}),
        lambda n, k, s: ("tombstone", 1000 + n, {"n": n}),
    ),
    "release": _Kind(
        lambda n, k, s: Release(SAMPLES, k, n + 1, f"to {n}"), lambda n, k, s: ("mark", n + 1, f"to {n}", s)
    ),
    "annotate": _Kind(
        lambda n, k, s: Annotate(SAMPLES, k, n + 1, tier=f"tier {n}"),
        lambda n, k, s: _of(k, s, n + 1, f"tier {n}"),
    ),
    "purge": _Kind(lambda n, k, s: Purge(SAMPLES, k, n + 1), lambda n, k, s: None, before=Role.CACHED),
}


@clause("names.apart")
@needs("conditional")
@pytest.mark.asyncio
@cells("family", FAMILIES)
@cells("kind", KINDS)
async def test_every_kind_of_write_reaches_the_name_it_names_and_no_twin(
    store: Store, kind: str, family: str
) -> None:
    one_of, places = KINDS[kind], keys_and_scopes(family)
    if one_of.before is not None:
        await apply_all(
            store, *[put(owned_record(*place, n + 1, role=one_of.before)) for n, place in enumerate(places)]
        )
    expected = [_summary(s) for s in await _stands(store, places, one_of.collection)]

    for half in (0, 1):
        some = range(half, len(places), 2)
        await apply_all(store, *[one_of.write(n, *places[n]) for n in some])
        for n in some:
            expected[n] = one_of.leaves(n, *places[n])
        assert [_summary(s) for s in await _stands(store, places, one_of.collection)] == expected


@clause("names.apart", "generation.counts")
@pytest.mark.asyncio
@cells("family", FAMILIES)
async def test_every_partition_has_a_generation_of_its_own(store: Store, family: str) -> None:
    places = keys_and_scopes(family)
    outcomes = await apply_all(
        store, *[RaiseGeneration(partition_of(*place), n + 1) for n, place in enumerate(places)]
    )
    assert [o.number for o in outcomes] == [n + 1 for n in range(len(places))]
    outcomes = await apply_all(store, *[RaiseGeneration(partition_of(*place)) for place in places[::2]])
    assert [o.number for o in outcomes] == [n + 2 for n in range(0, len(places), 2)]
    outcomes = await apply_all(store, *[RaiseGeneration(partition_of(*place), 0) for place in places])
    assert [o.number for o in outcomes] == [n + 1 + (n % 2 == 0) for n in range(len(places))]

    outcomes = await apply_all(store, *[put(owned_record(*place)) for place in places])
    assert [o.generation for o in outcomes] == [n + 1 + (n % 2 == 0) for n in range(len(places))]


@clause("names.apart", "erase.matches")
@pytest.mark.asyncio
@cells("family", FAMILIES)
async def test_erasing_partitions_leaves_every_twin(store: Store, family: str) -> None:
    places = keys_and_scopes(family)
    await apply_all(store, *[put(owned_record(*place)) for place in places])
    expected = [_summary(s) for s in await _stands(store, places)]
    for n in range(0, len(places), 2):
        assert (
            await store.delete_matching(Query(SAMPLES, within(partition_of(*places[n]))), 1000 + n, T0) == 1
        )
        expected[n] = ("tombstone", 1000 + n, {})
    assert [_summary(s) for s in await _stands(store, places)] == expected


@clause("names.apart", "upkeep.forget", "upkeep.idle")
@pytest.mark.asyncio
@cells("family", FAMILIES)
async def test_forgetting_partitions_leaves_every_twin(store: Store, family: str) -> None:
    places = [partition_of(*place) for place in keys_and_scopes(family)]
    await apply_all(store, *[RaiseGeneration(place, n + 1) for n, place in enumerate(places)])
    idle = await store.idle_partitions()
    assert sorted(idle) == sorted((place, n + 1) for n, place in enumerate(places))
    assert await store.forget_partitions(
        [(place, n + 1) for n, place in enumerate(places) if n % 2 == 0]
    ) == len(places[::2])
    outcomes = await apply_all(store, *[RaiseGeneration(place, 0) for place in places])
    assert [o.number for o in outcomes] == [n % 2 * (n + 1) for n in range(len(places))]


# -- reading ---------------------------------------------------------------------------


@clause("query.pages")
@needs("order")
@pytest.mark.asyncio
@cells("descending", [False, True], shared=True)
async def test_pages_over_hostile_values_lose_and_repeat_nothing(store: Store, descending: bool) -> None:
    """That holds even if only the id distinguishes two records."""
    values = {id_of(n): NAMES[n // 2] for n in range(len(NAMES))}
    await apply_all(store, *[put(record(n, fields={"type": NAMES[n // 2]})) for n in range(len(NAMES))])
    ids = sorted(values, key=lambda id_: (values[id_], id_), reverse=descending)
    order = (Order("type", descending),)

    for limit in (1, 7):
        query: Query | None = Query(SAMPLES, within(HERE), order=order, limit=limit)
        walked: list[str] = []
        while query is not None:
            page = await store.query(query)
            walked += [r.key.id for r in page.records]
            query = None if page.cursor is None else replace(query, cursor=page.cursor)
        assert walked == ids


@clause("filter.holds")
@needs("filter")
@pytest.mark.asyncio
async def test_filters_find_exactly_the_hostile_value_they_name(store: Store) -> None:
    await apply_all(store, *[put(record(n, fields={"type": name})) for n, name in enumerate(NAMES)])
    for n, name in enumerate(NAMES):
        assert await query_ids(store, part=Eq("type", name)) == [id_of(n)]
    assert (await store.count(Query(SAMPLES, within(HERE), Not(In("type", NAMES[1:]))))).records == 1
    assert await store.delete_matching(Query(SAMPLES, within(HERE), In("type", NAMES[::2])), 1000) == len(
        NAMES[::2]
    )
    stands = await store.get(SAMPLES, [key_of(n) for n in range(len(NAMES))])
    assert [isinstance(s, Tombstone) for s in stands] == [n % 2 == 0 for n in range(len(NAMES))]


# -- names that a store need not hold --------------------------------------------------


@clause("names.or-refused")
@pytest.mark.asyncio
@cells("family", SINGLE)
async def test_a_name_is_held_as_it_is_or_its_write_is_rejected(store: Store, family: str) -> None:
    plain, strange = keys_and_scopes(family, NAMES[:6]), keys_and_scopes(family, STRANGE)
    together = [place for pair in zip(strange, (plain * 2)[: len(strange)], strict=True) for place in pair]

    outcomes = await store.apply([put(owned_record(*place)) for place in together])

    assert {o.status for o in outcomes[1::2]} == {Status.APPLIED}, "its neighbours are written"
    for place, outcome in zip(strange, outcomes[::2], strict=True):
        assert outcome.applied or (outcome.status is Status.REJECTED and outcome.reason), (
            f"{place}: {outcome}"
        )
        await _holds_or_finds_nothing(store, place, held=outcome.applied)
    assert [_whose(s) for s in await _stands(store, plain)] == [owner(key, scope) for key, scope in plain]


async def _holds_or_finds_nothing(store: Store, place: Place, held: bool) -> None:
    """Check that refused data are not found.

    The store may also refuse the question as invalid input.
    """
    key, scope = place
    asked = Query(SAMPLES, within(partition_of(key, scope)))
    try:
        stored = (await store.get(SAMPLES, [key]))[0]
        page = await store.query(asked)
        counted = await store.count(asked)
    except InvalidInput:
        assert not held
        return
    assert _whose(stored) == (owner(key, scope) if held else None)
    if held:
        assert key in [r.key for r in page.records]
    else:
        assert key not in [r.key for r in page.records]
        assert scope == HERE.scope or (page.records == () and counted == Count(0, 0))


@clause("names.or-refused")
@needs("conditional")
@pytest.mark.asyncio
@cells("family", SINGLE)
async def test_writes_to_what_a_store_does_not_hold_touch_nothing_else(store: Store, family: str) -> None:
    plain, strange = keys_and_scopes(family, NAMES[:6]), keys_and_scopes(family, STRANGE)
    await apply_all(store, *[put(owned_record(*place)) for place in plain])
    before = await _stands(store, plain)
    for key, scope in strange:
        writes: list[Write] = [
            Annotate(SAMPLES, key, 1, tier="x"),
            Release(SAMPLES, key, 1, "mid"),
            Purge(SAMPLES, key, 1),
            Delete(SAMPLES, key, 5, AtVersion(1)),
        ]
        outcomes = await store.apply([*writes, RaiseGeneration(partition_of(key, scope), 0)])
        assert all(o.status is not Status.REJECTED or o.reason for o in outcomes)
    assert await _stands(store, plain) == before
    assert (await one(store, RaiseGeneration(HERE, 0))).number == 0
