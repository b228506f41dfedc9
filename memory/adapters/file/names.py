"""Names of files and folders.

Different texts have different names, even if the disk ignores case or accents. No name
leads out of its folder.

Every byte except `a-z 0-9 _ -` is percent-encoded, including upper case. So no name of
a user contains a dot, and names with a dot belong to the store. Names of devices
(`con`, `nul`) have their first letter encoded. A name that is too long is truncated and
followed by `~` and its digest; the full name is in a file (`partition.json`, the
record).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from memory.ports.record import Key, Standing, Tombstone

UNSEEN = "unseen.d"
"""Folder beside a tenant's scopes, for tombstones of records never stored here.

Such tombstones have no scope.
"""
PARTITION = "partition.json"
SUFFIX, BACKUP = ".json", ".json.bak"
APART, APART_BACKUP = ".bytes", ".bytes.bak"
"""Suffixes of the files for bytes fields, beside the record's file."""

_LONGEST = 160  # leaves room for the suffixes within the 255 bytes of a name
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])")
_ENCODED = re.compile(r"(?:[a-z0-9_-]|%[0-9a-f]{2})+")
_CUT = re.compile(r"(?:[a-z0-9_-]|%[0-9a-f]{2})+~[0-9a-f]{32}")
_OURS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_EMPTY = "%"


def plain_bytes(text: str) -> bytes:
    """Encode any text as bytes, including unpaired surrogates."""
    return text.encode("utf-8", "surrogatepass")


@lru_cache(maxsize=16_384)
def encode_name(text: str) -> str:
    """Encode the text as a name in a folder."""
    raw = plain_bytes(text)
    pieces = [chr(b) if b in _PLAIN else f"%{b:02x}" for b in raw]
    if not pieces:
        return _EMPTY
    name = "".join(pieces)
    if _DEVICE.fullmatch(name):
        return f"%{raw[0]:02x}{name[1:]}"
    if len(name) <= _LONGEST:
        return name
    kept, room = [], _LONGEST - 33
    for piece in pieces:
        room -= len(piece)
        if room < 0:
            break
        kept.append(piece)
    return f"{''.join(kept)}~{blake2b(raw, digest_size=16).hexdigest()}"


def is_cut(name: str) -> bool:
    """Whether the name was truncated, so that the text cannot be decoded."""
    return "~" in name


def decode_name(name: str) -> str | None:
    """Return the text of a name; None if no text has this name or it is truncated."""
    if name == _EMPTY:
        return ""
    if not _ENCODED.fullmatch(name):
        return None
    try:
        text = re.sub(rb"%([0-9a-f]{2})", lambda m: bytes([int(m[1], 16)]), name.encode()).decode(
            "utf-8", "surrogatepass"
        )
    except UnicodeDecodeError:
        return None
    return text if encode_name(text) == name else None


def is_name(name: str) -> bool:
    """Whether some text has this name."""
    return _CUT.fullmatch(name) is not None or decode_name(name) is not None


def stem_of_bytes(name: str) -> str | None:
    """Return the stem of the record's file, given the name of a bytes file.

    The result is None for other names.
    """
    stem, _, rest = name.partition(".")
    field, _, ending = rest.partition(".")
    return stem if field and is_name(stem) and f".{ending}" in (APART, APART_BACKUP) else None


def is_id_of_ours(record_id: str) -> bool:
    return _OURS.fullmatch(record_id) is not None


@dataclass(frozen=True, slots=True)
class Table:
    """Folder of a collection's records in one partition."""

    tenant: str
    scope: str
    collection: str

    @property
    def parts(self) -> tuple[str, str, str]:
        return (self.tenant, self.scope, self.collection)


@dataclass(frozen=True, slots=True)
class Place:
    """Location of a key's file: its table, and its name without the suffix."""

    table: Table
    stem: str

    @property
    def file(self) -> str:
        return self.stem + SUFFIX

    @property
    def backup(self) -> str:
        return self.stem + BACKUP

    def bytes_of(self, field: str) -> str:
        """Name of the file of a separate bytes field."""
        return f"{self.stem}.{encode_name(field)}{APART}"

    def bytes_before(self, field: str) -> str:
        """Name of the file of a bytes field of the previous version."""
        return f"{self.stem}.{encode_name(field)}{APART_BACKUP}"

    def __str__(self) -> str:
        return "/".join((*self.table.parts, self.file))


def place_of(collection: str, standing: Standing) -> Place | None:
    """Return the file place of a record or mark; None for a tombstone.

    A tombstone has no scope. It stays in the file of its record.
    """
    if isinstance(standing, Tombstone):
        return None
    return place_in(collection, standing.key, encode_name(standing.scope))


def place_in(collection: str, key: Key, folder: str) -> Place:
    return Place(Table(encode_name(key.tenant), folder, collection), encode_name(key.id))
