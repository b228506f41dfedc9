"""A record as the text of its file, and back: a checksum in the first line, over every
byte that follows.

    {"checksum": "7f9c…",
    "collection": "entries",
    "kind": "record",
    "id": "0190…",
    …}

A record edited by hand fails its checksum, as a damaged one does. Whoever means it
writes "accept" in the checksum's place.

Many bytes of a field lie in a file of their own, as they are: in their place the record
says how many, and their SHA-256 (which processors compute themselves, in half the time
of the checksum).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b, sha256
from typing import Any, NamedTuple

from memory.ports.codec import from_json, to_json
from memory.ports.collections import Collection
from memory.ports.query import RowType
from memory.ports.record import JsonValue, Record, Standing

_FIRST_LINE = re.compile(rb'\{"checksum": "([0-9a-f]{32}|accept)",\r?\n')
_OURS = frozenset(("checksum", "collection", "kind", "tenant", "id", "version"))


class DamagedRecord(Exception):
    """What the file says cannot be trusted. The rest is what can still be made out of
    it, for erasing and replacing it.
    """

    def __init__(self, problem: str, payload: Mapping[str, Any] | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        payload = payload or {}
        version = payload.get("version")
        self.version = version if isinstance(version, int) else None
        self.id, self.kind = (
            text if isinstance(text, str) else None for text in map(payload.get, ("id", "kind"))
        )


class ForeignFile(Exception):
    """The file is no record's, or one's of another place: none of ours."""


@dataclass(frozen=True, slots=True)
class BlobReference:
    """Bytes that lie in a file of their own: how many, and their SHA-256 in hexadecimal
    digits.
    """

    size: int
    digest: str

    @classmethod
    def of(cls, content: bytes) -> BlobReference:
        return cls(len(content), sha256(content).hexdigest())


class EncodedRecord(NamedTuple):
    """A record as files have it: the text of its own, what lies apart, and the bytes of
    that.
    """

    text: bytes
    apart: Mapping[str, BlobReference]
    contents: Mapping[str, bytes]

    @property
    def size(self) -> int:
        """How large its files are."""
        return len(self.text) + sum(map(len, self.contents.values()))


class DecodedRecord(NamedTuple):
    """What a record's own file says: all but the bytes that lie apart, and what those
    are.
    """

    standing: Standing
    apart: Mapping[str, BlobReference]


def seal(payload: Mapping[str, JsonValue]) -> bytes:
    """The text of a file: one line a key."""
    try:
        rest = _lines(payload, ascii_only=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        rest = _lines(payload, ascii_only=True).encode()
    return b'{"checksum": "%s",\n%s' % (_checksum(rest).encode(), rest)


def _lines(payload: Mapping[str, JsonValue], ascii_only: bool) -> str:
    return (
        ",\n".join(f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=ascii_only)}" for k, v in payload.items())
        + "}\n"
    )


def unseal(text: bytes) -> dict[str, Any]:
    """What was sealed. Raises `DamagedRecord`."""
    if not text.strip(b" \t\r\n\0"):
        raise DamagedRecord("the file is blank")
    first = _FIRST_LINE.match(text)
    payload = _parse_object(text)
    if first is None:
        raise DamagedRecord(
            "it does not begin with its checksum" if payload is not None else "it is not JSON", payload
        )
    if first[1] != b"accept" and first[1] != _checksum(text[first.end() :]).encode():
        hint = (
            '; if the edit was meant, write "accept" in the place of the checksum'
            if payload is not None
            else ""
        )
        raise DamagedRecord(f"its checksum does not fit{hint}", payload)
    if payload is None:
        raise DamagedRecord("it is not JSON")
    return payload


def seal_record(collection: str, standing: Standing, many: int) -> EncodedRecord:
    """Fields of so many bytes, and more, lie apart."""
    contents: dict[str, bytes] = {}
    if isinstance(standing, Record):
        contents = {
            name: value
            for name, value in standing.fields.items()
            if isinstance(value, bytes) and len(value) >= many
        }
        standing = without(standing, contents)
    payload, apart = (
        to_json(standing),
        {name: BlobReference.of(content) for name, content in contents.items()},
    )
    if apart:
        payload["fields"] |= {name: {"bytes": one.size, "sha256": one.digest} for name, one in apart.items()}
    return EncodedRecord(seal({"collection": collection, **payload}), apart, contents)


def without(record: Record, fields: Mapping[str, object]) -> Record:
    """The record without these fields."""
    return (
        replace(record, fields={name: value for name, value in record.fields.items() if name not in fields})
        if fields
        else record
    )


def unseal_record(text: bytes, collection: Collection) -> DecodedRecord:
    """What stands in a record's file. Raises `DamagedRecord`, or `ForeignFile` for whole JSON
    that is no record of this collection.
    """
    try:
        payload = unseal(text)
    except DamagedRecord as damage:
        parsed = _parse_object(text)
        if parsed is None and _is_json(text):
            raise ForeignFile("it is no record") from damage
        if parsed is not None and not _OURS & parsed.keys():
            raise ForeignFile("it is no record") from damage
        raise
    if payload.get("collection") != collection.name:
        raise ForeignFile(f"it is a record of '{payload.get('collection')}'")
    try:
        fields = payload["fields"] if payload["kind"] == RowType.RECORD else {}
        apart = {
            name: BlobReference(int(said["bytes"]), str(said["sha256"]))
            for name, said in fields.items()
            if isinstance(said, dict)
        }
        for name in apart:
            del fields[name]
        return DecodedRecord(from_json(collection, payload), apart)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as exc:
        raise DamagedRecord(f"it is no whole record ({type(exc).__name__}: {exc})", payload) from exc


def _checksum(rest: bytes) -> str:
    return blake2b(rest, digest_size=16).hexdigest()


def _parse_object(text: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
