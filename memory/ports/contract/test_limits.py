"""Each limit: it binds at exactly its number if set, and does not exist if not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memory.domain.errors import InvalidInput
from memory.ports.base import record_bytes
from memory.ports.contract.capability_tests import refuses, works
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import MORE_SAMPLES, SAMPLES
from memory.ports.contract.support import (
    apply_all,
    fetch_record,
    fetch_stored,
    id_of,
    key_of,
    one,
    put,
    record,
)
from memory.ports.record import PendingStep, Record, pack_vector
from memory.ports.store import Store
from memory.ports.writes import Absent, Status, Write

LARGE_RECORD = 3 * 2**20
LARGE_BATCH = 2_000
LARGE_VECTOR = 4_096


def _of_bytes(size: int, letter: str = "x") -> Record:
    empty = record(body={"text": ""})
    return record(body={"text": letter * ((size - record_bytes(empty)) // len(letter.encode()))})


def _conditional_puts(store: Store, what: Record) -> list[Write]:
    """Return the same put under each condition, if the store has conditions."""
    return [put(what, Absent(), MORE_SAMPLES)] if store.capabilities.conditional else []


@clause("limit.binds", "refused.by-name")
@works("max_record_bytes")
@pytest.mark.asyncio
async def test_a_record_of_the_largest_size_is_kept_and_one_byte_more_is_rejected_by_name(
    store: Store,
) -> None:
    limit = store.capabilities.max_record_bytes
    assert limit is not None
    at, over = _of_bytes(limit), _of_bytes(limit + 1)
    assert (record_bytes(at), record_bytes(over)) == (limit, limit + 1)
    of_three_a_character = _of_bytes(limit, "東")
    fat = replace(of_three_a_character, body={**of_three_a_character.body, "more": "東" * 3})

    for refused_ in [
        await one(store, write) for write in (put(over), put(fat), *_conditional_puts(store, over))
    ]:
        assert refused_.status is Status.REJECTED
        assert str(limit) in refused_.reason
    assert await fetch_stored(store) is None
    assert await fetch_stored(store, collection=MORE_SAMPLES) is None

    await apply_all(store, put(at))
    assert (await fetch_record(store)).body == at.body


@clause("limit.binds")
@works("max_record_bytes")
@pytest.mark.asyncio
@cells("part", ["fields", "texts", "body", "vector", "owed"])
async def test_every_part_of_a_records_content_and_what_it_owes_count_towards_its_size(
    store: Store, part: str
) -> None:
    """Nothing else counts: neither other bookkeeping, nor the replaced item."""
    limit = store.capabilities.max_record_bytes
    assert limit is not None
    said = "word " * 100
    content: dict[str, dict[str, Any]] = {
        "fields": {"fields": {"source": said, "tags": (said,)}},
        "texts": {"texts": {"title": said, "content": said}},
        "body": {"body": {"said": said}},
        "vector": {"vector": pack_vector([1.0] * min(store.capabilities.max_vector_dims or 100, 100))},
        "owed": {"owed": (PendingStep("k", "k", {"said": "東" * 100}),)},
    }
    whole = record(tier=said, epoch=said, **content[part])
    for over in (1, 0):
        filled = {**whole.body, "more": ""}
        filled["more"] = "x" * (limit + over - record_bytes(replace(whole, body=filled)))
        made = replace(whole, body=filled)
        assert record_bytes(made) == limit + over
        for _ in range(2):
            assert (await one(store, put(made))).status is (Status.REJECTED if over else Status.APPLIED)
    assert (await fetch_record(store)).same_content(replace(made, generation=0))


@clause("limit.binds")
@refuses("max_record_bytes")
@pytest.mark.asyncio
@cells("letter", ["x", "東"])
async def test_without_a_limit_large_records_are_kept(store: Store, letter: str) -> None:
    large = _of_bytes(LARGE_RECORD, letter)
    await apply_all(store, put(large))
    assert (await fetch_record(store)).body == large.body


@clause("limit.binds")
@works("max_batch")
@pytest.mark.asyncio
async def test_a_batch_of_the_largest_size_is_applied_and_one_write_more_is_refused(store: Store) -> None:
    limit = store.capabilities.max_batch
    assert limit is not None
    for together in (False, True) if store.capabilities.atomic else (False,):
        with pytest.raises(InvalidInput, match=str(limit)):
            await store.apply([put(record(n)) for n in range(limit + 1)], together=together)
    assert await store.get(SAMPLES, [key_of(n) for n in range(limit + 1)]) == [None] * (limit + 1)

    outcomes = await store.apply([put(record(n)) for n in range(limit)])
    assert [o.status for o in outcomes] == ["applied"] * limit


@clause("limit.binds")
@refuses("max_batch")
@pytest.mark.asyncio
async def test_without_a_limit_large_batches_are_applied(store: Store) -> None:
    outcomes = await store.apply([put(record(n)) for n in range(LARGE_BATCH)])
    assert [o.status for o in outcomes] == ["applied"] * LARGE_BATCH
    assert [
        r.key.id if isinstance(r, Record) else r
        for r in await store.get(SAMPLES, [key_of(n) for n in range(LARGE_BATCH)])
    ] == [id_of(n) for n in range(LARGE_BATCH)]


@clause("limit.binds", "refused.by-name")
@works("max_vector_dims")
@pytest.mark.asyncio
async def test_a_vector_of_most_dimensions_is_kept_and_one_more_is_rejected_by_name(store: Store) -> None:
    limit = store.capabilities.max_vector_dims
    assert limit is not None
    over = record(vector=pack_vector([1.0] * (limit + 1)))
    for refused_ in [await one(store, write) for write in (put(over), *_conditional_puts(store, over))]:
        assert refused_.status is Status.REJECTED
        assert str(limit) in refused_.reason
    assert await fetch_stored(store) is None
    assert await fetch_stored(store, collection=MORE_SAMPLES) is None

    await apply_all(store, put(record(vector=pack_vector([1.0] * limit))))
    assert (await fetch_record(store)).vector == pack_vector([1.0] * limit)


@clause("limit.binds")
@refuses("max_vector_dims")
@pytest.mark.asyncio
async def test_without_a_limit_long_vectors_are_kept(store: Store) -> None:
    await apply_all(store, put(record(vector=pack_vector([0.5] * LARGE_VECTOR))))
    assert (await fetch_record(store)).vector == pack_vector([0.5] * LARGE_VECTOR)
