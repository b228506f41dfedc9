"""Writes as the script takes them, and its answers as outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1
from typing import assert_never

from memory.adapters.redis.names import Place, home_bucket, partition_token, place_of, plain_bytes
from memory.adapters.redis.packing import (
    Parts,
    digits,
    grave_parts,
    identity_of,
    letter_of,
    milliseconds,
    name_of,
    owed_token,
    record_parts,
    written,
)
from memory.adapters.redis.reading import Spot
from memory.adapters.redis.scripts import Argument, Call
from memory.adapters.redis.unpacking import stored_in
from memory.ports.collections import Collection
from memory.ports.record import Key, Partition, Record, Role
from memory.ports.storable import Unstorable
from memory.ports.writes import (
    Absent,
    Always,
    Annotate,
    AtVersion,
    Delete,
    Newer,
    Outcome,
    Purge,
    Put,
    RaiseGeneration,
    Release,
    Status,
    When,
    Write,
)

MOST_GENERATIONS = 2**53
"""A script counts in doubles."""


def call_for(write: Write, brought: int = 0) -> Call:
    """The script's call for a write. `brought` is what a put to another bucket than its partition's own was told there as the generation; only on a
    cluster. Raises `Unstorable` where no value can hold it."""
    match write:
        case Put(collection, record, when):
            return _put(collection, record, when, brought)
        case Delete(collection, key, version, when, owed, note, discard_at):
            tombstone = grave_parts(identity_of(key), "", owed, discard_at, note)
            return delete_call(place_of(collection.name, key), _condition(when), _tier(when), version, tombstone)
        case Release(collection, key, at, to, owed, discard_at):
            mark = grave_parts(b"", to, owed, discard_at, {})
            return _call("release", place_of(collection.name, key), _version(at), plain_bytes(to), mark.owing, mark.ends, mark.books, mark.digest)
        case Annotate():
            return _annotate(write)
        case Purge(collection, key, at, role_is):
            return _call("purge", place_of(collection.name, key), _version(at), _letter(role_is))
        case RaiseGeneration(partition, to):
            if to is not None and to > MOST_GENERATIONS:
                raise Unstorable(f"to: a generation is at most {MOST_GENERATIONS}")
            bucket = home_bucket(partition)
            return Call(bucket, ("raise", bucket, partition_token(partition), "" if to is None else to, name_of(partition)))
        case _:
            assert_never(write)


def is_displaced(write: Write) -> bool:
    """Whether the record's id belongs to another bucket than its partition: so do ids made for another partition, or not by this library."""
    return isinstance(write, Put) and place_of("", write.key).bucket != home_bucket(write.record.partition)


# -- calls ------------------------------------------------------------------------------------------------------------


def _call(operation: str, place: Place, *arguments: Argument) -> Call:
    return Call(place.bucket, (operation, place.bucket, place.collection, place.tenant, place.id, *arguments))


def _put(collection: Collection, record: Record, when: When, brought: int) -> Call:
    if record.generation is not None and not 0 <= record.generation <= MOST_GENERATIONS:
        raise Unstorable(f"generation: must be between 0 and {MOST_GENERATIONS}")
    parts = record_parts(collection, record)
    return _call(
        "put",
        place_of(collection.name, record.key),
        _condition(when),
        _tier(when),
        "" if record.generation is None else record.generation,
        parts.head,
        home_bucket(record.partition),
        brought,
        parts.books,
        parts.identity,
        parts.content,
    )


def delete_call(place: Place, condition: str | bytes, tier: bytes, version: int, tombstone: Parts) -> Call:
    parts = (tombstone.owing, tombstone.ends, tombstone.books, tombstone.identity, tombstone.digest, tombstone.content)
    return _call("delete", place, condition, tier, digits("version", version), *parts)


def _annotate(write: Annotate) -> Call:
    return _call(
        "annotate",
        place_of(write.collection.name, write.key),
        _version(write.at),
        _letter(write.role_is),
        _letter(write.role),
        b"" if write.tier is None else b"=" + plain_bytes(write.tier),
        written(write.accessed_at),
        written(write.discard_at),
        milliseconds(write.discard_at),
        len(write.settle),
        *[owed_token(step) for step in write.settle],
    )


def prepare_call(write: Put) -> Call:
    """Tells the partition's own bucket that this id's bucket will have a record of it; asks for the generation."""
    partition = write.record.partition
    home = home_bucket(partition)
    return Call(home, ("prepare", home, partition_token(partition), place_of("", write.key).bucket, name_of(partition)))


def raise_beside_call(bucket: str, partition: Partition, generation: int) -> Call:
    return Call(bucket, ("raise", bucket, partition_token(partition), generation, ""))


def set_aside_call(spot: Spot, key: Key, value: bytes, problem: str) -> Call:
    """Keeps a value that cannot be read for people to look at, if it still stands there."""
    note = grave_parts(identity_of(key), "", (), None, {"problem": problem})
    digest = sha1(value, usedforsecurity=False).hexdigest()
    return _call("set_aside", spot.place, digest, spot.partition, spot.created, note.ends, note.books, note.identity, note.digest, note.content)


def _condition(when: When) -> str:
    match when:
        case Absent():
            return "A"
        case AtVersion(version, role):
            return f"V{_version(version)}{_letter(role)}"
        case Newer():
            return "N"
        case Always():
            return "L"
        case _:
            assert_never(when)


def _tier(when: When) -> bytes:
    return b"=" + plain_bytes(when.tier) if isinstance(when, AtVersion) and when.tier is not None else b""


def _version(version: int) -> str:
    """A version to compare with: one that no record can have equals none."""
    return f"{version:019d}" if 0 <= version < 2**63 else "-" * 19


def _letter(role: Role | None) -> str:
    return "-" if role is None else letter_of(role)


# -- outcomes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """What the script said of one call."""

    status: str
    version: int | None
    generation: int
    number: int
    value: bytes


def answer_in(raw: bytes) -> Answer:
    version, generation, number = raw[1:20].strip(), raw[20:36], raw[36:52]
    return Answer(chr(raw[0]), int(version) if version else None, int(generation), int(number), raw[52:])


def outcome_of(write: Write, answer: Answer) -> Outcome:
    if isinstance(write, RaiseGeneration):
        return Outcome(Status.APPLIED, number=answer.number)
    if answer.status == "A":
        return Outcome(Status.APPLIED, answer.version, generation=answer.generation if isinstance(write, Put) else None)
    if answer.status == "G":
        return Outcome(Status.REJECTED, answer.version, reason="generation")
    if answer.status == "X":
        return Outcome(Status.REJECTED, reason=f"record {write.key.id} is corrupt and was set aside; delete it or put a newer copy over it")
    stored = stored_in(write.collection, answer.value, write.key) if answer.value else None
    return Outcome(Status.CONFLICT, version=answer.version, stored=stored)
