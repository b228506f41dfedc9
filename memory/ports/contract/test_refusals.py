"""Values that every store refuses by name, and values that it keeps exactly.

The table is in `memory.ports.contract.refusals`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta, timezone
from typing import Any

import pytest

from memory.domain.errors import InvalidInput
from memory.ports.contract.capability_tests import needs
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import MORE_SAMPLES, PLAIN, SAMPLES
from memory.ports.contract.refusals import (
    EARLY,
    FOREIGN_IDS,
    GIVEN,
    HALF,
    IDS,
    LATE,
    LAWFUL,
    LONGEST,
    NAIVE,
    NOTED,
    NUL,
    QUESTIONS,
    REFUSED,
    SECRET,
    deep,
)
from memory.ports.contract.support import (
    ELSEWHERE,
    FOREIGN,
    HERE,
    T0,
    apply_all,
    delete,
    fetch_mark,
    fetch_record,
    fetch_stored,
    fetch_tombstone,
    id_of,
    key_of,
    one,
    put,
    query_ids,
    record,
    release,
    step_ids,
    ways,
)
from memory.ports.query import MAX_LIMIT, MAX_ORDERS, Eq, Has, Order, Query, Search, within
from memory.ports.query_evaluation import condition
from memory.ports.record import MAX_DEPTH, MAX_GENERATION, Key, Partition, PendingStep, Record, pack_vector
from memory.ports.store import Store
from memory.ports.writes import (
    Absent,
    Annotate,
    Delete,
    Newer,
    Outcome,
    Purge,
    RaiseGeneration,
    Release,
    Status,
    Write,
)

KINDS_OF_TEXT: tuple[Any, ...] = (
    1,
    True,
    0,
    False,
    1.0,
    0.0,
    "1",
    "true",
    None,
    1e22,
    2**53 + 1,
    "1.0",
    [],
    {},
    "",
)
MIXED: dict[str, Any] = {
    **{f"k{n}": value for n, value in enumerate(KINDS_OF_TEXT)},
    "list": list(KINDS_OF_TEXT),
    "deep": {"a": [{"b": [{"c": [{"d": list(KINDS_OF_TEXT), "e": {"1": True, "true": 1}}]}]}]},
}


def as_text(value: Any) -> str:
    """Return JSON text, because `==` takes true for 1, and 1 for 1.0."""
    return json.dumps(value, sort_keys=True)


def _json_parts(record_: Record) -> list[Any]:
    return [dict(record_.body), [[step.id, step.step, dict(step.data)] for step in record_.owed]]


async def _assert_rejected(store: Store, writes: Sequence[tuple[str, Write, str]]) -> None:
    """Check that each of these is rejected by its name and nothing else is.

    Three neighbours of each are applied, and no other item is stored.
    """
    size = min((store.capabilities.max_batch or 400) // 4, 100)
    number = 1_000
    for start in range(0, len(writes), size):
        batch: list[Write] = []
        neighbours: list[Key] = []
        for _, write, _ in writes[start : start + size]:
            around: list[Write] = [put(record(number + n, body={"n": n})) for n in range(3)]
            batch += [around[0], write, *around[1:]]
            neighbours += [key_of(number + n) for n in range(3)]
            number += 3
        outcomes = await store.apply(batch)
        for (what, write, name), outcome in zip(writes[start : start + size], outcomes[1::4], strict=True):
            _is_refusal(what, write, name, outcome)
        assert [o.status for n, o in enumerate(outcomes) if n % 4 != 1] == ["applied"] * (
            3 * len(outcomes) // 4
        ), "their neighbours are"
        assert all(isinstance(s, Record) for s in await store.get(SAMPLES, neighbours))


def _is_refusal(what: str, write: Write, name: str, outcome: Outcome) -> None:
    assert outcome.status is Status.REJECTED, f"{what} in {type(write).__name__}: {outcome.status}"
    assert name in outcome.reason, f"{what}: '{outcome.reason}' does not name '{name}'"
    assert SECRET not in outcome.reason, f"{what}: the refusal tells what the record says"


@clause("refused.record", "refused.by-name", "apply.neighbours")
@pytest.mark.asyncio
async def test_what_no_store_keeps_is_rejected_by_name_and_its_neighbours_are_applied(store: Store) -> None:
    """A stored item stays as it was."""
    await apply_all(store, put(record(2, body={"stood": True})))
    before = await fetch_record(store, 2)
    rows = [
        (what, put(replace(record(1 + n % 2), **parts)), name)
        for n, (what, (parts, name)) in enumerate(REFUSED.items())
    ]
    await _assert_rejected(store, rows)
    assert await store.get(SAMPLES, [key_of(1), key_of(2)]) == [None, before]


@clause("refused.writes", "refused.by-name", "apply.neighbours")
@needs("conditional")
@pytest.mark.asyncio
async def test_what_no_store_keeps_is_refused_in_every_kind_of_write(store: Store) -> None:
    await apply_all(store, *[put(record(n)) for n in (1, 2, 3)])
    before = [await fetch_record(store, n) for n in (1, 2, 3)]
    some = [
        row
        for row in REFUSED.items()
        if " in a body" in row[0] or " in a step" in row[0] or " for " in row[0]
    ]
    rows: list[tuple[str, Write, str]] = []
    for what, (parts, name) in some:
        appended = replace(record(9), **parts)
        rows += [
            (what, put(appended, Absent(), MORE_SAMPLES), name),
            (what, put(replace(record(1, version=5), **parts), Newer()), name),
        ]
    for what, (parts, name) in [*GIVEN.items(), *NOTED.items()]:
        rows.append((what, Delete(SAMPLES, key_of(1), **{"version": 9, "when": Newer(), **parts}), name))
    rows += [
        (what, Release(SAMPLES, key_of(2), 1, **{"to": "mid", **parts}), name)
        for what, (parts, name) in GIVEN.items()
    ]
    rows.append(("half a character", release(2, 1, HALF), "to"))
    annotated: list[tuple[str, dict[str, Any], str]] = [
        *[
            ("a moment", {name: at}, name)
            for name in ("accessed_at", "discard_at")
            for at in (NAIVE, EARLY, LATE, 5)
        ],
        ("half a character", {"tier": HALF}, "tier"),
        ("a number", {"tier": 5}, "tier"),
        ("a text", {"role": "home"}, "role"),
    ]
    rows += [(what, Annotate(SAMPLES, key_of(3), 1, **parts), name) for what, parts, name in annotated]
    rows += [
        ("too large a generation", RaiseGeneration(HERE, to), "to") for to in (MAX_GENERATION + 1, 2**63, -1)
    ]
    await _assert_rejected(store, rows)
    assert [await fetch_record(store, n) for n in (1, 2, 3)] == before
    assert await fetch_stored(store, 9, collection=MORE_SAMPLES) is None
    assert (await one(store, RaiseGeneration(HERE, 0))).number == 0


@clause("refused.names")
@needs("conditional")
@pytest.mark.asyncio
async def test_names_with_half_a_character_are_refused_in_every_kind_of_write(store: Store) -> None:
    rows: list[tuple[str, Write, str]] = []
    rows += [
        ("a tenant", write, "tenant")
        for write in (put(replace(record(1), key=Key(HALF, id_of(1)))), *_to(Key(HALF, id_of(1))))
    ]
    rows += [
        ("a scope", put(replace(record(1), scope=HALF)), "scope"),
        ("a scope", RaiseGeneration(Partition("acme", HALF)), "scope"),
        ("a tenant", RaiseGeneration(Partition(HALF, "user:ann")), "tenant"),
    ]
    await _assert_rejected(store, rows)


def _to(key: Key) -> list[Write]:
    """Return every write that names no scope."""
    return [
        Delete(SAMPLES, key, 5, Newer()),
        Release(SAMPLES, key, 1, "mid"),
        Annotate(SAMPLES, key, 1, tier="x"),
        Purge(SAMPLES, key, 1),
    ]


@clause("refused.ids", "apply.neighbours")
@pytest.mark.asyncio
async def test_a_record_has_an_id_of_its_partition_or_is_rejected(store: Store) -> None:
    rows: list[tuple[str, Write, str]] = []
    for what, value in (IDS | FOREIGN_IDS).items():
        wrong = replace(record(1), key=Key(HERE.tenant, value))
        rows += [
            (what, put(wrong, collection=collection), "id: not made for this partition")
            for collection in (SAMPLES, PLAIN)
        ]
    for partition in (ELSEWHERE, FOREIGN):
        wrong = replace(record(1), key=Key(partition.tenant, id_of(1)), scope=partition.scope)
        rows.append(("an id of another partition", put(wrong), "id: not made for this partition"))
    await _assert_rejected(store, rows)
    assert await store.get(SAMPLES, [Key(HERE.tenant, id_) for id_ in FOREIGN_IDS.values()]) == [None] * len(
        FOREIGN_IDS
    )


@clause("refused.ids", "apply.neighbours")
@needs("conditional")
@pytest.mark.asyncio
async def test_what_is_no_id_is_rejected_in_every_kind_of_write(store: Store) -> None:
    await _assert_rejected(
        store, [(what, write, "id") for what, value in IDS.items() for write in _to(Key(HERE.tenant, value))]
    )
    for at in (HERE, ELSEWHERE, FOREIGN):
        assert (await one(store, Delete(SAMPLES, key_of(1, at), 5, Newer()))).applied


@clause("refused.ids", "get.order")
@pytest.mark.asyncio
async def test_what_is_no_id_is_not_asked_for(store: Store) -> None:
    await apply_all(store, put(record(1)), put(record(2)))
    for what, value in IDS.items():
        for keys in ([Key(HERE.tenant, value)], [key_of(1), Key(HERE.tenant, value), key_of(2)]):
            with pytest.raises(InvalidInput) as refused:
                await store.get(SAMPLES, keys)
            assert "id" in str(refused.value), what
    near = [
        key_of(1),
        Key(FOREIGN.tenant, id_of(1)),
        key_of(2),
        key_of(3),
        *[Key(HERE.tenant, id_) for id_ in FOREIGN_IDS.values()],
    ]
    assert [isinstance(s, Record) for s in await store.get(SAMPLES, near)] == [True, False, True] + [
        False
    ] * (len(near) - 3)


ASKED_OF = [
    record(
        1,
        fields={"type": "a", "tags": ("a", NUL), "confidence": 1, "valid_from": T0},
        texts={"content": "lantern"},
        vector=pack_vector([1.0]),
    ),
    record(2, fields={"type": NUL, "tags": (), "confidence": 0.0}, generation=1, version=3),
    record(
        3,
        fields={"type": "\ud7ff\ue000 is whole", "tags": ("",), "confidence": 2.0**53},
        expires_at=T0,
        owed=(PendingStep("x", "x"),),
    ),
    record(4, fields={"type": "\U0010ffff"}, tier="\U0010ffff\U0010ffff"),
    record(5, body={}),
]
"""Records that each of the questions can find."""


@clause("refused.questions", "filter.holds", "filter.prefix")
@needs("filter")
@pytest.mark.asyncio
async def test_what_no_store_asks_is_refused_by_name_and_its_neighbours_are_answered(store: Store) -> None:
    await apply_all(store, *[put(r) for r in ASKED_OF])
    for what, (part, name, _) in QUESTIONS.items():
        question = Query(SAMPLES, within(HERE), part)
        calls = [store.query(question), store.count(question), store.delete_matching(question, 99)]
        calls += [
            store.search(Search(SAMPLES, within(HERE), by, 9, part)) for by in ways(store, "lantern", 1.0)
        ]
        for call in calls:
            with pytest.raises(InvalidInput) as refused:
                await call
            assert name in str(refused.value), f"{what}: '{refused.value}' does not name '{name}'"
    neighbours = {id(part): (what, part) for what, (_, _, answered) in QUESTIONS.items() for part in answered}
    matching: dict[int, list[Record]] = {}
    for n, (what, part) in neighbours.items():
        holds = condition(part)
        matching[n] = [r for r in ASKED_OF if holds(r)]
        if part is LONGEST[2]:
            continue  # it takes a second, and deletes below
        wanted = [r.key.id for r in matching[n]]
        assert await query_ids(store, part=part) == wanted, f"beside {what}: {str(part)[:200]}"
    deleted = {what: part for n, (what, part) in neighbours.items() if ASKED_OF[4] not in matching[n]}
    for what, part in deleted.items():
        gone = matching[id(part)]
        assert await store.delete_matching(Query(SAMPLES, within(HERE), part), 50) == len(gone), what
        await apply_all(store, *map(put, gone))


@clause("refused.questions")
@pytest.mark.asyncio
async def test_a_limit_that_is_none_is_refused_and_counting_and_deleting_take_no_notice_of_it(
    store: Store,
) -> None:
    searches = ways(store, "lantern", 1.0)
    wrong: tuple[Any, ...] = (0, -1, MAX_LIMIT + 1, 2**63, True, 5.0, "5", None)
    for limit in wrong:
        await apply_all(store, put(record(1, version=100)), put(record(2, version=100)))
        question = Query(SAMPLES, within(HERE), limit=limit)
        for call in (
            store.query(question),
            *[store.search(Search(SAMPLES, within(HERE), by, limit)) for by in searches],
        ):
            with pytest.raises(InvalidInput, match="limit"):
                await call
        assert (await store.count(question)).records == 2
        assert await store.delete_matching(question, 50) == 2
        await apply_all(
            store, *[Purge(SAMPLES, key_of(n), 101) for n in (1, 2)] if store.capabilities.conditional else []
        )
    await apply_all(store, put(record(1, version=200)), put(record(2, version=200)))
    for lawful in (1, 2, MAX_LIMIT):
        assert len(await query_ids(store, limit=lawful)) == min(lawful, 2)
        for by in searches:
            assert await store.search(Search(SAMPLES, within(HERE), by, lawful)) == []


@clause("refused.questions")
@needs("order")
@pytest.mark.asyncio
async def test_more_orders_than_there_may_be_are_refused(store: Store) -> None:
    await apply_all(store, *[put(record(n, fields={"type": "ab"[n % 2]})) for n in range(4)])
    names = (
        "type",
        "tier",
        "confidence",
        "created_at",
        "updated_at",
        "expires_at",
        "accesses",
        "version",
        "generation",
    )
    orders = tuple(Order(name, descending=True) for name in names)
    with pytest.raises(InvalidInput, match="order"):
        await store.query(Query(SAMPLES, within(HERE), order=orders))
    for many in (1, 2, MAX_ORDERS):
        assert await query_ids(store, order=orders[:many]) == [id_of(n) for n in (3, 1, 2, 0)]


@clause("content.exact", "moments.utc")
@pytest.mark.asyncio
async def test_strange_but_lawful_contents_come_back_exactly(store: Store) -> None:
    wrote = {what: record(n, generation=parts.get("generation", 0), **{k: v for k, v in parts.items() if k != "generation"})
             for n, (what, parts) in enumerate(LAWFUL.items(), start=1)}  # fmt: skip
    await apply_all(store, *[put(r) for r in wrote.values()])
    for n, (what, said) in enumerate(wrote.items(), start=1):
        stored = await fetch_record(store, n)
        assert stored == said, what
        assert as_text(_json_parts(stored)) == as_text(_json_parts(said)), what
    page = await store.query(Query(SAMPLES, within(HERE)))
    assert list(page.records) == [await fetch_record(store, n) for n in range(1, len(wrote) + 1)]
    if store.capabilities.filter:
        numbers = {what: n for n, what in enumerate(wrote, start=1)}
        assert await query_ids(store, part=Eq("type", NUL)) == [id_of(numbers["NUL in a field"])]
        assert await query_ids(store, part=Eq("type", "\x01\x01")) == [id_of(numbers["escapes of NUL"])]
        assert await query_ids(store, part=Has("tags", NUL)) == [id_of(numbers["NUL in tags"])]
        assert await query_ids(store, part=Eq("tier", NUL)) == [id_of(numbers["NUL in bookkeeping"])]
    if store.capabilities.conditional:
        await _left_exactly(store)


async def _left_exactly(store: Store) -> None:
    """Marks and tombstones keep unusual contents, and times in microseconds of UTC."""
    at = T0 + timedelta(microseconds=7)
    there = at.astimezone(timezone(timedelta(hours=5, minutes=45)))
    steps = (PendingStep(NUL, NUL, {NUL: [NUL, deep(MAX_DEPTH - 2)]}),)
    await apply_all(
        store,
        delete(101, owed=steps, note={NUL: NUL, "deep": deep(MAX_DEPTH - 1)}, discard_at=there),
        put(record(102)),
        put(record(103)),
    )
    await apply_all(
        store,
        release(102, to=NUL, owed=steps, discard_at=there),
        Annotate(SAMPLES, key_of(103), 1, tier=NUL, accessed_at=there),
    )
    await apply_all(store, delete(104), Annotate(SAMPLES, key_of(104), 100, discard_at=there))
    tombstone, mark, annotated = (
        await fetch_tombstone(store, 101),
        await fetch_mark(store, 102),
        await fetch_record(store, 103),
    )
    assert (tombstone.owed, tombstone.note, tombstone.discard_at) == (
        steps,
        {NUL: NUL, "deep": deep(MAX_DEPTH - 1)},
        at,
    )
    assert (mark.to, mark.owed, mark.discard_at) == (NUL, steps, at)
    assert (annotated.tier, annotated.accessed_at, (await fetch_tombstone(store, 104)).discard_at) == (
        NUL,
        at,
        at,
    )
    for moment in (
        tombstone.discard_at,
        mark.discard_at,
        annotated.accessed_at,
        (await fetch_tombstone(store, 104)).discard_at,
    ):
        assert moment is not None
        assert moment.utcoffset() == timedelta(0)
    await apply_all(store, Annotate(SAMPLES, key_of(101), 100, settle=step_ids(steps)))
    assert (await fetch_tombstone(store, 101)).owed == ()


@clause("json.types", "owed.untouched")
@pytest.mark.asyncio
async def test_json_comes_back_as_the_same_text_wherever_it_stands(store: Store) -> None:
    alike = [PendingStep(f"b:{n}", "b", {"to": to}) for n, to in enumerate((1, True, 1.0, "1", None))]
    steps = (
        PendingStep("b", "b", MIXED),
        PendingStep("a", "a"),
        *alike,
        PendingStep("a:none", "a", {"to": None}),
    )
    told = [[step.step, step.data] for step in steps]
    await apply_all(store, put(record(1, body=MIXED, owed=steps)))
    out = [await fetch_record(store, 1), *(await store.query(Query(SAMPLES, within(HERE)))).records]
    if store.capabilities.conditional:
        await apply_all(store, delete(2, owed=steps, note=MIXED), put(record(3)), release(3, owed=steps))
        await apply_all(store, put(record(4, body=MIXED, owed=steps), Absent(), MORE_SAMPLES))
        out += [
            await fetch_tombstone(store, 2),
            await fetch_mark(store, 3),
            await fetch_record(store, 4, collection=MORE_SAMPLES),
        ]
        conflict = (await one(store, put(record(1, version=2), Absent()))).stored
        assert isinstance(conflict, Record)
        out.append(conflict)
        assert as_text(dict((await fetch_tombstone(store, 2)).note)) == as_text(MIXED)
    for standing in out:
        assert not isinstance(standing, str)
        assert as_text([[o.step, dict(o.data)] for o in standing.owed]) == as_text(told)  # type: ignore[union-attr]
        assert not isinstance(standing, Record) or as_text(dict(standing.body)) == as_text(MIXED)


@clause("json.types", "owed.untouched", "annotate.only")
@needs("conditional")
@pytest.mark.asyncio
async def test_json_is_the_same_text_after_an_annotation(store: Store) -> None:
    """Steps that are not settled stay untouched, and so do other values.

    No decoding and encoding by the store shows.
    """
    settled, kept = (
        PendingStep("done", "done", {"a": [], "b": {"c": 1, "d": 2}}),
        (PendingStep("b", "b", MIXED), PendingStep("a", "a", {"to": None, "most": [2**63 - 1, []]})),
    )
    told = as_text([[step.step, step.data] for step in kept])
    await apply_all(
        store,
        put(record(1, body=MIXED, owed=(settled, *kept))),
        put(record(2)),
        release(2, owed=(settled, *kept)),
    )
    await apply_all(store, delete(3, owed=(settled, *kept), note=MIXED | {"most": 2**63 - 1}))
    changes = [
        Annotate(SAMPLES, key_of(n), version, settle=(settled.id,), discard_at=T0)
        for n, version in ((1, 1), (2, 1), (3, 100))
    ]
    await apply_all(store, *changes, Annotate(SAMPLES, key_of(1), 1, accessed_at=T0, tier="long"))
    tombstone, record_ = await fetch_tombstone(store, 3), await fetch_record(store, 1)
    for standing in (record_, await fetch_mark(store, 2), tombstone):
        assert as_text([[step.step, dict(step.data)] for step in standing.owed]) == told
    assert as_text(dict(tombstone.note)) == as_text(MIXED | {"most": 2**63 - 1})
    assert as_text(dict(record_.body)) == as_text(MIXED)


@clause("content.long")
@pytest.mark.asyncio
async def test_long_texts_fields_and_tags_come_back_whole(store: Store) -> None:
    long = min(2**20, (store.capabilities.max_record_bytes or 2**21) - 10_000)
    some = min(300_000, long // 3)
    lines = "a lantern stands here; " * (long // 23)
    field = "f" * 100_000
    tags = tuple(f"tag {n}" for n in range(2_000))
    wrote = [
        record(1, body={"said": lines}),
        record(2, texts={"content": lines}),
        record(3, fields={"type": field + "a", "source": field}),
        record(4, fields={"type": field + "b", "tags": ("t" * 100_000, *tags)}),
        record(
            5,
            owed=(PendingStep("k", "k", {"said": "s" * some}),),
            body={"list": list(range(some // 8)), "said": "é" * (some // 4)},
        ),
    ]
    wrote = [replace(r, generation=0) for r in wrote]
    for r in wrote:
        await apply_all(store, put(r))
    assert await store.get(SAMPLES, [r.key for r in wrote]) == wrote
    assert (await store.query(Query(SAMPLES, within(HERE)))).records == tuple(wrote)
    if store.capabilities.filter:
        assert await query_ids(store, part=Eq("type", field + "b")) == [id_of(4)]
        assert await query_ids(store, part=Eq("source", field)) == [id_of(3)]
        assert await query_ids(store, part=Has("tags", "t" * 100_000)) == [id_of(4)]
        assert await query_ids(store, part=Has("tags", "tag 1999")) == [id_of(4)]
    if store.capabilities.conditional:
        await apply_all(
            store, delete(6, note={"said": "n" * some}, owed=(PendingStep("k", "k", {"said": "s" * some}),))
        )
        stands = await fetch_tombstone(store, 6)
        assert (stands.note, stands.owed) == (
            {"said": "n" * some},
            (PendingStep("k", "k", {"said": "s" * some}),),
        )
