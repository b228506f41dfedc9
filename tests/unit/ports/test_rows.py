"""The form below the port: what goes into a row comes out again, and a checksum covers
everything the row says.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from memory.ports import lexical
from memory.ports.contract.cells import cells
from memory.ports.contract.collections import PLAIN, SAMPLES
from memory.ports.contract.support import T0, key_of, record
from memory.ports.record import Corrupt, Mark, PendingStep, Record, Role, Tombstone, pack_vector
from memory.ports.rows import Row, checksum, corrupt_row, row_of, standing_of, stored_of

OWED = (
    PendingStep("keep:1", "keep", {"record": {"a": [1, 1.0, True, None, "\x00"]}}),
    PendingStep("b", "replicate"),
)
FULL = record(
    3,
    version=7,
    generation=2,
    expires_at=T0,
    fields={
        "type": "fact",
        "tags": ("a", "a,b", ""),
        "confidence": 0.1,
        "number": -(2**63),
        "pinned": False,
        "seal": b"\x00\xff",
        "valid_from": T0,
    },
    texts={"title": "One", "content": "two words \x00 東京"},
    body={"n": 1, "x": 1.0, "t": True, "deep": {"a": [{}, [], None]}, "": "é"},
    vector=pack_vector([0.5, -1.0]),
    role=Role.ARRIVING,
    tier="mid",
    owed=OWED,
    previous=6,
    accesses=3,
    accessed_at=T0,
    cached_at=T0,
    epoch="run-1",
)
STANDING = (
    FULL,
    record(1, generation=0),
    Mark(key_of(2), "user:ann", 4, "long", OWED, T0),
    Mark(key_of(2), "user:ann", 4, "long"),
    Tombstone(key_of(2), 9, OWED, {"digest": "x"}, T0),
    Tombstone(key_of(2), 9),
)


@cells("standing", STANDING, ids=lambda s: type(s).__name__, shared=True)
def test_what_goes_in_comes_out(standing: Any) -> None:
    row = row_of(SAMPLES, standing)
    assert standing_of(SAMPLES, row) == standing
    assert row_of(SAMPLES, standing_of(SAMPLES, row)) == row


def test_nothing_in_a_row_is_the_callers() -> None:
    body, fields, texts = {"a": [1]}, {"type": "x"}, {"title": "t"}
    row = row_of(SAMPLES, record(body=body, fields=fields, texts=texts))
    body["a"].append(2)
    fields["type"] = texts["title"] = "other"
    stood = standing_of(SAMPLES, row)
    assert isinstance(stood, Record)
    assert (stood.body, dict(stood.fields), dict(stood.texts)) == ({"a": [1]}, {"type": "x"}, {"title": "t"})


def test_a_field_that_is_not_declared_stays_as_it_was_read() -> None:
    written = row_of(SAMPLES, FULL)
    read = standing_of(PLAIN, written)
    assert isinstance(read, Record)
    assert row_of(PLAIN, read).fields == written.fields


def test_moments_are_moments_in_whatever_zone() -> None:
    there = T0.astimezone(timezone(timedelta(hours=9)))
    assert row_of(SAMPLES, record(created_at=there, fields={"valid_from": there})) == row_of(
        SAMPLES, record(created_at=T0, fields={"valid_from": T0})
    )


def test_words_are_those_of_the_texts() -> None:
    row = row_of(SAMPLES, FULL)
    assert row.words == lexical.index(SAMPLES, FULL.texts)
    assert row_of(SAMPLES, FULL, words=b"known").words == b"known"
    assert row_of(PLAIN, record()).words is None


def test_a_checksum_covers_everything_but_the_words() -> None:
    row = row_of(SAMPLES, FULL)
    others: dict[str, Any] = dict.fromkeys(Row._fields) | {
        "version": 8, "generation": 3, "accesses": 4, "fields": {**row.fields, "number": 1}, "texts": {**row.texts, "title": "Two"}, "words": b"",
    }  # fmt: skip
    others |= {
        name: f"{value}?" for name, value in zip(Row._fields, row, strict=True) if isinstance(value, str)
    }
    others |= {name: value + 1 for name, value in zip(Row._fields, row, strict=True) if type(value) is int}
    same = [
        name
        for name, other in others.items()
        if other != getattr(row, name) and checksum(row._replace(**{name: other})) == checksum(row)
    ]
    assert same == ["words"]


def test_a_checksum_tells_types_and_neighbours_apart() -> None:
    def of(**fields: Any) -> int:
        return checksum(row_of(SAMPLES, record(fields=fields)))

    assert of(type="1") != of(number=1) != of(confidence=1.0)
    assert of(type="a", source="b") == of(source="b", type="a")
    assert of(tags=("a", "b")) != of(tags=("ab",)) != of(tags=())
    assert of(confidence=0.0) == of(confidence=-0.0), "no engine need keep the sign of nought"
    assert of() == of(type=None)


def test_a_checksum_is_the_same_on_every_python() -> None:
    assert checksum(row_of(SAMPLES, FULL)) == PINNED


PINNED = -5509781525683168259


def test_a_row_that_says_nonsense_is_corrupt() -> None:
    row = row_of(SAMPLES, FULL)
    wrong: dict[str, Any] = {
        "type": "x",
        "role": "boss",
        "created_at": None,
        "owed": "[",
        "body": "{",
        "fields": {"valid_from": "x"},
        "expires_at": 2**80,
    }
    for name, nonsense in wrong.items():
        found = stored_of(SAMPLES, row._replace(**{name: nonsense}))
        assert isinstance(found, Corrupt), name
        assert found.key == FULL.key
    assert stored_of(SAMPLES, row, "checksum mismatch") == Corrupt(FULL.key, "checksum mismatch")
    assert isinstance(stored_of(SAMPLES, corrupt_row(FULL.key, 3)), Corrupt)
    assert (
        datetime(1, 1, 1, tzinfo=UTC)
        == standing_of(SAMPLES, row_of(SAMPLES, record(created_at=datetime(1, 1, 1, tzinfo=UTC)))).created_at  # type: ignore[union-attr]
    )
