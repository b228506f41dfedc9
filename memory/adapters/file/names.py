"""What things are called on disk. No two names meet, also where upper and lower case or
accents are one, and none leads out of its folder.

Every byte but `a-z 0-9 _ -` is percent-encoded, upper case too: so no name of a user's
holds a dot, and names with one are the store's own. Names of devices (`con`, `nul`)
have their first letter encoded. A name too long for a folder is cut, and its digest
follows after a `~`: then the whole name stands inside (`partition.json`, the record).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from memory.ports.record import Key, Standing, Tombstone

UNSEEN = "unseen.d"
"""The folder, beside a tenant's scopes, of tombstones of what was never here: they name
no scope.
"""
PARTITION = "partition.json"
SUFFIX, BACKUP = ".json", ".json.bak"
APART, APART_BACKUP = ".bytes", ".bytes.bak"
"""Of a field's bytes that lie in a file of their own, beside the record's."""

_LONGEST = 160  # leaves room for the suffixes within the 255 bytes of a name
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])")
_ENCODED = re.compile(r"(?:[a-z0-9_-]|%[0-9a-f]{2})+")
_CUT = re.compile(r"(?:[a-z0-9_-]|%[0-9a-f]{2})+~[0-9a-f]{32}")
_OURS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_EMPTY = "%"


def plain_bytes(text: str) -> bytes:
    """Any text as bytes, also half a surrogate pair."""
    return text.encode("utf-8", "surrogatepass")


@lru_cache(maxsize=16_384)
def encode_name(text: str) -> str:
    """The text as a name in a folder."""
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
    """Whether the name was too long, so that only its beginning can be read."""
    return "~" in name


def decode_name(name: str) -> str | None:
    """What was encoded to this name; None for a name that no text is encoded to, and
    for one that was cut.
    """
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
    """Whether some text is encoded to this name."""
    return _CUT.fullmatch(name) is not None or decode_name(name) is not None


def stem_of_bytes(name: str) -> str | None:
    """Of a file of a field's bytes the stem of its record's file; None where the name
    is none that such files have.
    """
    stem, _, rest = name.partition(".")
    field, _, ending = rest.partition(".")
    return stem if field and is_name(stem) and f".{ending}" in (APART, APART_BACKUP) else None


def is_id_of_ours(record_id: str) -> bool:
    return _OURS.fullmatch(record_id) is not None


@dataclass(frozen=True, slots=True)
class Table:
    """The folder of one collection's records in one partition."""

    tenant: str
    scope: str
    collection: str

    @property
    def parts(self) -> tuple[str, str, str]:
        return (self.tenant, self.scope, self.collection)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the file of a key is: its table, and its name there without the suffix."""

    table: Table
    stem: str

    @property
    def file(self) -> str:
        return self.stem + SUFFIX

    @property
    def backup(self) -> str:
        return self.stem + BACKUP

    def bytes_of(self, field: str) -> str:
        """The file of a field's bytes, where they are not in the record's."""
        return f"{self.stem}.{encode_name(field)}{APART}"

    def bytes_before(self, field: str) -> str:
        """Those of the version before."""
        return f"{self.stem}.{encode_name(field)}{APART_BACKUP}"

    def __str__(self) -> str:
        return "/".join((*self.table.parts, self.file))


def place_of(collection: str, standing: Standing) -> Place | None:
    """Where this belongs; None for a tombstone, which names no scope: it stays where
    what it stands for was.
    """
    if isinstance(standing, Tombstone):
        return None
    return place_in(collection, standing.key, encode_name(standing.scope))


def place_in(collection: str, key: Key, folder: str) -> Place:
    return Place(Table(encode_name(key.tenant), folder, collection), encode_name(key.id))
