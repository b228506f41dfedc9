"""Due rows: reported with the reason, completely, and page by page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from memory.domain.errors import InvalidInput, Unsupported
from memory.ports.collections import Collection
from memory.ports.contract.capability_tests import needs, without
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import DECLARED, MORE_SAMPLES, PLAIN, SAMPLES
from memory.ports.contract.support import FOREIGN, T0, apply_all, delete, key_of, put, record, release
from memory.ports.due import DueReason, DueRow
from memory.ports.record import PendingStep, Role
from memory.ports.store import Store
from memory.ports.writes import Annotate, Purge

NOW = T0 + timedelta(days=1)
MICROSECOND = timedelta(microseconds=1)
STEP = (PendingStep("1", "keep", {"said": "a"}),)
Told = tuple[str, str, str, int, DueReason, str]


def _flat(row: DueRow) -> Told:
    return (row.collection.name, row.key.tenant, row.key.id, row.version, row.why, row.tier)


async def _fetch_due(
    store: Store, limit: int = 500, now: datetime = NOW, expired: Mapping[Collection, datetime] | None = None
) -> list[Told]:
    """Return the rows of all pages, and check each page's length."""
    told: list[Told] = []
    cursor: str | None = None
    for _ in range(200):
        found = await store.due(now, limit, cursor, expired=expired)
        assert len(found.rows) <= limit
        told += [_flat(row) for row in found.rows]
        cursor = found.cursor
        if cursor is None:
            return told
    pytest.fail("the pages of what is due do not end")


def _due_row(n: int, version: int, why: DueReason, tier: str = "", collection: Collection = SAMPLES) -> Told:
    key = key_of(n)
    return (collection.name, key.tenant, key.id, version, why, tier)


async def _fill(store: Store) -> list[Told]:
    """Write items of each kind, due and not yet due, and return the due ones."""
    await apply_all(
        store,
        put(record(1, version=3, tier="mid", owed=STEP)),
        put(record(2, role=Role.ARRIVING, tier="long", owed=STEP)),
        put(record(3, role=Role.ARRIVING, tier="mid")),
        put(record(4, role=Role.REPLICA, owed=STEP, expires_at=T0)),
        put(record(5, tier="short", expires_at=NOW - MICROSECOND)),
        put(record(6, expires_at=NOW)),
        put(record(7, expires_at=NOW + MICROSECOND)),
        put(record(8)),
        *[put(record(n)) for n in (9, 10, 11)],
        release(9, discard_at=NOW - MICROSECOND, owed=STEP),
        release(10, discard_at=NOW - MICROSECOND),
        release(11, discard_at=NOW),
        delete(12, owed=STEP, discard_at=T0),
        delete(13, version=7, discard_at=NOW - MICROSECOND),
        delete(14, discard_at=NOW),
        delete(15),
        put(record(16, role=Role.CACHED, expires_at=T0, cached_at=T0)),
        put(record(17, expires_at=T0, owed=STEP), collection=PLAIN),
        *[
            delete(n, collection=collection, discard_at=T0)
            for collection in (MORE_SAMPLES, PLAIN)
            for n in (19, 20, 21)
        ],
        put(record(18, FOREIGN, owed=STEP), collection=MORE_SAMPLES),
    )
    foreign = key_of(18, FOREIGN)
    return [
        _due_row(1, 3, DueReason.OWES, "mid"),
        _due_row(2, 1, DueReason.OWES, "long"),
        _due_row(2, 1, DueReason.ARRIVING, "long"),
        _due_row(3, 1, DueReason.ARRIVING, "mid"),
        _due_row(9, 1, DueReason.OWES),
        _due_row(10, 1, DueReason.DISCARD),
        _due_row(12, 100, DueReason.OWES),
        _due_row(13, 7, DueReason.DISCARD),
        _due_row(17, 1, DueReason.OWES, collection=PLAIN),
        *[
            _due_row(n, 100, DueReason.DISCARD, collection=collection)
            for collection in (MORE_SAMPLES, PLAIN)
            for n in (19, 20, 21)
        ],
        (MORE_SAMPLES.name, foreign.tenant, foreign.id, 1, DueReason.OWES, ""),
    ]


