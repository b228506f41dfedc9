"""Partitions: each once with its generation, page by page, of one tenant only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from memory.domain.errors import InvalidInput, Unsupported
from memory.ports.contract.capability_tests import needs, without
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import DECLARED, MORE_SAMPLES, PLAIN, SAMPLES
from memory.ports.contract.harness import Harness
from memory.ports.contract.hostile_names import FAMILIES, partitions
from memory.ports.contract.support import (
    ELSEWHERE,
    FOREIGN,
    HERE,
    alike,
    apply_all,
    delete,
    key_of,
    put,
    record,
    release,
)
from memory.ports.query import MAX_LIMIT, Everywhere, Query, Tenant, within
from memory.ports.record import Partition, Role
from memory.ports.store import Store
from memory.ports.writes import Absent, Annotate, Purge, RaiseGeneration

Found = list[tuple[Partition, int]]
ACME = Tenant("acme")


async def _walk_pages(store: Store, where: Tenant | Everywhere, limit: int, prefix: str = "") -> Found:
    """Return the rows of all pages; each but the last is as long as its limit."""
    found: Found = []
    cursor: str | None = None
    while True:
        page = await store.partitions(where, prefix=prefix, limit=limit, cursor=cursor)
        found += page.partitions
        cursor = page.cursor
        if cursor is None:
            assert len(page.partitions) <= limit
            assert page.partitions or not found, "behind the last page there is none"
            return found
        assert len(page.partitions) == limit


async def _all(store: Store, where: Tenant | Everywhere = ACME) -> Found:
    page = await store.partitions(where, limit=MAX_LIMIT)
    assert page.cursor is None
    return list(page.partitions)


@clause("partitions.exact")
@needs("tenant_wide")
@pytest.mark.asyncio
async def test_a_partition_is_there_while_a_record_or_a_generation_is(store: Store) -> None:
    """Records of any collection and role count; marks and tombstones do not."""
    assert await _all(store, Everywhere()) == []
    other, third = Partition("acme", "org:a"), Partition("acme", "session:s")
    await apply_all(
        store,
        put(record(1)),
        put(record(2)),
        put(record(1, FOREIGN), collection=PLAIN),
        RaiseGeneration(ELSEWHERE, 4),
    )
    await apply_all(
        store,
        put(record(1, other, role=Role.ARRIVING), collection=MORE_SAMPLES),
        put(record(1, third, role=Role.CACHED)),
    )
    assert await _all(store) == [(other, 0), (third, 0), (HERE, 0), (ELSEWHERE, 4)]
    assert await _all(store, Tenant("umbrella")) == [(FOREIGN, 0)]
    assert await _all(store, Tenant("nobody")) == []
    await apply_all(store, RaiseGeneration(HERE), RaiseGeneration(Partition("acme", "user:asked"), 0))
    assert await _all(store, Everywhere()) == [
        (other, 0),
        (third, 0),
        (HERE, 1),
        (ELSEWHERE, 4),
        (FOREIGN, 0),
    ]
    roles = frozenset(Role)
    for at, collection in ((HERE, SAMPLES), (FOREIGN, PLAIN), (other, MORE_SAMPLES), (third, SAMPLES)):
        assert await store.delete_matching(Query(collection, within(at), roles=roles), 9) >= 1
    assert await _all(store, Everywhere()) == [(HERE, 1), (ELSEWHERE, 4)]
    await apply_all(store, put(record(5, third)), put(record(5, FOREIGN), collection=PLAIN))
    assert await _all(store, Everywhere()) == [(third, 0), (HERE, 1), (ELSEWHERE, 4), (FOREIGN, 0)]


@clause("partitions.exact")
@needs("tenant_wide", "conditional")
@pytest.mark.asyncio
async def test_what_every_kind_of_write_leaves_is_seen(store: Store) -> None:
    """A mark is no record, with or without pending steps; a forgotten item is gone."""
    places = [Partition("acme", f"user:{n}") for n in range(5)]
    await apply_all(
        store,
        *[
            put(record(1, at, role=Role.CACHED if n == 2 else Role.HOME), Absent())
            for n, at in enumerate(places)
        ],
    )
    await apply_all(
        store,
        delete(1, at=places[0]),
        *[RaiseGeneration(at, 3) for at in places[3:]],
        delete(1, at=places[3]),
    )
    mark = release(1)
    await apply_all(
        store, type(mark)(SAMPLES, key_of(1, places[1]), 1, "mid"), Purge(SAMPLES, key_of(1, places[2]), 1)
    )
    await apply_all(store, Annotate(SAMPLES, key_of(1, places[4]), 1, role=Role.REPLICA))
    assert await _all(store) == [(places[3], 3), (places[4], 3)]
    if idle := [one for one in await store.idle_partitions() if one[0] == places[3]]:
        assert await store.forget_partitions(idle) == 1
        assert await _all(store) == [(places[4], 3)]
    await apply_all(store, put(record(2, places[0])), put(record(2, places[1])))
    assert await _all(store) == [
        (places[0], 0),
        (places[1], 0),
        *([] if idle else [(places[3], 3)]),
        (places[4], 3),
    ]


@clause("partitions.exact", "names.apart", "isolation.where")
@needs("tenant_wide")
@pytest.mark.asyncio
@cells("family", FAMILIES)
async def test_partitions_that_are_alike_are_each_named_once(store: Store, family: str) -> None:
    """They come in the order of code points, with their generations, page by page."""
    places = partitions(family)
    await apply_all(
        store,
        *[put(record(n, at)) for n, at in enumerate(places) if n % 3],
        *[RaiseGeneration(at, n) for n, at in enumerate(places) if n % 2],
    )
    expected = sorted((at, n % 2 * n) for n, at in enumerate(places) if n % 3 or n % 2)
    alike(await _all(store, Everywhere()), expected)
    for limit in (7, len(expected) - 1, len(expected)):
        alike(await _walk_pages(store, Everywhere(), limit), expected)
    for tenant in dict.fromkeys(at.tenant for at in places):
        alike(
            await _walk_pages(store, Tenant(tenant), 5), [one for one in expected if one[0].tenant == tenant]
        )


@clause("partitions.pages")
@needs("tenant_wide")
@pytest.mark.asyncio
async def test_a_prefix_is_of_scopes_character_by_character(store: Store) -> None:
    """Names that sort beside the prefix, or behind all with it, are not included."""
    places = partitions("scopes") + [
        Partition("acme", scope)
        for scope in (
            "user:ann",
            "user:ann/b",
            "user:anna",
            "users",
            "User:ann",
            "user:\U0001f600",
            "\U0010ffff",
        )
    ]
    places += [Partition("umbrella", "user:ann"), Partition("acm", "user:ann")]
    await apply_all(store, *[put(record(n, at)) for n, at in enumerate(places)])
    for prefix in (
        "user:",
        "user:ann",
        "acme",
        "acme\u0301",
        "é",
        "%",
        "_",
        "a*",
        "\\",
        "'",
        "\x01",
        "x" * 511,
        "\uffff",
        "\U0010ffff",
        "none",
        "",
    ):
        expected = sorted((at, 0) for at in places if at.tenant == "acme" and at.scope.startswith(prefix))
        alike(await _walk_pages(store, ACME, 4, prefix), expected)
    everywhere = sorted((at, 0) for at in places if at.scope.startswith("user:ann"))
    alike(await _walk_pages(store, Everywhere(), 2, "user:ann"), everywhere)


@clause("partitions.pages")
@needs("tenant_wide")
@pytest.mark.asyncio
async def test_pages_lose_and_repeat_nothing_while_partitions_come_and_go(store: Store) -> None:
    places = [Partition("acme", f"user:{n:03}") for n in range(60)]
    await apply_all(store, *[put(record(1, at), collection=DECLARED[n % 3]) for n, at in enumerate(places)])
    assert (
        await _walk_pages(store, ACME, 1) == await _walk_pages(store, ACME, 59) == [(at, 0) for at in places]
    )
    first = await store.partitions(ACME, limit=19)
    everywhere = await store.partitions(Everywhere(), limit=19)
    assert first.cursor is not None
    await store.delete_matching(Query(SAMPLES, within(*places)), 9)
    await apply_all(
        store, put(record(1, Partition("acme", "user:0001"))), put(record(1, Partition("acme", "user:0451")))
    )
    kept = tuple(
        (at, 0)
        for at in sorted(
            [*[at for n, at in enumerate(places) if n >= 19 and n % 3], Partition("acme", "user:0451")]
        )
    )
    for where, before in (
        (ACME, first),
        (Everywhere(), everywhere),
    ):  # the last of the page is one that is gone
        rest = await store.partitions(where, cursor=before.cursor)
        assert (before.partitions, rest.partitions) == (tuple((at, 0) for at in places[:19]), kept)


@clause("partitions.exact", "damage.erased")
@needs("durable", "tenant_wide")
@pytest.mark.asyncio
async def test_a_partition_of_which_nothing_can_be_read_is_named(harness: Harness, store: Store) -> None:
    """Erasure must reach it."""
    await apply_all(store, put(record(1)), put(record(2, ELSEWHERE)))
    await store.close()
    await harness.damage(store, SAMPLES, key_of(1))
    await store.open(DECLARED)
    for _ in range(2):
        assert await _all(store) == [(HERE, 0), (ELSEWHERE, 0)]
        await store.get(SAMPLES, [key_of(1)])
    assert await store.delete_matching(Query(SAMPLES, within(HERE)), 9) == 1
    assert await _all(store) == [(ELSEWHERE, 0)]


@clause("partitions.pages", "refused.questions")
@needs("tenant_wide")
@pytest.mark.asyncio
async def test_what_is_no_question_for_partitions_is_refused(store: Store) -> None:
    await apply_all(store, put(record(1)), put(record(1, ELSEWHERE)))
    cursor = (await store.partitions(ACME, limit=1)).cursor
    records = (await store.query(Query(SAMPLES, within(HERE), limit=1))).cursor
    assert (cursor is not None, records) == (True, None)
    wrong: Sequence[dict[str, Any]] = [
        *[{"limit": limit} for limit in (0, -1, MAX_LIMIT + 1, True, "5", None)],
        *[{"prefix": prefix} for prefix in (None, 5, b"user", "half \ud83d")],
        *[{"cursor": text} for text in ("", "nonsense", "ééé", "e30", "W10", "WzEsMl0")],
    ]
    for given in wrong:
        with pytest.raises(InvalidInput, match=next(iter(given))):
            await store.partitions(ACME, **given)
    with pytest.raises(InvalidInput, match="where"):
        await store.partitions(within(HERE))  # type: ignore[arg-type]
    for limit in (1, 2, MAX_LIMIT):
        assert len((await store.partitions(ACME, limit=limit)).partitions) == min(limit, 2)


@clause("flag.refused")
@without("tenant_wide")
@pytest.mark.asyncio
async def test_a_store_that_answers_no_whole_tenant_names_no_partitions(store: Store) -> None:
    with pytest.raises(Unsupported, match="tenant_wide"):
        await store.partitions(ACME)
