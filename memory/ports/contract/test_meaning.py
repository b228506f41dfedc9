"""Search by meaning: nearest by cosine, exactly or nearly."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from memory.domain.errors import InvalidInput
from memory.ports.contract.capability_tests import needs
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.harness import Harness
from memory.ports.contract.support import (
    ELSEWHERE,
    HERE,
    apply_all,
    delete,
    fetch_record,
    id_of,
    put,
    record,
    selections,
)
from memory.ports.heads import head_of
from memory.ports.query import Eq, Hit, Near, Search, Tenant, Where, within
from memory.ports.record import Record, Role, pack_vector, unpack_vector
from memory.ports.store import Store
from memory.ports.writes import AtVersion

MANY = 2000


async def _near(
    store: Store, *values: float, limit: int = 10, where: Where | None = None, **rest: Any
) -> list[Hit]:
    return await store.search(
        Search(SAMPLES, where or within(HERE), Near(pack_vector(values)), limit, **rest)
    )


def _ids(hits: list[Hit]) -> list[str]:
    return [hit.head.key.id for hit in hits]


def _at(n: int, *values: float, **parts: Any) -> Record:
    return record(n, vector=pack_vector(values), **parts)


def _cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


@clause("semantic.nearest")
@needs("semantic")
@pytest.mark.asyncio
async def test_the_nearest_by_cosine_come_first_with_cosines_as_scores(store: Store) -> None:
    await apply_all(
        store, put(_at(1, 1, 0)), put(_at(2, 1, 1)), put(_at(3, 0, 5)), put(_at(4, -1, 0)), put(record(5))
    )
    hits = await _near(store, 10, 0)
    assert _ids(hits) == [id_of(n) for n in (1, 2, 3, 4)]
    assert [hit.score for hit in hits] == pytest.approx([1.0, math.sqrt(0.5), 0.0, -1.0], abs=1e-5)


@clause("semantic.nearest")
@needs("semantic")
@pytest.mark.asyncio
async def test_the_length_of_a_vector_does_not_matter(store: Store) -> None:
    await apply_all(store, put(_at(1, 1e-18, 2e-18)), put(_at(2, 1e17, 0)), put(_at(3, 0.5, 0.4)))
    assert _ids(await _near(store, 1, 2)) == [id_of(n) for n in (1, 3, 2)]


@clause("semantic.nearest")
@needs("semantic")
@pytest.mark.asyncio
async def test_vectors_whose_squares_are_no_float_have_a_direction_too(store: Store) -> None:
    await apply_all(store, put(_at(1, 1e-30, 2e-30)), put(_at(2, 1e30, 0)), put(_at(3, 0.5, 0.4)))
    for length in (1e-30, 1.0, 1e30):
        hits = await _near(store, length, 2 * length)
        assert _ids(hits) == [id_of(n) for n in (1, 3, 2)]
        assert hits[0].score == pytest.approx(1.0, abs=1e-5)


@clause("semantic.nearest")
@needs("semantic")
@pytest.mark.asyncio
async def test_the_nearest_of_many_are_found(store: Store, harness: Harness) -> None:
    chance = random.Random(7)  # noqa: S311  the same points every time
    many = min(MANY, harness.depth.many)
    points = {
        id_of(n): unpack_vector(pack_vector([chance.gauss(0, 1) for _ in range(16)])) for n in range(many)
    }
    await apply_all(store, *[put(record(n, vector=pack_vector(points[id_of(n)]))) for n in range(many)])
    right = 0
    for _ in range(20):
        asked = [chance.gauss(0, 1) for _ in range(16)]
        best = sorted(points, key=lambda i: -_cosine(points[i], asked))[:10]
        hits = await _near(store, *asked)
        assert [hit.score for hit in hits] == pytest.approx(
            [_cosine(points[i], asked) for i in _ids(hits)], abs=1e-4
        )
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        right += len(set(best) & set(_ids(hits)))
    assert right / 200 >= harness.recall


@clause("semantic.nearest", "search.limit")
@needs("semantic", "filter")
@pytest.mark.asyncio
async def test_a_narrow_filter_costs_no_hits(store: Store) -> None:
    """An index that filters only the nearest records finds none of these."""
    chance = random.Random(8)  # noqa: S311  the same points every time
    few = set(range(0, MANY, 200))
    near = [
        put(_at(n, 1.0, chance.random(), 0.0, fields={"type": "common"})) for n in range(MANY) if n not in few
    ]
    far = [put(_at(n, -1.0, chance.random(), 0.5, fields={"type": "rare"})) for n in few]
    await apply_all(store, *near, *far)
    assert {hit.head.key.id for hit in await _near(store, 1, 0, 0, filter=Eq("type", "rare"))} == {
        id_of(n) for n in few
    }


@clause("semantic.nearest")
@needs("semantic")
@pytest.mark.asyncio
async def test_vectors_of_other_dimensions_are_not_near_and_in_nobodys_way(store: Store) -> None:
    """In one partition, longer vectors are not compared by their beginning.

    Shorter ones are not compared by their missing dimensions.
    """
    await apply_all(
        store,
        put(_at(1, 1, 0)),
        put(_at(2, 1, 0, 0)),
        put(_at(3, 0, 1)),
        put(_at(4, 0, 0, 1)),
        put(_at(5, 1, 1, 0, 0)),
        put(_at(6, 1)),
    )
    for asked, numbers in (
        ((1, 0), (1, 3)),
        ((1, 0, 0), (2, 4)),
        ((1, 1, 0, 0), (5,)),
        ((2,), (6,)),
        ((1, 0, 0, 0, 0), ()),
    ):
        for limit in (10, len(numbers) or 1):
            assert _ids(await _near(store, *asked, limit=limit)) == [id_of(n) for n in numbers], asked
    assert [unpack_vector((await fetch_record(store, n)).vector or b"") for n in (1, 2, 6)] == [
        [1, 0],
        [1, 0, 0],
        [1],
    ]


@clause("search.heads", "heads.exact")
@needs("semantic")
@pytest.mark.asyncio
async def test_a_hit_by_meaning_is_the_same_copy_with_the_same_score_whatever_is_selected(
    store: Store,
) -> None:
    await apply_all(
        store,
        *[
            put(_at(n, 1, n, texts={"content": "word"}, body={"k": n}, tier="long", role=Role.REPLICA))
            for n in range(1, 5)
        ],
    )
    bare = await _near(store, 1, 2, roles=frozenset({Role.REPLICA}))
    records = {n: await fetch_record(store, n) for n in range(1, 5)}
    assert sorted(h.head.key for h in bare) == sorted(r.key for r in records.values())
    for select in selections(SAMPLES):
        hits = await _near(store, 1, 2, roles=frozenset({Role.REPLICA}), select=select)
        by_key = {r.key: r for r in records.values()}
        assert [h.head for h in hits] == [head_of(SAMPLES, by_key[h.head.key], select) for h in bare], select
        assert [h.score for h in hits] == pytest.approx([h.score for h in bare])


@clause("search.limit")
@needs("semantic")
@pytest.mark.asyncio
async def test_ties_come_by_id_and_the_limit_cuts_the_farthest(store: Store) -> None:
    await apply_all(store, *[put(_at(n, 1, 2, 3)) for n in (5, 3, 9, 1, 7)], put(_at(4, 1, 2, 3.5)))
    assert _ids(await _near(store, 1, 2, 3)) == [id_of(n) for n in (1, 3, 5, 7, 9, 4)]
    assert _ids(await _near(store, 1, 2, 3, limit=2)) == [id_of(1), id_of(3)]


@clause("refused.questions")
@needs("semantic")
@pytest.mark.asyncio
@cells(
    "vector",
    [
        b"",
        b"\x00\x00\x80",
        pack_vector([0.0, 0.0]),
        pack_vector([float("nan"), 1.0]),
        pack_vector([float("inf"), 1.0]),
    ],
    ids=["empty", "torn", "zero", "nan", "infinity"],
)
async def test_searching_by_what_is_no_direction_is_refused(store: Store, vector: bytes) -> None:
    with pytest.raises(InvalidInput):
        await store.search(Search(SAMPLES, within(HERE), Near(vector), 5))


@clause("semantic.follows")
@needs("semantic", "conditional")
@pytest.mark.asyncio
async def test_vectors_follow_every_write_at_once(store: Store) -> None:
    await apply_all(store, put(_at(1, 1, 0)), put(_at(2, 0, 1)))
    assert _ids(await _near(store, 1, 0, limit=1)) == [id_of(1)]
    await apply_all(store, put(_at(1, -1, 0, version=2), AtVersion(1)))
    assert _ids(await _near(store, 1, 0, limit=1)) == [id_of(2)]
    await apply_all(store, put(record(1, version=3), AtVersion(2)))
    assert _ids(await _near(store, -1, 0)) == [id_of(2)]
    await apply_all(store, delete(2))
    assert await _near(store, 1, 0) == []


@clause("semantic.follows")
@needs("semantic", "conditional", "filter")
@pytest.mark.asyncio
async def test_a_version_may_get_another_vector_also_of_other_dimensions_and_is_found_by_that_alone(
    store: Store,
) -> None:
    """A rebuild of vectors writes the whole record with a changed field.

    Its condition is the role and the tier in which the record was read.
    """
    await apply_all(
        store, put(_at(1, 1, 0)), put(_at(2, 1, 1)), put(_at(3, 1, 0, role=Role.REPLICA, tier="long"))
    )
    assert _ids(await _near(store, 1, 0)) == [id_of(1), id_of(2)]
    await apply_all(
        store,
        put(_at(1, 0, 1, fields={"type": "anew"}), AtVersion(1, Role.HOME)),
        put(_at(2, 0, 1, 1, fields={"type": "anew"}), AtVersion(1, Role.HOME)),
        put(_at(3, 0, 1, role=Role.REPLICA, tier="long"), AtVersion(1, Role.REPLICA, "long")),
    )
    (hit,) = await _near(store, 0, 1)
    assert hit.head.key.id == id_of(1)
    assert hit.score == pytest.approx(1.0, abs=1e-5)
    assert _ids(await _near(store, 0, 1, 1, filter=Eq("type", "anew"))) == [id_of(2)]
    assert _ids(await _near(store, 0, 1, roles=frozenset({Role.REPLICA}))) == [id_of(3)]
    await apply_all(store, put(record(2, fields={"type": "anew"}), AtVersion(1)))
    assert await _near(store, 0, 1, 1) == []


@clause("search.limit")
@needs("semantic", "filter")
@pytest.mark.asyncio
async def test_a_filter_chooses_among_vectors_before_the_limit_cuts(store: Store) -> None:
    await apply_all(
        store,
        *[put(_at(n, 1, n / 1000, fields={"type": "near"})) for n in range(60)],
        put(_at(70, -1, 0.5, fields={"type": "far"})),
    )
    assert _ids(await _near(store, 1, 0, limit=1, filter=Eq("type", "far"))) == [id_of(70)]


@clause("query.roles")
@needs("semantic")
@pytest.mark.asyncio
async def test_only_the_asked_roles_are_found_by_meaning(store: Store) -> None:
    await apply_all(store, *[put(_at(n, 1, n, role=role)) for n, role in enumerate(Role)])
    assert _ids(await _near(store, 1, 0)) == [id_of(0)]
    assert _ids(await _near(store, 1, 0, roles=frozenset({Role.REPLICA}))) == [id_of(1)]


@clause("isolation.where")
@needs("semantic")
@pytest.mark.asyncio
async def test_several_partitions_are_searched_by_meaning_together(store: Store) -> None:
    await apply_all(store, put(_at(1, 1, 0)), put(record(2, ELSEWHERE, vector=pack_vector([1, 1]))))
    assert _ids(await _near(store, 1, 0, where=within(HERE, ELSEWHERE))) == [id_of(1), id_of(2, ELSEWHERE)]


@clause("everywhere.all")
@needs("semantic", "tenant_wide")
@pytest.mark.asyncio
async def test_a_whole_tenant_is_searched_by_meaning(store: Store) -> None:
    await apply_all(store, put(_at(1, 1, 0)), put(record(2, ELSEWHERE, vector=pack_vector([1, 1]))))
    assert _ids(await _near(store, 1, 0, where=Tenant("acme"))) == [id_of(1), id_of(2, ELSEWHERE)]
    assert await _near(store, 1, 0, where=Tenant("umbrella")) == []
