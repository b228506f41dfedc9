"""Names and values: ids find their partition's bucket, no text of a user is in a key,
and no changed byte is read as a record.
"""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha1

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.adapters.redis import codec
from memory.adapters.redis.codec import DamagedRecord, lay_out, row_in
from memory.adapters.redis.keys import BUCKETS, address_of, bucket_of, home_bucket, record_key
from memory.domain.ids import derived_id, new_id
from memory.ports import lexical
from memory.ports.contract.cells import cells
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import T0, record
from memory.ports.record import (
    Key,
    Mark,
    Partition,
    PendingStep,
    Record,
    Role,
    Standing,
    Tombstone,
    pack_vector,
)
from memory.ports.rows import row_of, standing_of

NAMES = st.text(alphabet=st.characters(codec="utf-8"), max_size=8)


@given(tenant=NAMES, scope=NAMES, at=st.integers(0, 2**47))
def test_an_id_is_in_its_partitions_own_bucket(tenant: str, scope: str, at: int) -> None:
    home = home_bucket(Partition(tenant, scope))
    assert bucket_of(new_id(tenant, scope, at)) == home == bucket_of(derived_id(tenant, scope, "x"))
    assert home in BUCKETS


def test_half_a_character_may_be_asked_for() -> None:
    assert home_bucket(Partition("acme", "\ud800")) in BUCKETS


@given(first=st.tuples(NAMES, NAMES), second=st.tuples(NAMES, NAMES))
def test_two_keys_are_two_names_and_neither_holds_a_users_text(
    first: tuple[str, str], second: tuple[str, str]
) -> None:
    names = [
        record_key("memory", address_of("samples", Key(tenant, derived_id(tenant, "s", source))))
        for tenant, source in (first, second)
    ]
    assert (names[0] == names[1]) is (first == second)
    for name in names:
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-:{}")


def value_of(standing: Standing) -> bytes:
    """As the script puts it together."""
    parts = lay_out(SAMPLES, row_of(SAMPLES, standing))
    generation = standing.generation or 0 if isinstance(standing, Record) else 0
    covered = f"{parts.kind}{parts.head}{generation:019d}{parts.tail}{parts.tier}{parts.owed}".encode()
    return b"4" + sha1(covered, usedforsecurity=False).hexdigest()[:16].encode() + covered + parts.content


WHOLE = record(
    version=7,
    generation=3,
    fields={"type": "fact", "tags": ("a", "é"), "confidence": 0.5, "valid_from": T0, "seal": b"\x00\xff"},
    body={"k": [1, None, "x\ny"]},
    texts={"title": "t\nu", "content": "a grey heron"},
    vector=pack_vector([1.0, -2.0]),
    expires_at=datetime(1960, 1, 1, tzinfo=UTC),
    owed=(PendingStep("deliver", "deliver", {"to": "long", "é": 2**60}),),
    role=Role.REPLICA,
    tier="kürz",
    accesses=2,
    accessed_at=T0,
    previous=5,
    cached_at=T0,
    epoch="run",
)
MARK = Mark(WHOLE.key, WHOLE.scope, 7, "long", WHOLE.owed, T0)
TOMBSTONE = Tombstone(WHOLE.key, 2**62, WHOLE.owed, {"digest": ["d\n", None]}, T0)


@cells(
    "standing",
    [WHOLE, record(generation=0), MARK, TOMBSTONE, Tombstone(WHOLE.key, 1)],
    ids=lambda s: type(s).__name__,
    shared=True,
)
def test_what_stands_is_read_as_it_was_laid_out(standing: Standing) -> None:
    row = row_in(SAMPLES, value_of(standing))
    assert row == row_of(SAMPLES, standing)
    assert standing_of(SAMPLES, row) == standing


@pytest.mark.parametrize("bit", [0, 3, 6])
def test_no_flipped_bit_anywhere_is_read_as_a_record(bit: int) -> None:
    value = value_of(WHOLE)
    for at in range(len(value)):
        damaged = bytearray(value)
        damaged[at] ^= 1 << bit
        with pytest.raises(DamagedRecord):
            row_in(SAMPLES, bytes(damaged))


@cells("cut", [0, 1, 100, 169, 170, -1], shared=True)
def test_a_torn_value_is_damaged(cut: int) -> None:
    with pytest.raises(DamagedRecord):
        row_in(SAMPLES, value_of(WHOLE)[:cut])


# What version 4 of the layout looks like: data in the field is read by every later
# release, or migrated.
RECORD_4 = (
    b'4ea7eba81232aeafcrh-0000000000000000002000000000000000000180114dd53f570cc060e4ba54d4355aa00512e0003ec4ce0f----------------f5c4327371f9ba70000000030000000080114dd53f570cc0mid["acme","00000000-0001-8000-9a1c-c68640000000","user:ann",null,0,null,null,null,{},{"content":"a'
    b' heron"},10,0,0]\n{"k":"\xc3\xa9"}2;32768 a heron'
)
RECORD_4_OF_TOKENIZER_1 = RECORD_4
RECORD_4 = (
    b'4eec9609c81c8c74brh-0000000000000000002000000000000000000180114dd53f570cc060e4ba54d4355aa00512e0003ec4ce0f----------------834a248bfbf13ae5000000030000000080114dd53f570cc0mid["acme","00000000-0001-8000-9a1c-c68640000000","user:ann",null,0,null,null,null,{},{"content":"a'
    b' heron"},10,0,0]\n{"k":"\xc3\xa9"}3:2;32768 a heron'
)
TOMBSTONE_4 = (
    b"455c8507a4e0b7e72t--00000000000000000030000000000000000000000000000000000000000000000000000000000000"
    b"00000080114dd53f47ca80a2492e46f1051ec20000000000000000----------------"
    b'["acme","00000000-0001-8000-9a1c-c68640000000",null,null,0,null,null,null,{},{},0,14,0]\n{"digest":"d"}'
)


def test_the_format_is_the_one_in_the_field() -> None:
    plain = record(version=2, generation=1, body={"k": "é"}, texts={"content": "a heron"}, tier="mid")
    assert value_of(plain) == RECORD_4
    for written in (RECORD_4, RECORD_4_OF_TOKENIZER_1):
        assert standing_of(SAMPLES, row_in(SAMPLES, written)) == plain
    tombstone = Tombstone(plain.key, 3, note={"digest": "d"}, discard_at=T0)
    assert value_of(tombstone) == TOMBSTONE_4
    assert standing_of(SAMPLES, row_in(SAMPLES, TOMBSTONE_4)) == tombstone


def test_words_of_another_tokenizer_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    written = row_in(SAMPLES, value_of(WHOLE))
    assert written.words == lexical.index(SAMPLES, WHOLE.texts)
    monkeypatch.setattr(codec, "WORDS_OF", b"1:")
    earlier = value_of(WHOLE)
    monkeypatch.undo()
    assert row_in(SAMPLES, earlier) == written._replace(words=None)
