"""Ids: UUIDs of version 8 (RFC 9562) with a time, a partition digest and randomness.

- 48 bits: milliseconds since 1970.
- 12 bits (after the version): ten bits of the millisecond's microseconds, two random.
- 62 bits (after the variant): 32 bits of the partition's digest, 30 random.

An id alone shows which partition it belongs to. A derived id has a hash in place of
time and randomness, so the same source always gives the same id.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import TypeAlias

Randomness: TypeAlias = Callable[[int], int]
"""Returns a random integer of that many bits."""

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def new_id(tenant: str, scope: str, micros: int, random_bits: Randomness = secrets.randbits) -> str:
    """Return a new id for a record that is created now in this partition."""
    milliseconds, rest = divmod(micros, 1000)
    return _assemble(
        milliseconds & (2**48 - 1),
        rest << 2 | random_bits(2),
        partition_digest(tenant, scope),
        random_bits(30),
    )


def derived_id(tenant: str, scope: str, *source: str) -> str:
    """Return the id, in this partition, of a record that is derived from this source.

    The same source always gives the same id.
    """
    hashed = int.from_bytes(
        blake2b(
            "\x00".join((tenant, scope, *map(_with_length_prefix, source))).encode(), digest_size=12
        ).digest(),
        "big",
    )
    return _assemble(
        hashed >> 48, hashed >> 36 & 0xFFF, partition_digest(tenant, scope), hashed & (2**30 - 1)
    )


def keyed_id(tenant: str, scope: str, key: str) -> str:
    """Return the id of the record that is written under a key in this partition."""
    return derived_id(tenant, scope, "key", key)


def beside(record_id: str, *source: str) -> str:
    """Return the id of a record that is derived from another one, in its partition.

    The same source always gives the same id.
    """
    hashed = int.from_bytes(
        blake2b(
            "\x00".join((record_id, *map(_with_length_prefix, source))).encode(), digest_size=12
        ).digest(),
        "big",
    )
    return _assemble(hashed >> 48, hashed >> 36 & 0xFFF, digest_of(record_id), hashed & (2**30 - 1))


def is_id(text: object) -> bool:
    """Return whether the text has the form of the library's ids.

    No store has a record under any other text.
    """
    return isinstance(text, str) and _ID.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def partition_digest(tenant: str, scope: str) -> int:
    """Return the 32-bit digest of a partition, which its ids contain."""
    return int.from_bytes(blake2b(f"{tenant}\x00{scope}".encode(), digest_size=4).digest(), "big")


def digest_of(record_id: str) -> int:
    """Return the partition digest in an id."""
    return int(record_id[19:23] + record_id[24:], 16) >> 30 & (2**32 - 1)


def _with_length_prefix(part: str) -> str:
    return f"{len(part)}:{part}"


def _assemble(time: int, after_version: int, digest: int, random: int) -> str:
    bits = time << 80 | 8 << 76 | after_version << 64 | 2 << 62 | digest << 30 | random
    digits = f"{bits:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
