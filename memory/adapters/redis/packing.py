"""Records as Redis holds them: one value a key, in a format that scripts read, change and seal.

    at    size  what
    0     1     format, "1"
    1     16    seal: the first digits of the SHA-1 of everything from here to the end of the identity
    17    1     kind: r(ecord), m(ark), t(ombstone), c(orrupt: what stood here could not be read and was set aside)
    18    1     role: h(ome), r(eplica), a(rriving), c(ached), or -
    19    1     o where steps are owed, or -
    20    19    version, 39: 19 generation, decimal
    58    16    creation in µs, hexadecimal, 2**63 added: text that sorts as the moments do
    74    32    partition (see `names`)
    106   15    when a record expires or a mark or tombstone may go, in ms; dashes for never
    121   16    the first digits of the SHA-1 of the content
    137   8     size of the books, 145: 8 size of the identity
    153         books, JSON: what changes without a new version (see `lua/apply.lua`)
                identity, JSON: tenant, id and, but for tombstones, scope
                content, JSON, and behind a line break the vector

Numbers are digits because a script's own numbers have 53 bits. Seal and content digest together cover every byte.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b, sha1
from typing import Any

from memory.adapters.redis.fields import codec_of
from memory.adapters.redis.names import partition_token, plain_bytes
from memory.domain.time import micros
from memory.ports.collections import Collection
from memory.ports.record import JsonValue, Key, Owed, Partition, Record, Role
from memory.ports.storable import Unstorable

FORMAT = ord("1")
SEAL_END, HEAD = 17, 153
NEVER = "-" * 15
_LARGEST = 2**63 - 1
MOST_BYTES = 500 * 2**20
"""A value in Redis has at most 512 MiB (`proto-max-bulk-len`)."""

_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Parts:
    """What the script puts together to a value. `head` runs from role to content digest, but for the generation, which the server knows."""

    head: str
    books: bytes
    identity: bytes
    content: bytes
    owing: str
    ends: str
    digest: str


def digits(name: str, value: int) -> str:
    """A number of the header."""
    if not 0 <= value <= _LARGEST:
        raise Unstorable(f"{name}: must be between 0 and 2**63 - 1")
    return f"{value:019d}"


def letter_of(role: Role) -> str:
    """A role in the header: its first letter."""
    return role[0]


def sort_key(created_at: datetime) -> str:
    """A moment as the indexes sort it."""
    return f"{micros(created_at) + 2**63:016x}"


def digest_of(content: bytes) -> str:
    return sha1(content, usedforsecurity=False).hexdigest()[:16]


def record_parts(collection: Collection, record: Record) -> Parts:
    """A record as the script takes it."""
    encoders = codec_of(collection).encoders
    fields = {name: encoders[name](name, value) for name, value in record.fields.items() if value is not None}
    said = [
        micros(record.updated_at),
        _maybe_micros(record.expires_at),
        record.previous,
        _maybe_micros(record.cached_at),
        record.epoch,
        fields,
        record.texts if record.texts.__class__ is dict else dict(record.texts),
        record.body if record.body.__class__ is dict else dict(record.body),
    ]
    content = _json_bytes("record", said)
    if record.vector is not None:
        content += b"\n" + record.vector
    if len(content) > MOST_BYTES:
        raise Unstorable(f"record: Redis takes values of at most {MOST_BYTES} bytes, not {len(content)}")
    owing, ends, digest = _owing(record.owed), milliseconds(record.expires_at), digest_of(content)
    books = _books(record.tier, record.accesses, record.accessed_at, None, record.owed)
    created = sort_key(record.created_at)
    version = digits("version", record.version)
    head = f"{letter_of(record.role)}{owing}{version}{created}{partition_token(record.partition)}{ends}{digest}"
    return Parts(head, books, identity_of(record.key, record.scope), content, owing, ends, digest)


def grave_parts(identity: bytes, to: str, owed: Sequence[Owed], discard_at: datetime | None, note: Mapping[str, JsonValue]) -> Parts:
    """A mark (of which the script knows the identity) or a tombstone."""
    content = _json_bytes("note", dict(note)) if note else b""
    books = _books(to, 0, None, discard_at, owed)
    return Parts("", books, identity, content, _owing(owed), milliseconds(discard_at), digest_of(content))


def identity_of(key: Key, scope: str | None = None) -> bytes:
    return _json_bytes("key", [key.tenant, key.id] if scope is None else [key.tenant, key.id, scope])


def name_of(partition: Partition) -> bytes:
    """A partition's name, as scripts keep it."""
    return _json_bytes("scope", [partition.tenant, partition.scope])


def owed_token(step: Owed) -> str:
    """What two equal steps have in common, whatever the order of their keys."""
    text = json.dumps([step.kind, _comparable(dict(step.data))], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return blake2b(plain_bytes(text), digest_size=8).hexdigest()


def milliseconds(at: datetime | None) -> str:
    """A moment as an expiry: never early."""
    if at is None:
        return NEVER
    return f"{max(-(-micros(at) // 1000), 0):015d}"


def _owing(owed: Sequence[Owed]) -> str:
    return "o" if owed else "-"


def _books(tier: str, accesses: int, accessed_at: datetime | None, discard_at: datetime | None, owed: Sequence[Owed]) -> bytes:
    """See `lua/apply.lua`. All texts: a script's JSON has no 64-bit numbers and no empty lists."""
    if not (accesses or accessed_at or discard_at or owed):
        return _json_bytes("tier", [tier, "0", "", ""])
    line = [tier, digits("accesses", accesses).lstrip("0") or "0", written(accessed_at), written(discard_at)]
    for step in owed:
        line += [owed_token(step), _to_json([step.kind, dict(step.data)])]
    return _json_bytes("owed", line)


def written(at: datetime | None) -> str:
    """A moment of the books, in µs."""
    return "" if at is None else str(micros(at))


def _maybe_micros(at: datetime | None) -> int | None:
    return None if at is None else micros(at)


def _json_bytes(name: str, value: JsonValue) -> bytes:
    try:
        return plain_bytes(_to_json(value))
    except (ValueError, TypeError, RecursionError) as exc:
        raise Unstorable(f"{name}: {exc}") from exc


def _comparable(value: Any) -> Any:
    """Equal values alike: 1.0 is 1."""
    if isinstance(value, Mapping):
        return {k: _comparable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_comparable(v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
