"""Names and values: ids find their partition's bucket, no text of a user is in a key, and no changed byte is read as a record."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha1

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.adapters.redis.names import BUCKETS, bucket_of, home_bucket, id_of, place_of, record_key, sortable
from memory.adapters.redis.packing import grave_parts, identity_of, record_parts
from memory.adapters.redis.unpacking import Damaged, read
from memory.domain.ids import derived_id, new_id
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import T0, record
from memory.ports.record import Key, Owed, Partition, Record, Role, Tombstone, pack_vector

TEXTS = st.text(alphabet=st.characters(exclude_categories=()), max_size=12)


@given(tenant=st.text(max_size=8), scope=st.text(max_size=8), at=st.integers(0, 2**47))
def test_an_id_of_this_library_is_in_its_partitions_own_bucket(tenant: str, scope: str, at: int) -> None:
    home = home_bucket(Partition(tenant, scope))
    assert bucket_of(new_id(tenant, scope, at)) == home == bucket_of(derived_id(tenant, scope, "x"))
    assert home in BUCKETS


@given(first=TEXTS, second=TEXTS)
def test_ids_sort_in_indexes_as_they_do_anywhere(first: str, second: str) -> None:
    assert (sortable(first) < sortable(second)) is (first < second)
    assert id_of(sortable(first)) == first
    assert sortable(first).count(b"\x00") == 1


@given(first=st.tuples(TEXTS, TEXTS), second=st.tuples(TEXTS, TEXTS))
def test_two_keys_are_two_names_and_neither_holds_a_users_text(first: tuple[str, str], second: tuple[str, str]) -> None:
    names = [record_key("memory", place_of("samples", Key(*pair))) for pair in (first, second)]
    assert (names[0] == names[1]) is (first == second)
    for name in names:
        assert set(name) <= set(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-~:{}")


def assembled(kind: str, head: str, generation: int, books: bytes, identity: bytes, content: bytes) -> bytes:
    """A value as the script puts it together."""
    covered = f"{kind}{head[:21]}{generation:019d}{head[21:]}{len(books):08d}{len(identity):08d}".encode() + books + identity
    return b"1" + sha1(covered, usedforsecurity=False).hexdigest()[:16].encode() + covered + content


WHOLE = record(
    version=7,
    generation=3,
    fields={"type": "fact", "tags": ("a", "é"), "confidence": 0.5, "valid_from": T0},
    body={"k": [1, None, "x\ny"]},
    texts={"title": "t"},
    vector=pack_vector([1.0, -2.0]),
    expires_at=datetime(2200, 1, 1, tzinfo=UTC),
    owed=(Owed("deliver", {"to": "long"}),),
    role=Role.REPLICA,
    tier="short",
    accesses=2,
    accessed_at=T0,
    previous=5,
    cached_at=T0,
    epoch="run",
)


def packed(whole: Record) -> bytes:
    parts = record_parts(SAMPLES, whole)
    return assembled("r", parts.head, whole.generation or 0, parts.books, parts.identity, parts.content)


def test_a_record_is_read_as_it_was_packed() -> None:
    assert read(SAMPLES, packed(WHOLE)) == WHOLE


@pytest.mark.parametrize("bit", [0, 3, 6])
def test_no_flipped_bit_anywhere_is_read_as_a_record(bit: int) -> None:
    value = packed(WHOLE)
    for at in range(len(value)):
        damaged = bytearray(value)
        damaged[at] ^= 1 << bit
        with pytest.raises(Damaged):
            read(SAMPLES, bytes(damaged))


@pytest.mark.parametrize("cut", [0, 1, 100, 152, 153, -1])
def test_a_torn_value_is_damaged(cut: int) -> None:
    with pytest.raises(Damaged):
        read(SAMPLES, packed(WHOLE)[:cut])


# What version 2 of the layout looks like: data in the field is read by every later release, or migrated.
RECORD_2 = (
    b"164260d30fb70d028rh-0000000000000000002000000000000000000180114dd53f570cc060e4ba54d4355aa00512e0003ec4ce0"
    b'f---------------df9c077bc3e639060000001700000058["mid","0","",""]["acme","00000000-0001-8000-9a1c-c686400'
    b'00000","user:ann"][4870652890123456,null,null,null,null,{},{},{"k":"\xc3\xa9"}]'
)
TOMBSTONE_2 = (
    b"1384053a59a30d292t--0000000000000000003000000000000000000000000000000000000000000000000000000000000000000"
    b'00048706528891245e92c7b73bebf5e20000003000000047["","0","","4870652889123456"]["acme","00000000-0001-8000'
    b'-9a1c-c68640000000"]{"digest":"d"}'
)


def test_the_format_is_the_one_in_the_field() -> None:
    plain = record(version=2, generation=1, body={"k": "é"}, tier="mid")
    parts = record_parts(SAMPLES, plain)
    assert assembled("r", parts.head, 1, parts.books, parts.identity, parts.content) == RECORD_2
    assert read(SAMPLES, RECORD_2) == plain
    grave = grave_parts(identity_of(plain.key), "", (), T0, {"digest": "d"})
    head = f"--{3:019d}{'0' * 16}{'0' * 32}{grave.ends}{grave.digest}"
    assert assembled("t", head, 0, grave.books, grave.identity, grave.content) == TOMBSTONE_2
    assert read(SAMPLES, TOMBSTONE_2) == Tombstone(plain.key, 3, note={"digest": "d"}, discard_at=T0)