@clause("due.exact")
@needs("tenant_wide", "filter", "conditional")
@pytest.mark.asyncio
async def test_everything_due_is_told_with_why_and_nothing_else(store: Store) -> None:
    assert await _fetch_due(store) == []
    due = await _fill(store)
    assert sorted(await _fetch_due(store)) == sorted(due)
    assert sorted(await _fetch_due(store, expired={SAMPLES: NOW})) == sorted(
        [*due, _due_row(5, 1, DueReason.EXPIRED, "short")]
    )
    assert sorted(await _fetch_due(store, expired={PLAIN: NOW, SAMPLES: T0})) == sorted(
        [*due, _due_row(17, 1, DueReason.EXPIRED, "", PLAIN)]
    )
    later = [_due_row(11, 1, DueReason.DISCARD), _due_row(14, 100, DueReason.DISCARD)]
    assert sorted(await _fetch_due(store, now=NOW + MICROSECOND)) == sorted([*due, *later])


@clause("due.exact")
@needs("tenant_wide", "filter", "conditional")
@pytest.mark.asyncio
async def test_one_thing_alone_is_told_whatever_it_is_due_for(store: Store) -> None:
    """A store may first check whether anything is due at all."""
    await apply_all(store, put(record(5)))
    for write, told, seen_to in (
        (
            put(record(1, owed=STEP), collection=PLAIN),
            _due_row(1, 1, DueReason.OWES, "", PLAIN),
            Annotate(PLAIN, key_of(1), at=1, settle=("1",)),
        ),
        (
            put(record(2, role=Role.ARRIVING)),
            _due_row(2, 1, DueReason.ARRIVING),
            Annotate(SAMPLES, key_of(2), at=1, role=Role.HOME),
        ),
        (delete(3, discard_at=T0), _due_row(3, 100, DueReason.DISCARD), Purge(SAMPLES, key_of(3), 100)),
        (
            delete(4, owed=STEP),
            _due_row(4, 100, DueReason.OWES),
            Annotate(SAMPLES, key_of(4), at=100, settle=("1",)),
        ),
        (release(5, discard_at=T0), _due_row(5, 1, DueReason.DISCARD), Purge(SAMPLES, key_of(5), 1)),
        (
            (put(record(7)), release(7), _ends(7, 1)),
            _due_row(7, 1, DueReason.DISCARD),
            Purge(SAMPLES, key_of(7), 1),
        ),
        ((delete(8), _ends(8, 100)), _due_row(8, 100, DueReason.DISCARD), Purge(SAMPLES, key_of(8), 100)),
        (
            (delete(9, discard_at=NOW), _ends(9, 100)),
            _due_row(9, 100, DueReason.DISCARD),
            Annotate(SAMPLES, key_of(9), 100, discard_at=NOW),
        ),
        (
            (put(record(10)), _becomes(10, role=Role.ARRIVING)),
            _due_row(10, 1, DueReason.ARRIVING),
            put(record(10, version=2)),
        ),
        (
            (put(record(11, role=Role.ARRIVING)), _becomes(11, tier="long")),
            _due_row(11, 1, DueReason.ARRIVING, "long"),
            delete(11),
        ),
        (
            (put(record(12)), put(record(12, version=2, owed=STEP))),
            _due_row(12, 2, DueReason.OWES),
            release(12, 2, settles=frozenset({"keep"})),
        ),
        (
            (put(record(13, owed=STEP, role=Role.REPLICA)), _becomes(13, role=Role.HOME)),
            _due_row(13, 1, DueReason.OWES),
            _becomes(13, role=Role.REPLICA),
        ),
    ):
        await apply_all(store, *(write if isinstance(write, tuple) else (write,)))
        assert await _fetch_due(store) == [told]
        await apply_all(store, seen_to)
        assert await _fetch_due(store) == []
    await apply_all(store, put(record(6, expires_at=T0)))
    assert await _fetch_due(store, expired={PLAIN: NOW, SAMPLES: NOW}) == [_due_row(6, 1, DueReason.EXPIRED)]
    await apply_all(store, _becomes(6, role=Role.REPLICA))
    assert await _fetch_due(store, expired={PLAIN: NOW, SAMPLES: NOW}) == []
    await apply_all(store, _becomes(6, role=Role.HOME))
    assert await _fetch_due(store, expired={PLAIN: NOW, SAMPLES: NOW}) == [_due_row(6, 1, DueReason.EXPIRED)]
    await apply_all(store, put(record(6, version=2, expires_at=NOW)))
    assert await _fetch_due(store, expired={PLAIN: NOW, SAMPLES: NOW}) == []


