"""Every kind of question sees the same: pages, counts, searches, candidates, deletions.

An engine may answer each kind from an index of its own. These tests ask all kinds for
what one of them may have missed: changed bookkeeping, fields that are alike, and long
lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory.ports.candidates import Candidates
from memory.ports.contract.capability_tests import needs
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import (
    ELSEWHERE,
    HERE,
    T0,
    apply_all,
    everything_of,
    fetch_record,
    id_of,
    key_of,
    put,
    query_ids,
    record,
    ways,
)
from memory.ports.heads import head_of
from memory.ports.query import (
    MAX_LIMIT,
    And,
    Condition,
    Eq,
    Ge,
    Gt,
    In,
    Le,
    Lt,
    Not,
    Order,
    Query,
    Search,
    Where,
    within,
)
from memory.ports.record import Partition, PendingStep, Record, Role, pack_vector
from memory.ports.store import Store
from memory.ports.writes import Annotate, RaiseGeneration

ROLES = frozenset({Role.HOME, Role.ARRIVING})


def _searchable_record(store: Store, n: int, at: Partition = HERE, **parts: Any) -> Record:
    """Return a record that every search of `_answers` finds."""
    vector = pack_vector([1.0, 0.5]) if store.capabilities.semantic else None
    return record(n, at, texts={"content": "lantern"}, vector=vector, **parts)


async def _answers(store: Store, part: Condition | None, where: Where | None = None) -> dict[str, object]:
    """Return the ids that each kind of question finds, by its name."""
    where = where or within(HERE)
    asked = Query(SAMPLES, where, part, limit=MAX_LIMIT, roles=ROLES)
    found: dict[str, object] = {
        "pages": await query_ids(store, where, part, roles=ROLES),
        "heads": [h.key.id for h in (await store.query(replace(asked, select=frozenset()))).heads],
        "count": (await store.count(asked)).records,
    }
    for by in ways(store, "lantern", 1.0, 0.5):
        hits = await store.search(Search(SAMPLES, where, by, 1_000, part, ROLES))
        found[f"search by {type(by).__name__}"] = sorted(hit.head.key.id for hit in hits)
    near = pack_vector([1.0, 0.5])
    answer = await store.candidates(
        Candidates(SAMPLES, where, "lantern", near, 1_000, filter=part, roles=ROLES)
    )
    return {**found, "candidates": sorted(answer.ids)}


async def _assert_found(
    store: Store, part: Condition | None, ids: Sequence[str], where: Where | None = None
) -> None:
    for kind, answer in (await _answers(store, part, where)).items():
        assert answer == (len(ids) if kind == "count" else sorted(ids)), f"{kind} by {part}"


@clause("annotate.only", "filter.holds", "search.heads", "candidates.measured", "erase.matches", since=3)
@needs("conditional", "filter")
@pytest.mark.asyncio
async def test_every_kind_of_question_sees_what_an_annotation_left(store: Store) -> None:
    later = T0 + timedelta(days=1)
    books: dict[str, Any] = {
        "tier": "short",
        "role": Role.ARRIVING,
        "owed": (PendingStep("k", "k"),),
        "expires_at": T0,
    }
    await apply_all(store, *[put(_searchable_record(store, n, **books)) for n in (1, 2)])
    await apply_all(
        store,
        Annotate(SAMPLES, key_of(1), 1, role=Role.HOME, tier="long", settle=("k",)),
        Annotate(SAMPLES, key_of(1), 1, accessed_at=T0, expires_at=later),
    )
    for part in (
        Eq("role", Role.HOME),
        Eq("tier", "long"),
        Eq("owing", False),
        Gt("expires_at", T0),
        Ge("accesses", 1),
        Eq("accessed_at", T0),
    ):
        await _assert_found(store, part, [id_of(1)])
        await _assert_found(store, Not(part), [id_of(2)])
    select = everything_of(SAMPLES)
    left = head_of(SAMPLES, await fetch_record(store, 1), select)
    for by in ways(store, "lantern", 1.0, 0.5):
        hits = await store.search(Search(SAMPLES, within(HERE), by, 5, select=select))
        assert [hit.head for hit in hits] == [left]
    names = frozenset({"role", "tier", "owing", "expires_at", "accesses", "accessed_at"})
    answer = await store.candidates(Candidates(SAMPLES, within(HERE), "lantern", select=names))
    assert (list(answer.roles), list(answer.tiers)) == ([Role.HOME], ["long"])
    assert {name: list(answer.fields[name]) for name in names} == {
        name: [left.fields[name]] for name in names
    }
    erased = await store.delete_matching(Query(SAMPLES, within(HERE), Eq("tier", "short"), roles=ROLES), 50)
    assert erased == 1
    await _assert_found(store, None, [id_of(1)])


@clause("heads.exact", "content.long", "candidates.measured", since=3)
@pytest.mark.asyncio
async def test_heads_and_candidates_carry_long_values_whole(store: Store) -> None:
    fields: dict[str, Any] = {"type": "é" * 20_000, "source": "x" * 70_000, "seal": b"\x00" * 70_000}
    fields["tags"] = (*[f"tag {n}" for n in range(1_000)], "t" * 20_000)
    await apply_all(store, put(_searchable_record(store, 1, fields=fields)))
    select = frozenset(fields)
    wanted = head_of(SAMPLES, await fetch_record(store, 1), select)
    assert dict(wanted.fields) == fields
    page = await store.query(Query(SAMPLES, within(HERE), select=select))
    assert page.heads == (wanted,)
    for by in ways(store, "lantern", 1.0, 0.5):
        hits = await store.search(Search(SAMPLES, within(HERE), by, 5, select=select))
        assert [hit.head for hit in hits] == [wanted]
    answer = await store.candidates(Candidates(SAMPLES, within(HERE), "lantern", select=select))
    assert {name: answer.fields[name][0] for name in fields} == fields


RANKS = 8
"""As many records, and as many values of each field."""
_TIMES = ("created_at", "updated_at", "expires_at", "accessed_at", "valid_from", "valid_to")
_TEXTS = ("tier", "type", "conversation_id")
_NUMBERS = ("version", "generation", "accesses", "number")
_REALS = ("confidence", "share")
_FIELDS = (*_TIMES, *_TEXTS, *_NUMBERS, *_REALS)


def _rank(field: str, n: int) -> int:
    """Return the rank of the n-th record's value: every field has another order."""
    place = _FIELDS.index(field)
    return ((1, 3, 5, 7)[place % 4] * n + place // 4) % RANKS


def _value(field: str, rank: int) -> Any:
    if field in _TIMES:
        return T0 + timedelta(seconds=rank)
    if field in _TEXTS:
        return "abcdefgh"[rank]
    return rank / 4 if field in _REALS else rank + 1


def _ranked_record(store: Store, n: int) -> Record:
    values = {field: _value(field, _rank(field, n)) for field in _FIELDS}
    declared = {field: value for field, value in values.items() if SAMPLES.field(field) is not None}
    system = {field: value for field, value in values.items() if field not in declared}
    return replace(_searchable_record(store, n), **system, fields=declared)


@clause("filter.holds", "query.order", "search.limit", "candidates.found", since=3)
@needs("filter")
@pytest.mark.asyncio
async def test_no_field_is_taken_for_another_in_any_kind_of_question(store: Store) -> None:
    """Moments with moments, texts with texts: system fields and declared ones."""
    await apply_all(store, *[put(_ranked_record(store, n)) for n in range(RANKS)])
    some = tuple(map(id_of, range(4)))
    for field in _FIELDS:
        ids = [id_of(n) for n in sorted(range(RANKS), key=lambda n, field=field: _rank(field, n))]  # type: ignore[misc]
        below = And((Le(field, _value(field, 3)), In("id", some)))  # as many as no other field
        await _assert_found(store, below, [i for i in ids[:4] if i in some])
        assert await query_ids(store, part=Eq(field, _value(field, 5))) == ids[5:6], field
        if store.capabilities.order:
            assert await query_ids(store, order=(Order(field),)) == ids, field
            query = Query(SAMPLES, within(HERE), order=(Order(field, True),), limit=5)
            page = await store.query(query)
            rest = await store.query(replace(query, cursor=page.cursor))
            assert [r.key.id for r in (*page.records, *rest.records)] == ids[::-1], field


_WHOLE = T0.replace(microsecond=0)
_CLOSE = [_WHOLE + timedelta(microseconds=n) for n in (-1, 0, 1, 1_000, 100_000, 999_999)]
"""Moments that a text without trailing zeros would sort in another order."""


@clause("filter.holds", "query.order", "moments.utc", since=3)
@needs("filter")
@pytest.mark.asyncio
async def test_moments_around_a_whole_second_compare_as_moments(store: Store) -> None:
    fields = ("created_at", "expires_at", "valid_from", "valid_to")
    await apply_all(
        store,
        *[
            put(record(n, created_at=at, expires_at=at, fields={"valid_from": at, "valid_to": at}))
            for n, at in enumerate(_CLOSE)
        ],
    )
    ids = [id_of(n) for n in range(len(_CLOSE))]
    for field in fields:
        for n, at in enumerate(_CLOSE):
            assert await query_ids(store, part=Lt(field, at)) == ids[:n], (field, at)
            assert await query_ids(store, part=Gt(field, at)) == ids[n + 1 :], (field, at)
            assert await query_ids(store, part=In(field, (at, T0))) == ids[n : n + 1], (field, at)
        if store.capabilities.order:
            assert await query_ids(store, order=(Order(field, True),)) == ids[::-1], field


LONG_LIST = 1_100
"""More than an engine or a driver may take in one statement or portion."""


@clause("isolation.where", "filter.holds", "candidates.among", "search.limit", "upkeep.forget", since=3)
@needs("filter")
@pytest.mark.asyncio
async def test_every_kind_of_question_takes_long_lists_whole(store: Store) -> None:
    """The lists are of scopes, ids and values; the last of each is there."""
    fields: dict[str, Any] = {"number": LONG_LIST, "share": LONG_LIST + 0.5, "valid_to": T0}
    await apply_all(
        store,
        put(_searchable_record(store, LONG_LIST, fields=fields)),
        put(_searchable_record(store, LONG_LIST + 1)),
        put(_searchable_record(store, 1, ELSEWHERE, fields=fields)),
    )
    before = range(LONG_LIST)
    many = within(*[Partition("acme", f"user:{n}") for n in before], HERE)
    ids = tuple(map(id_of, range(LONG_LIST + 1)))
    await _assert_found(store, In("id", ids), [id_of(LONG_LIST)], many)
    await _assert_found(store, Not(In("id", ids)), [id_of(LONG_LIST + 1)])
    for part in (
        In("number", (*before, LONG_LIST)),
        In("share", (*[n + 0.5 for n in before], LONG_LIST + 0.5)),
        In("valid_to", (*[T0 + timedelta(seconds=n + 1) for n in before], T0)),
    ):
        assert await query_ids(store, part=part) == [id_of(LONG_LIST)], part.field
        assert (await store.count(Query(SAMPLES, within(HERE), part))).records == 1, part.field
    named = Candidates(SAMPLES, within(HERE), among=ids, statistics=False)
    assert list((await store.candidates(named)).ids) == [id_of(LONG_LIST)]
    empty = Partition("acme", "session:empty")
    await apply_all(store, RaiseGeneration(empty, 3))
    assert await store.forget_partitions([*[(p, 3) for p in many.partitions], (empty, 3)]) == 1
    last = Query(SAMPLES, many, In("id", ids))
    assert await store.delete_matching(last, 50) == 1
    await _assert_found(store, Lt("version", 9), [id_of(LONG_LIST + 1)])
