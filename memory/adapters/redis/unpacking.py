"""What values say, and whether they are as they were written; see `packing` for their layout."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from memory.adapters.redis.fields import codec_of, known_moment
from memory.adapters.redis.packing import FORMAT, HEAD, SEAL_END, digest_of
from memory.ports.collections import Collection
from memory.ports.record import Corrupt, Key, Mark, Owed, Record, Role, Stored, Tombstone

_ROLES = {ord(role[0]): role for role in Role}
_from_json = json.JSONDecoder().raw_decode  # without a search for white space around it: none is written


class Damaged(ValueError):
    """Bytes that are not what was written."""


def version_in(value: bytes) -> int:
    """The version a header names, 0 where it names none."""
    try:
        return int(value[20:39])
    except ValueError:
        return 0


def stored_in(collection: Collection, value: bytes, key: Key) -> Stored:
    """What the value under the key says; `Corrupt` where it is not as it was written, or is another key's."""
    try:
        stored = read(collection, value)
    except Damaged as exc:
        return Corrupt(key, str(exc))
    return stored if stored.key == key else Corrupt(key, "another record stands in its place")


def read(collection: Collection, value: bytes) -> Stored:
    """What the value says. Raises `Damaged` where it is not as it was written."""
    try:
        books_end = HEAD + int(value[137:145])
        end = books_end + int(value[145:HEAD])
    except ValueError as exc:
        raise Damaged("its header cannot be read") from exc
    if value[0] != FORMAT or digest_of(value[SEAL_END:end]) != value[1:SEAL_END].decode("latin-1"):
        raise Damaged("the seal of its header does not match")
    content = value[end:]
    if digest_of(content) != value[121:137].decode("latin-1"):
        raise Damaged("the checksum of its content does not match")
    try:
        return _READERS[value[17]](collection, value, value[HEAD:books_end], value[books_end:end], content)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as exc:
        raise Damaged(f"it cannot be read: {type(exc).__name__}") from exc


def _loaded(text: bytes) -> Any:
    return _from_json(text.decode("utf-8", "surrogatepass"))[0]


def _record(collection: Collection, value: bytes, books: bytes, identity: bytes, content: bytes) -> Record:
    said, line_break, vector = content.partition(b"\n")
    (tenant, record_id, scope), line, (updated, expires, previous, cached, epoch, fields, texts, body) = _loaded(
        b"[%b,%b,%b]" % (identity, books, said)
    )
    for name, decode in codec_of(collection).decoders.items():
        if name in fields:
            fields[name] = decode(fields[name])
    return Record(
        Key(tenant, record_id),
        scope,
        int(value[20:39]),
        known_moment(int(value[58:74], 16) - 2**63),
        known_moment(updated),
        None if expires is None else known_moment(expires),
        fields,
        body,
        texts,
        vector if line_break else None,
        int(value[39:58]),
        _ROLES[value[18]],
        line[0],
        _owed(line),
        previous,
        int(line[1]),
        _read_moment(line[2]),
        None if cached is None else known_moment(cached),
        epoch,
    )


def _mark(collection: Collection, value: bytes, books: bytes, identity: bytes, content: bytes) -> Mark:
    (tenant, record_id, scope), line = _loaded(identity), _loaded(books)
    return Mark(Key(tenant, record_id), scope, int(value[20:39]), line[0], _owed(line), _read_moment(line[3]))


def _tombstone(collection: Collection, value: bytes, books: bytes, identity: bytes, content: bytes) -> Tombstone:
    (tenant, record_id), line = _loaded(identity), _loaded(books)
    return Tombstone(Key(tenant, record_id), int(value[20:39]), _owed(line), _loaded(content) if content else {}, _read_moment(line[3]))


def _set_aside(collection: Collection, value: bytes, books: bytes, identity: bytes, content: bytes) -> Corrupt:
    tenant, record_id = _loaded(identity)
    return Corrupt(Key(tenant, record_id), str(_loaded(content)["problem"]))


_READERS: dict[int, Callable[[Collection, bytes, bytes, bytes, bytes], Stored]] = {
    ord("r"): _record,
    ord("m"): _mark,
    ord("t"): _tombstone,
    ord("c"): _set_aside,
}


def _owed(line: list[str]) -> tuple[Owed, ...]:
    return tuple([Owed(*_from_json(step)[0]) for step in line[5::2]])


def _read_moment(text: str) -> datetime | None:
    return known_moment(int(text)) if text else None


def content_size(value: bytes) -> int:
    """How many bytes a sound value's content takes."""
    return len(value) - HEAD - int(value[137:145]) - int(value[145:HEAD])


def is_set_aside(value: bytes) -> bool:
    """Whether this is the note in the place of a value that could not be read."""
    return value[17:18] == b"c"


def tenant_in(value: bytes) -> str | None:
    """The tenant that a damaged value seems to be of."""
    try:
        start = HEAD + int(value[137:145])
        return str(_loaded(value[start : start + int(value[145:HEAD])])[0])
    except (ValueError, TypeError, IndexError, KeyError):
        return None
