"""Documents: the layout on disk is pinned, values come back exactly, and what MongoDB cannot hold is refused by name."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest

from memory.adapters.mongo.codec import LARGEST, Layout, checksum, sealed
from memory.adapters.mongo.words import Parts, token
from memory.ports.collections import TextPart
from memory.ports.contract.collections import MORE_SAMPLES, SAMPLES
from memory.ports.contract.support import T0, key_of, record
from memory.ports.record import Corrupt, Key, Mark, Owed, Record, Standing, Tombstone, pack_vector
from memory.ports.storable import Unstorable

LAYOUT = Layout(SAMPLES)


def _stored(standing: Standing) -> dict[str, Any]:
    """As the server gives it back."""
    document: dict[str, Any] = bson.decode(bson.encode(LAYOUT.document(standing)))
    return document


FULL = record(
    generation=2,
    fields={"type": "fact", "tags": ("b", "a"), "confidence": -0.0, "valid_from": T0},
    body={"": {"$ne": 1}, "a.b": "\x00"},
    texts={"title": "Deploying deploys", "content": "the lantern"},
    vector=pack_vector([1.0]),
    owed=(Owed("deliver", "deliver", {"to": "long"}),),
    expires_at=T0 + timedelta(microseconds=1),
)


def test_the_layout_of_a_record_is_pinned() -> None:
    document = LAYOUT.document(FULL) | {"stamp": 7}
    assert checksum(document) == -2443438215625107341, "a change needs a new layout version"
    assert {name: value for name, value in document.items() if name != "checksum"} == {
        "_id": {"tenant": "acme", "id": FULL.key.id},
        "tenant": "acme",
        "id": FULL.key.id,
        "kind": "record",
        "version": 1,
        "scope": "user:ann",
        "created_at": 4870652890123456,
        "updated_at": 4870652890123456,
        "expires_at": 4870652889123457,
        "fields": {"type": "fact", "tags": ["b", "a"], "confidence": -0.0, "valid_from": 4870652889123456},
        "body": '{"":{"$ne":1},"a.b":"\\u0000"}',
        "texts": {"title": "Deploying deploys", "content": "the lantern"},
        "vector": pack_vector([1.0]),
        "generation": 2,
        "role": "home",
        "tier": "",
        "accesses": 0,
        "owed": '[["deliver","deliver",{"to":"long"}]]',
        "owing": True,
        "words": ["deploi", "the", "lantern"],
        "counts": {"deploi": 2, "the": 1 << 15, "lantern": 1 << 15},
        "length": 4,
        "stamp": 7,
    }


@pytest.mark.parametrize(
    "standing",
    [FULL, Mark(key_of(1), "user:ann", 3, "mid", (Owed("x", "x"),), T0), Tombstone(key_of(1), 4, (), {"k": [1]}, T0), Tombstone(key_of(1), 4)],
    ids=lambda s: type(s).__name__,
)
def test_what_stands_comes_back_as_it_was(standing: Standing) -> None:
    assert LAYOUT.read(_stored(standing)) == standing


@pytest.mark.parametrize("at", [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)])
def test_moments_keep_their_microseconds_at_both_ends_of_time(at: datetime) -> None:
    stored = LAYOUT.read(_stored(replace(FULL, created_at=at, accessed_at=at)))
    assert isinstance(stored, Record)
    assert (stored.created_at, stored.accessed_at) == (at, at)


REFUSED: dict[str, tuple[Record, str]] = {
    "half a character in the body": (record(generation=0, body={"k": "\ud800"}), "body"),
    "half a character in a text": (record(generation=0, texts={"title": "\udfff"}), "surrogate"),
    "half a character in a tag": (record(generation=0, fields={"tags": ("\ud800",)}), "surrogate"),
    "half a character in the tenant": (replace(record(generation=0), key=Key("a\ud800", "x")), "surrogate"),
    "half a character in the scope": (replace(record(generation=0), scope="\ud800"), "surrogate"),
    "a version of 65 bits": (record(generation=0, version=2**63), "64 bits"),
    "a number that is not finite": (record(generation=0, fields={"confidence": float("inf")}), "confidence"),
    "a number too large for a float": (record(generation=0, fields={"confidence": 10**400}), "confidence"),
    "JSON that is not finite": (record(generation=0, body={"k": float("nan")}), "body"),
    "tags that take more room than JSON": (record(generation=0, fields={"tags": ("",) * 2_000_000}), str(LARGEST)),
    "a debt larger than a document": (record(generation=0, owed=(Owed("x", "x", {"y": "z" * LARGEST}),)), str(LARGEST)),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_mongodb_cannot_hold_is_refused_by_name(why: str) -> None:
    wrong, named = REFUSED[why]
    with pytest.raises(Unstorable, match=named):
        LAYOUT.document(wrong)


def test_an_integer_field_of_65_bits_is_refused_by_name() -> None:
    with pytest.raises(Unstorable, match="stored_version"):
        Layout(MORE_SAMPLES).document(record(generation=0, fields={"stored_version": 2**63}))


@pytest.mark.parametrize("name", [name for name in LAYOUT.document(FULL) if name not in ("words", "counts", "length")])
def test_any_change_of_what_a_document_says_is_told(name: str) -> None:
    document = _stored(FULL)
    changed = {"_id": {"tenant": "acme", "id": "other"}, "kind": "mark"}.get(name, "another")
    assert isinstance(LAYOUT.read(document | {name: changed}), Corrupt)
    del document[name]
    if name != "_id":
        assert isinstance(LAYOUT.read(document), Corrupt)


def test_the_order_in_which_a_document_is_kept_does_not_matter() -> None:
    document = _stored(FULL)
    assert LAYOUT.read(dict(sorted(document.items(), reverse=True))) == FULL


def test_every_write_has_a_checksum_of_its_own() -> None:
    assert len({LAYOUT.document(FULL)["checksum"] for _ in range(100)}) == 100
    document = LAYOUT.document(FULL)
    assert sealed(dict(document))["checksum"] != document["checksum"]


# -- words ------------------------------------------------------------------------------------------------------------

PARTS = Parts((TextPart("title", 10.0), TextPart("content", 4.0)))


def test_counts_are_kept_a_part_and_weighed() -> None:
    length, counts = PARTS.index({"title": "lantern lantern", "content": "a lantern"})
    assert (length, PARTS.weighed(counts["lantern"]), PARTS.weighed(counts["a"])) == (4, 24.0, 4.0)


def test_no_word_is_a_path_or_an_operator() -> None:
    _, counts = PARTS.index({"title": "a.b $where {$ne: 1} x\x00y", "content": "n" * 5_000})
    assert not [word for word in counts if set(word) & set(".$\x00")]
    assert max(map(len, counts)) < 40
    assert token("n" * 5_000) in counts


def test_of_too_many_words_those_of_the_heaviest_part_are_found() -> None:
    many = " ".join(f"w{n}x" for n in range(90_000))
    length, counts = PARTS.index({"content": many, "title": "lantern"})
    assert length == 90_001
    assert "lantern" in counts
    assert 30_000 < len(counts) < 60_000
    document = LAYOUT.document(record(generation=0, texts={"content": many}))
    assert len(bson.encode(document)) < 8 * 2**20
