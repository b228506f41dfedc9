"""Converts a record to the text of its file and back.

The first line has a checksum over every byte after it.

    {"checksum": "7f9c…",
    "collection": "entries",
    "kind": "record",
    "id": "0190…",
    …}

A record that was edited by hand fails its checksum, like a damaged one. To accept an
edit, write "accept" instead of the checksum.

A large bytes field has a file of its own. The record has the field's size and SHA-256
instead. Processors compute that in half the time of the checksum.
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
    """The file is damaged.

    The attributes hold what could still be read, so that it can be erased and replaced.
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
    """The file is not a record, or belongs to another place."""


@dataclass(frozen=True, slots=True)
class BlobReference:
    """Size and hexadecimal SHA-256 of bytes in a file of their own."""

    size: int
    digest: str

    @classmethod
    def of(cls, content: bytes) -> BlobReference:
        return cls(len(content), sha256(content).hexdigest())


class EncodedRecord(NamedTuple):
    """A record as files: its own text, and the bytes fields in files of their own."""

    text: bytes
    apart: Mapping[str, BlobReference]
    contents: Mapping[str, bytes]

    @property
    def size(self) -> int:
        """Size of all its files in bytes."""
        return len(self.text) + sum(map(len, self.contents.values()))


class DecodedRecord(NamedTuple):
    """Content of a record's own file, with references to separate bytes."""

    standing: Standing
    apart: Mapping[str, BlobReference]


def seal(payload: Mapping[str, JsonValue]) -> bytes:
    """Encode a payload as the text of a file, one line per key."""
    try:
        rest = _lines(payload, ascii_only=False).encode()
    except UnicodeEncodeError:  # an unpaired surrogate
        rest = _lines(payload, ascii_only=True).encode()
    return b'{"checksum": "%s",\n%s' % (_checksum(rest).encode(), rest)


def _lines(payload: Mapping[str, JsonValue], ascii_only: bool) -> str:
    return (
        ",\n".join(f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=ascii_only)}" for k, v in payload.items())
        + "}\n"
    )


def unseal(text: bytes) -> dict[str, Any]:
    """Decode the text of a file. Raises `DamagedRecord`."""
    if not text.strip(b" \t\r\n\0"):
        raise DamagedRecord("the file is blank")
    first = _FIRST_LINE.match(text)
    payload = _parse_object(text)
    if first is None:
        raise DamagedRecord(
            "it does not begin with a checksum" if payload is not None else "it is not JSON", payload
        )
    if first[1] != b"accept" and first[1] != _checksum(text[first.end() :]).encode():
        hint = (
            '; if the edit was intended, write "accept" instead of the checksum'
            if payload is not None
            else ""
        )
        raise DamagedRecord(f"its checksum does not match{hint}", payload)
    if payload is None:
        raise DamagedRecord("it is not JSON")
    return payload


def seal_record(collection: str, standing: Standing, many: int) -> EncodedRecord:
    """Encode a record. Bytes fields of this size or more get files of their own."""
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
    """Return the record without these fields."""
    return (
        replace(record, fields={name: value for name, value in record.fields.items() if name not in fields})
        if fields
        else record
    )


def unseal_record(text: bytes, collection: Collection) -> DecodedRecord:
    """Decode the text of a record's file.

    Raises:
        DamagedRecord: The file is damaged.
        ForeignFile: The file is valid JSON, but not a record of this collection.
    """
    try:
        payload = unseal(text)
    except DamagedRecord as damage:
        parsed = _parse_object(text)
        if parsed is None and _is_json(text):
            raise ForeignFile("it is not a record") from damage
        if parsed is not None and not _OURS & parsed.keys():
            raise ForeignFile("it is not a record") from damage
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
        raise DamagedRecord(f"it is not a complete record ({type(exc).__name__}: {exc})", payload) from exc


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
