"""Payloads: their form is pinned, any change of a value shows, and ranks sort as ids
do.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.adapters.qdrant.codec import payload_of, stored_in
from memory.adapters.qdrant.keys import generation_point, partition_word, point_id, rank, record_point
from memory.domain.ids import new_id
from memory.ports.contract.cells import cells
from memory.ports.contract.collections import SAMPLES
from memory.ports.record import (
    Corrupt,
    Key,
    Mark,
    Partition,
    PendingStep,
    Record,
    Role,
    Tombstone,
    pack_vector,
)
from memory.ports.rows import row_of

AT = datetime(2024, 5, 6, 7, 8, 9, 123_456, tzinfo=UTC)
WHOLE = Record(
    Key("acme", "018f4cb1-5d23-8000-9a1c-c68640000000"),
    "user:ann",
    7,
    AT,
    AT,
    AT,
    {"type": "fact", "tags": (), "confidence": 1.0, "valid_from": AT},
    {"k": [1, None, 2.5]},
    {"title": "t"},
    pack_vector([0.5, -2.0]),
    3,
    Role.REPLICA,
    "long",
    (PendingStep("deliver", "deliver", {"to": "x"}),),
    6,
    2,
    AT,
    AT,
    "run-1",
)
PINNED: dict[str, Any] = {
    "schema": 4,
    "collection": "samples",
    "kind": "record",
    "tenant": "acme",
    "id": "018f4cb1-5d23-8000-9a1c-c68640000000",
    "rank": 54879316583520,
    "version": 7,
    "owing": 1,
    "owed": '[["deliver","deliver",{"to":"x"}]]',
    "partition": "samples/4/acme/user:ann",
    "scope": "user:ann",
    "generation": 3,
    "role": "replica",
    "tier": "long",
    "created_at": 1714979289123456,
    "updated_at": 1714979289123456,
    "expires_at": 1714979289123456,
    "accesses": 2,
    "accessed_at": 1714979289123456,
    "cached_at": 1714979289123456,
    "epoch": "run-1",
    "previous": 6,
    "body": '{"k":[1,null,2.5]}',
    "vector": "AAAAPwAAAMA=",
    "bytes": 34,
    "counted": "1;1 t",
    "length": 1,
    "untagged": ["tags"],
    "texts": {"title": "t"},
    "samples": {"type": "fact", "tags": [], "confidence": "1.0", "valid_from": 1714979289123456},
    "reals": {"confidence": 1.0},
    "checksum": "c2c4a64c08dae772",
}


def test_the_form_of_a_payload_is_pinned() -> None:
    """What is on disks out there must be read for good: a new form takes a new schema
    number, and this stays readable.
    """
    assert payload_of(SAMPLES, row_of(SAMPLES, WHOLE)) == PINNED
    assert stored_in(SAMPLES, PINNED) == WHOLE
    assert stored_in(SAMPLES, {name: value for name, value in PINNED.items() if name != "length"}) == WHOLE, (
        "as earlier releases wrote it"
    )
    assert record_point("samples", WHOLE.key) == "42b010c7-2099-8b07-bb2b-4af50d738a75"
    assert generation_point(WHOLE.partition) == "47af676d-2a60-8fab-8b01-74aa50d78a98"


DERIVED = ("rank", "owing", "bytes", "counted", "length", "untagged", "reals")
"""Of what is derived an audit takes care."""


@cells("name", [name for name in PINNED if name not in DERIVED], shared=True)
def test_a_value_that_changed_or_went_missing_is_noticed(name: str) -> None:
    gone = {k: v for k, v in PINNED.items() if k != name}
    changed = {**PINNED, name: "x" if isinstance(PINNED[name], int) else 1}
    assert isinstance(stored_in(SAMPLES, gone), Corrupt)
    assert isinstance(stored_in(SAMPLES, changed), Corrupt)


def test_fields_declared_later_leave_old_checksums_right() -> None:
    older = replace(SAMPLES, fields=SAMPLES.fields[:4])
    plain = replace(WHOLE, fields={"type": "fact"})
    assert stored_in(SAMPLES, payload_of(older, row_of(older, plain))) == plain


@pytest.mark.parametrize(
    "standing",
    [
        Mark(WHOLE.key, "s", 3, "long", (), AT),
        Tombstone(WHOLE.key, 3, (PendingStep("x", "x"),), {"d": 1}, None),
    ],
    ids=repr,
)
def test_marks_and_tombstones_come_back(standing: Mark | Tombstone) -> None:
    payload = payload_of(SAMPLES, row_of(SAMPLES, standing))
    assert stored_in(SAMPLES, payload) == standing
    assert "partition" not in payload, "only live records are found in their partition"


@given(st.lists(st.integers(0, 2**128 - 1).map(lambda bits: str(UUID(int=bits))), min_size=2, max_size=12))
def test_ranks_sort_as_ids_do(ids: list[str]) -> None:
    ranks = [rank(i) for i in sorted(ids)]
    assert ranks == sorted(ranks)
    assert all(0 <= r < 2**53 for r in ranks)


def test_ranks_tell_most_ids_of_an_import_apart() -> None:
    """Two thousand records, sixteen milliseconds each: what falls together has to be
    read together.
    """
    start = 1_714_979_289_000_000
    ranks = [rank(new_id("acme", "user:ann", start + n * 16_000)) for n in range(2000)]
    assert len(set(ranks)) > 1000


def test_partitions_and_points_of_like_names_differ() -> None:
    names = [
        ("a", "b:c"),
        ("a:b", "c"),
        ("a/b", "c"),
        ("a", "b/c"),
        ("ab", "c"),
        ("a", "bc"),
        ("A", "bc"),
        ("a ", "bc"),
        ("á", "bc"),
        ("a\u0301", "bc"),
    ]
    assert len({partition_word("samples", Partition(*n)) for n in names}) == len(names)
    assert len({record_point("samples", Key(*n)) for n in names}) == len(names)
    assert point_id("a", "1:b") != point_id("a1:b")