def _becomes(n: int, **changes: Any) -> Annotate:
    return Annotate(SAMPLES, key_of(n), 1, **changes)


def _ends(n: int, version: int) -> Annotate:
    return Annotate(SAMPLES, key_of(n), version, discard_at=T0)


@clause("due.exact")
@needs("tenant_wide", "filter", "conditional")
@pytest.mark.asyncio
async def test_what_has_been_seen_to_is_due_no_longer(store: Store) -> None:
    due = await _fill(store)
    assert sorted(await _fetch_due(store)) == sorted(due)
    settled = [
        Annotate(SAMPLES, key_of(n), at=version, settle=("1",))
        for n, version in ((1, 3), (2, 1), (9, 1), (12, 100))
    ]
    home = [Annotate(SAMPLES, key_of(n), at=1, role_is=Role.ARRIVING, role=Role.HOME) for n in (2, 3)]
    await apply_all(store, *settled, *home, Purge(SAMPLES, key_of(10), 1), Purge(SAMPLES, key_of(13), 7))
    left = [told for told in await _fetch_due(store) if told[0] == SAMPLES.name]
    assert sorted(left) == sorted([_due_row(9, 1, DueReason.DISCARD), _due_row(12, 100, DueReason.DISCARD)])


@clause("due.pages")
@needs("tenant_wide", "filter", "conditional")
@pytest.mark.parametrize("limit", [1, 2, 3, 7])
@pytest.mark.asyncio
async def test_pages_of_what_is_due_are_together_what_is_told_at_once(store: Store, limit: int) -> None:
    await _fill(store)
    await apply_all(
        store,
        *[put(record(n, owed=STEP), collection=collection) for n in range(22, 26) for collection in DECLARED],
    )
    at_once = await _fetch_due(store, expired={SAMPLES: NOW})
    assert sorted(await _fetch_due(store, limit, expired={SAMPLES: NOW})) == sorted(at_once)
    assert len(at_once) == 29


@clause("due.pages")
@needs("tenant_wide", "filter", "conditional")
@pytest.mark.asyncio
async def test_what_is_seen_to_between_two_pages_hides_nothing_behind_it(store: Store) -> None:
    await apply_all(
        store,
        *[delete(n, discard_at=T0) for n in range(1, 12)],
        *[put(record(n, owed=STEP)) for n in range(20, 25)],
    )
    told: list[Told] = []
    cursor: str | None = None
    for _ in range(40):
        found = await store.due(NOW, 2, cursor)
        told += [_flat(row) for row in found.rows]
        purges = [Purge(SAMPLES, row.key, row.version) for row in found.rows if row.why is DueReason.DISCARD]
        settled = [
            Annotate(SAMPLES, row.key, at=row.version, settle=("1",))
            for row in found.rows
            if row.why is DueReason.OWES
        ]
        await apply_all(store, *purges, *settled)
        cursor = found.cursor
        if cursor is None:
            break
    expected = [
        *[_due_row(n, 100, DueReason.DISCARD) for n in range(1, 12)],
        *[_due_row(n, 1, DueReason.OWES) for n in range(20, 25)],
    ]
    assert sorted(told) == sorted(expected)
    assert await _fetch_due(store) == []


@clause("refused.questions")
@needs("tenant_wide", "filter")
@pytest.mark.asyncio
async def test_wrong_limits_cursors_and_collections_are_refused(store: Store) -> None:
    for limit in (0, -1, 10_001, True, 2.0):
        with pytest.raises(InvalidInput, match="limit"):
            await store.due(NOW, limit)  # type: ignore[arg-type]
    for cursor in ("nonsense", "9999:", "-1:", "1:nonsense"):
        with pytest.raises(InvalidInput, match="cursor"):
            await store.due(NOW, 5, cursor)
    with pytest.raises(InvalidInput, match="collection"):
        await store.due(NOW, expired={Collection("strange"): NOW})


@clause("flag.refused")
@without("tenant_wide")
@pytest.mark.asyncio
async def test_what_is_due_is_refused_where_everywhere_is(store: Store) -> None:
    with pytest.raises(Unsupported, match="tenant_wide"):
        await store.due(NOW)


@clause("flag.refused")
@without("filter")
@needs("tenant_wide")
@pytest.mark.asyncio
async def test_what_is_due_is_refused_where_filters_are(store: Store) -> None:
    with pytest.raises(Unsupported, match="filter"):
        await store.due(NOW)
