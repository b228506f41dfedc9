"""Documents: the layout on disk is pinned, values come back exactly, and what MongoDB
cannot hold is refused by name.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import bson
import pytest

from memory.adapters.mongo.codec import LARGEST, document_of, held_in
from memory.ports import lexical
from memory.ports.contract.cells import cells
from memory.ports.contract.collections import PLAIN, SAMPLES
from memory.ports.contract.support import T0, key_of, record
from memory.ports.record import Mark, PendingStep, Standing, Tombstone, pack_vector
from memory.ports.rows import row_of
from memory.ports.storable import Unstorable

FULL = record(
    generation=2,
    fields={
        "type": "fact",
        "tags": ("b", "a"),
        "confidence": -0.5,
        "number": 2**60,
        "pinned": True,
        "seal": b"\x00",
        "valid_from": T0,
    },
    body={"": {"$ne": 1}, "a.b": "\x00"},
    texts={"title": "Deploying deploys", "content": "the lantern"},
    vector=pack_vector([1.0]),
    owed=(PendingStep("deliver", "deliver", {"to": "long"}),),
    expires_at=T0 + timedelta(microseconds=1),
)


def _stored(standing: Standing) -> dict[str, Any]:
    """As the server gives it back."""
    document: dict[str, Any] = bson.decode(bson.encode(document_of(row_of(SAMPLES, standing))))
    return document


def test_the_layout_of_a_record_is_pinned() -> None:
    document = document_of(row_of(SAMPLES, FULL))
    assert {name: value for name, value in document.items() if name not in ("token", "checksum")} == {
        "_id": {"tenant": "acme", "id": FULL.key.id},
        "tenant": "acme",
        "id": FULL.key.id,
        "type": "record",
        "version": 1,
        "scope": "user:ann",
        "generation": 2,
        "role": "home",
        "tier": "",
        "created_at": 4870652890123456,
        "updated_at": 4870652890123456,
        "expires_at": 4870652889123457,
        "accesses": 0,
        "owed": '[["deliver","deliver",{"to":"long"}]]',
        "owing": True,
        "body": '{"":{"$ne":1},"a.b":"\\u0000"}',
        "fields": {
            "type": "fact",
            "tags": ("b", "a"),
            "confidence": -0.5,
            "number": 2**60,
            "pinned": 1,
            "seal": b"\x00",
            "valid_from": 4870652889123456,
        },
        "texts": {"title": "Deploying deploys", "content": "the lantern"},
        "vector": pack_vector([1.0]),
        "words": b"4;2 deploi;32768 the lantern",
        "stems": ["deploi", "the", "lantern"],
        "length": 4,
    }, "a change needs a new layout version"


def test_marks_and_tombstones_have_nothing_of_a_record_that_a_filter_could_ask_for() -> None:
    mark = document_of(row_of(SAMPLES, Mark(key_of(1), "user:ann", 3, "mid", (), T0)))
    assert mark.keys() == {
        "_id",
        "tenant",
        "id",
        "type",
        "version",
        "scope",
        "to",
        "discard_at",
        "token",
        "checksum",
    }
    tombstone = document_of(row_of(SAMPLES, Tombstone(key_of(1), 4, (), {"k": [1]})))
    assert tombstone.keys() == {"_id", "tenant", "id", "type", "version", "note", "token", "checksum"}


@pytest.mark.parametrize(
    "standing",
    [
        FULL,
        Mark(key_of(1), "user:ann", 3, "mid", (PendingStep("x", "x"),), T0),
        Tombstone(key_of(1), 4, (), {"k": [1]}, T0),
        Tombstone(key_of(1), 4),
    ],
    ids=lambda s: type(s).__name__,
)
def test_what_stands_comes_back_as_it_was(standing: Standing) -> None:
    assert held_in(_stored(standing)).row == row_of(SAMPLES, standing)


@cells(
    "name", [name for name in _stored(FULL) if name not in ("token", "words", "stems", "length")], shared=True
)
def test_any_change_of_what_a_document_says_is_told(name: str) -> None:
    document = _stored(FULL)
    for changed in (
        {"_id": {"tenant": "acme", "id": "other"}, "type": "mark", "owing": 1}.get(name, "another"),
        {"fields": {**document["fields"], "more": 1}, "texts": {}}.get(name, 3),
    ):
        if name == "_id" and changed == 3:
            continue
        held = held_in(document | {name: changed})
        assert held.problem
        assert held.row is None
    del document[name]
    if name != "_id":
        assert held_in(document).problem


def test_fields_of_a_later_release_are_covered_and_stay() -> None:
    document = _stored(FULL)
    row = held_in(document).row
    assert row is not None
    assert document_of(row)["checksum"] == document["checksum"]
    assert row.fields["tags"] == ("b", "a"), "declared or not, they come back as rows have them"


def test_the_order_in_which_a_document_is_kept_does_not_matter() -> None:
    assert held_in(dict(sorted(_stored(FULL).items(), reverse=True))).row == row_of(SAMPLES, FULL)


def test_every_write_has_a_token_of_its_own() -> None:
    assert len({document_of(row_of(SAMPLES, FULL))["token"] for _ in range(100)}) == 100


REFUSED: dict[str, Standing] = {
    "tags that take more room than JSON": record(fields={"tags": ("",) * 2_000_000}),
    "a debt larger than a document": record(owed=(PendingStep("x", "x", {"y": "z" * LARGEST}),)),
    "a note larger than a document": Tombstone(key_of(1), 4, (), {"k": "z" * LARGEST}),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_mongodb_cannot_hold_is_refused_by_name(why: str) -> None:
    with pytest.raises(Unstorable, match=str(LARGEST)):
        document_of(row_of(SAMPLES, REFUSED[why]))


# -- words -----------------------------------------------------------------------------


def test_a_collection_without_texts_has_no_words() -> None:
    assert not {"words", "stems", "length"} & document_of(row_of(PLAIN, record())).keys()


def test_of_too_many_words_those_of_the_first_part_are_found() -> None:
    many = " ".join(f"w{n}x" for n in range(180_000))
    document = document_of(row_of(SAMPLES, record(texts={"content": many, "title": "lantern"})))
    assert document["length"] == lexical.length(document["words"]) == 180_001
    assert "lantern" in document["stems"]
    assert lexical.counts(SAMPLES, document["words"], ["lantern", "w179999x"]) == {"lantern": 10.0}
    assert 30_000 < len(document["stems"]) < 180_000
    assert len(bson.encode(document)) < 8 * 2**20


def test_stems_are_those_of_the_packed_words_and_none_is_a_path_or_an_operator() -> None:
    texts = {
        "title": 'a.b $where {$ne: 1} x\x00y "quoted" back\\slash',
        "content": "東京 Ünïcode ﷺ " + "n" * 5_000,
    }
    document = document_of(row_of(SAMPLES, record(texts=texts)))
    assert document["stems"] == lexical.tokens(document["words"])
    assert not [stem for stem in document["stems"] if set(stem) & set('.$\x00"\\')]
