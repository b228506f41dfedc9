"""Layout of rows in Redis: one value per key. Scripts read and write its header.

    at    size  content
    0     1     format, "4"
    1     16    checksum: first digits of the SHA-1 of the bytes from 17 to the end of the pending steps
    17    1     kind: r(ecord), m(ark), t(ombstone), c(orrupt: the value was unreadable and is in quarantine)
    18    1     role: h(ome), r(eplica), a(rriving), c(ached), or -
    19    1     o if there are pending steps, or -
    20    19    version, 39: 19 generation, decimal
    58    16    creation in µs, hexadecimal, 2**63 added, so that text sorts by time
    74    32    partition (see `keys`)
    106   16    expiry of a record, or discard time of a mark or tombstone, as creation; dashes for never
    122   16    first digits of the SHA-1 of the content
    138   8     size of the tier, 146: 8 size of the pending steps
    154   16    time of a record's last change, as creation; dashes for other kinds
    170         tier (of a mark: its target), then the pending steps, JSON
                content: a line of JSON, then body, note, vector and words, whose sizes are in the line;
                the line ends with the names of ordered texts, if the record has any;
                words begin with the version of the tokenizer

Numbers are stored as digits, because a script's own numbers have only 53 bits. Checksum
and content digest together cover every byte.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha1
from typing import Any

from memory.adapters.redis.keys import NOWHERE, partition_token
from memory.ports.batch import StoredRow
from memory.ports.collections import Collection, FieldType
from memory.ports.record import Key, Partition, Role
from memory.ports.rows import CORRUPT, MARK, RECORD, TOMBSTONE, Row, json_of
from memory.ports.storable import Unstorable
from memory.ports.text import TOKENIZER

FORMAT = ord("4")
CHECKSUM_END, HEAD = 17, 170
NEVER = "-" * 16
WORDS_OF = b"%d:" % TOKENIZER
"""Prefix of stored words.

