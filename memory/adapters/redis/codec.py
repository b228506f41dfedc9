"""Rows as Redis holds them: one value a key, in a layout whose header scripts read and
write.

    at    size  what
    0     1     format, "4"
    1     16    checksum: the first digits of the SHA-1 of everything from here to the end of the steps owed
    17    1     kind: r(ecord), m(ark), t(ombstone), c(orrupt: what stood here could not be read and is in quarantine)
    18    1     role: h(ome), r(eplica), a(rriving), c(ached), or -
    19    1     o where steps are owed, or -
    20    19    version, 39: 19 generation, decimal
    58    16    creation in µs, hexadecimal, 2**63 added: text that sorts as the moments do
    74    32    partition (see `keys`)
    106   16    when a record expires or a mark or tombstone may be discarded, as creation; dashes for never
    122   16    the first digits of the SHA-1 of the content
    138   8     size of the tier, 146: 8 size of the steps owed
    154   16    when a record changed last, as creation; dashes for others
    170         tier (of a mark: where to), then the steps owed, JSON
                content: a line of JSON, and behind it body, note, vector and words, whose sizes the line tells;
                words begin with the version of the tokenizer

Numbers are digits because a script's own numbers have 53 bits. Checksum and content
digest together cover every byte.
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
"""Words begin with it. Those of another tokenizer are not read: whoever needs them
counts them from the texts.
"""
MOST_BYTES = 500 * 2**20
"""A value in Redis has at most 512 MiB (`proto-max-bulk-len`)."""

_KINDS = {RECORD: "r", MARK: "m", TOMBSTONE: "t", CORRUPT: "c"}
_TYPES = {ord(letter): kind for kind, letter in _KINDS.items()}
_ROLES = {ord(role[0]): role.value for role in Role} | {ord("-"): None}
_from_json = json.JSONDecoder().raw_decode  # without a search for white space around it: none is written


class DamagedRecord(ValueError):
    """Bytes that are not what was written."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the script puts together to a value: the server knows the generation of a
    record that brings none, and adds the checksum.
    """

    kind: str
    head: str
    tail: str
    tier: str
    owed: str
    content: bytes
    name: str
    """The partition's own: empty of tombstones, which name none."""


def lay_out(collection: Collection, row: Row) -> Parts:
    """Raises `Unstorable` where no value can hold it."""
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
    content = b"\n".join(
        (json_of(line).encode(), b"".join((body, note, vector, WORDS_OF + row.words if row.words else b"")))
    )
    if len(content) > MOST_BYTES:
        raise Unstorable(f"record: Redis takes values of at most {MOST_BYTES} bytes, not {len(content)}")
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
    """What stands in the place of a value that is in quarantine; `partition` and
    `created` say where indexes list it.
    """
    row = Row(key.tenant, key.id, CORRUPT, version, note=problem)
    parts = lay_out(Collection("any"), row)
    return Parts(parts.kind, parts.head, f"{created}{partition}{parts.tail[48:]}", "", "", parts.content, "")


def name_of(partition: Partition) -> str:
    """A partition's name, as scripts keep it."""
    return json_of([partition.tenant, partition.scope])


def sort_key(micros: int) -> str:
    """A moment as indexes sort it."""
    return f"{micros + 2**63:016x}"


def _micros(sorted_: bytes) -> int:
    return int(sorted_, 16) - 2**63


def _digest(content: bytes) -> str:
    return sha1(content, usedforsecurity=False).hexdigest()[:16]


# -- reading ---------------------------------------------------------------------------


def row_in(collection: Collection, value: bytes) -> Row:
    """What the value says. Raises `DamagedRecord` where it is not as it was written, or is
    but the note of what is in quarantine.
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
    """What stands under the key. By the token it is known again: by its checksum, or,
    where that is wrong, by all of it.
    """
    if value is None:
        return StoredRow(token=b"")
    try:
        row = row_in(collection, value)
        problem = "" if row.key == key else "another record stands in its place"
    except DamagedRecord as exc:
        return StoredRow(
            None, sha1(value, usedforsecurity=False).hexdigest().encode(), str(exc), version_in(value)
        )
    return StoredRow(None if problem else row, value[:CHECKSUM_END], problem, row.version)


def version_in(value: bytes) -> int | None:
    """The version a header names; None where it names none that can be trusted."""
    return (int(value[20:39]) or None) if _content_start(value) is not None else None


def listed_in(value: bytes) -> tuple[str, str] | None:
    """The partition and creation by which indexes list the value; None where its header
    cannot be trusted.
    """
    return (value[74:106].decode(), value[58:74].decode()) if _content_start(value) is not None else None


def changed_in(value: bytes) -> bytes | None:
    """When a record changed last, as indexes sort it; None of anything else, and where
    the value is not as it was written.
    """
    start = _content_start(value)
    sound = start is not None and _digest(value[start:]) == value[122:138].decode("latin-1")
    return value[154:HEAD] if sound and _TYPES.get(value[17]) == RECORD else None


def is_quarantined(value: bytes) -> bool:
    """Whether this is the note in the place of a value that could not be read."""
    return value[17:18] == b"c" and _content_start(value) is not None


def tenant_in(value: bytes) -> str | None:
    """The tenant that a damaged value seems to be of."""
    try:
        start = HEAD + int(value[138:146]) + int(value[146:154])
        return str(_from_json(value[start:].partition(b"\n")[0].decode())[0][0])
    except (ValueError, TypeError, IndexError, KeyError):
        return None


def _content_start(value: bytes) -> int | None:
    """Where the content begins; None where the header is not as it was written."""
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
    """Of those fields that JSON does not give back as they were."""
    readers: Mapping[FieldType, Callable[[Any], Any]] = {FieldType.TAGS: tuple, FieldType.BYTES: b64decode}
    return tuple([(f.name, readers[f.type]) for f in collection.fields if f.type in readers])


def _json_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON takes them."""
    return {
        name: b64encode(value).decode() if value.__class__ is bytes else value
        for name, value in fields.items()
    }