Words of another tokenizer are not read; readers count them from the texts.
"""
MOST_BYTES = 500 * 2**20
"""Limit of a value in Redis: at most 512 MiB (`proto-max-bulk-len`)."""

_KINDS = {RECORD: "r", MARK: "m", TOMBSTONE: "t", CORRUPT: "c"}
_TYPES = {ord(letter): kind for kind, letter in _KINDS.items()}
_ROLES = {ord(role[0]): role.value for role in Role} | {ord("-"): None}
_from_json = json.JSONDecoder().raw_decode  # does not search for white space: there is none


class DamagedRecord(ValueError):
    """The bytes differ from those that were written."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of a value, which the script assembles.

    Only the server knows the generation of a record without one. It also adds the
    checksum.
    """

    kind: str
    head: str
    tail: str
    tier: str
    owed: str
    content: bytes
    name: str
    """Name of the partition; empty for tombstones, which have none."""


def lay_out(collection: Collection, row: Row) -> Parts:
    """Lay out a row. Raises `Unstorable` if no value can hold it."""
    body, note, vector = (row.body or "").encode(), (row.note or "").encode(), row.vector or b""
    line: list[Any] = [
        row.tenant,
        row.id,
        row.scope,
        row.previous,
        row.accesses,
        row.accessed_at,
        row.cached_at,
        row.epoch,
    ]
    line += [_json_fields(row.fields), row.texts, len(body), len(note), len(vector)]
    if collection.ordered_texts and row.fields:
        line.append(sorted(collection.ordered_texts))  # indexes list the record by these
    content = b"\n".join(
        (json_of(line).encode(), b"".join((body, note, vector, WORDS_OF + row.words if row.words else b"")))
    )
    if len(content) > MOST_BYTES:
        raise Unstorable(f"record: Redis stores at most {MOST_BYTES} bytes, not {len(content)}")
    partition = None if row.scope is None else Partition(row.tenant, row.scope)
    created = "0" * 16 if row.created_at is None else sort_key(row.created_at)
    expiry = row.expires_at if row.type == RECORD else row.discard_at
    tier, owed = row.tier or "", row.owed or ""
    return Parts(
        _KINDS[row.type],
        f"{row.role[0] if row.role else '-'}{'o' if owed else '-'}{row.version:019d}",
        f"{created}{partition_token(partition) if partition else NOWHERE}{NEVER if expiry is None else sort_key(expiry)}"
        f"{_digest(content)}{len(tier.encode()):08d}{len(owed.encode()):08d}{NEVER if row.updated_at is None else sort_key(row.updated_at)}",
        tier,
        owed,
        content,
        name_of(partition) if partition else "",
    )


def note_of(key: Key, version: int, problem: str, partition: str, created: str) -> Parts:
    """Lay out the note that replaces a quarantined value.

    `partition` and `created` give its position in the indexes.
    """
    row = Row(key.tenant, key.id, CORRUPT, version, note=problem)
    parts = lay_out(Collection("any"), row)
    return Parts(parts.kind, parts.head, f"{created}{partition}{parts.tail[48:]}", "", "", parts.content, "")


def name_of(partition: Partition) -> str:
    """Return the name of a partition as scripts store it."""
    return json_of([partition.tenant, partition.scope])


def sort_key(micros: int) -> str:
    """Return a time as text that sorts in order of time."""
    return f"{micros + 2**63:016x}"


def _micros(sorted_: bytes) -> int:
    return int(sorted_, 16) - 2**63


def _digest(content: bytes) -> str:
    return sha1(content, usedforsecurity=False).hexdigest()[:16]


# -- reading ---------------------------------------------------------------------------


def row_in(collection: Collection, value: bytes) -> Row:
    """Decode a value into a row.

    Raises:
        DamagedRecord: The value is damaged, or is only the note for a quarantined value.
    """
    start = _content_start(value)
    if start is None:
        raise DamagedRecord("the checksum of its header does not match")
    content = value[start:]
    if _digest(content) != value[122:138].decode("latin-1"):
        raise DamagedRecord("the checksum of its content does not match")
    try:
        return _row(collection, value, start, content)
    except (ValueError, TypeError, KeyError, IndexError) as exc:
        raise DamagedRecord(
            str(exc) if isinstance(exc, DamagedRecord) else f"it cannot be read: {type(exc).__name__}"
        ) from exc


def _row(collection: Collection, value: bytes, start: int, content: bytes) -> Row:
    line, _, rest = content.partition(b"\n")
    tenant, record_id, scope, previous, accesses, accessed, cached, epoch, fields, texts, *sizes = _from_json(
        line.decode()
    )[0]
    body_end = sizes[0]
    note_end = body_end + sizes[1]
    vector_end = note_end + sizes[2]
    kind, tier_end = _TYPES[value[17]], HEAD + int(value[138:146])
    note = rest[body_end:note_end].decode()
    if kind == CORRUPT:
        raise DamagedRecord(note)
    expiry = None if value[106:122] == NEVER.encode() else _micros(value[106:122])
    is_record = kind == RECORD
    for name, read in _decoders(collection):
        if name in fields:
            fields[name] = read(fields[name])
    return Row(
        tenant,
        record_id,
        kind,
        int(value[20:39]),
        scope,
        int(value[39:58]),
        _ROLES[value[18]],
        None if kind == TOMBSTONE else value[HEAD:tier_end].decode(),
        _micros(value[58:74]) if is_record else None,
        _micros(value[154:HEAD]) if is_record else None,
        expiry if is_record else None,
        None if is_record else expiry,
        accesses,
        accessed,
        cached,
        epoch,
        previous,
        value[tier_end:start].decode() or None,
        note or None,
        rest[:body_end].decode() or None,
        fields,
        texts,
        rest[note_end:vector_end] or None,
        rest[vector_end + len(WORDS_OF) :] if rest.startswith(WORDS_OF, vector_end) else None,
    )


def held_in(collection: Collection, key: Key, value: bytes | None) -> StoredRow:
    """Decode the value under a key, for writes.

    The token identifies the value: its checksum, or a digest of all bytes if that is
    wrong.
    """
    if value is None:
        return StoredRow(token=b"")
    try:
        row = row_in(collection, value)
        problem = "" if row.key == key else "another record is in its place"
    except DamagedRecord as exc:
        return StoredRow(
            None, sha1(value, usedforsecurity=False).hexdigest().encode(), str(exc), version_in(value)
        )
    return StoredRow(None if problem else row, value[:CHECKSUM_END], problem, row.version)


def version_in(value: bytes) -> int | None:
    """Return the version in the header; None without one or if it is damaged."""
    return (int(value[20:39]) or None) if _content_start(value) is not None else None


def listed_in(value: bytes) -> tuple[str, str] | None:
    """Return the partition and creation time under which indexes list the value.

    The result is None if the header is damaged.
    """
    return (value[74:106].decode(), value[58:74].decode()) if _content_start(value) is not None else None


def changed_in(value: bytes) -> bytes | None:
    """Return the time of a record's last change, in the form of the indexes.

    The result is None for other kinds and for damaged values.
    """
    start = _content_start(value)
    sound = start is not None and _digest(value[start:]) == value[122:138].decode("latin-1")
    return value[154:HEAD] if sound and _TYPES.get(value[17]) == RECORD else None


def is_listed(value: bytes) -> bool:
    """Whether an index of records may list the value. Damaged values are listed."""
    return _content_start(value) is None or _TYPES.get(value[17]) not in (MARK, TOMBSTONE)


def is_quarantined(value: bytes) -> bool:
    """Whether this is the note that replaces a quarantined value."""
    return value[17:18] == b"c" and _content_start(value) is not None


def tenant_in(value: bytes) -> str | None:
    """Return the tenant that a damaged value names; None if it cannot be read."""
    try:
        start = HEAD + int(value[138:146]) + int(value[146:154])
        return str(_from_json(value[start:].partition(b"\n")[0].decode())[0][0])
    except (ValueError, TypeError, IndexError, KeyError):
        return None


def _content_start(value: bytes) -> int | None:
    """Return the start of the content; None if the header is damaged."""
    try:
        end = HEAD + int(value[138:146]) + int(value[146:154])
    except ValueError:
        return None
    return (
        end
        if value[0] == FORMAT and _digest(value[CHECKSUM_END:end]) == value[1:CHECKSUM_END].decode("latin-1")
        else None
    )


# -- fields ----------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _decoders(collection: Collection) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """Return decoders for the fields whose JSON form differs from their value."""
    readers: Mapping[FieldType, Callable[[Any], Any]] = {FieldType.TAGS: tuple, FieldType.BYTES: b64decode}
    return tuple([(f.name, readers[f.type]) for f in collection.fields if f.type in readers])


def _json_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields in their JSON form."""
    return {
        name: b64encode(value).decode() if value.__class__ is bytes else value
        for name, value in fields.items()
    }
