"""Names for the engine: point ids, partition keywords, and sortable numbers."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from uuid import UUID

from memory.ports.record import Key, Partition


def point_id(*parts: str) -> str:
    """Return the UUID of a point: a digest of its name.

    So any text can be an id, and ids of two tenants never collide. Unpaired surrogates
    are allowed: such points are never written, and each write of one is refused
    separately.
    """
    digest = bytearray(
        blake2b(
            "".join([f"{len(part)}:{part}" for part in parts]).encode("utf-8", "surrogatepass"),
            digest_size=16,
        ).digest()
    )
    digest[6] = digest[6] & 0x0F | 0x80  # version 8, RFC variant: a valid UUID everywhere
    digest[8] = digest[8] & 0x3F | 0x80
    return str(UUID(bytes=bytes(digest)))


@lru_cache(maxsize=4096)
def record_point(collection: str, key: Key) -> str:
    return point_id("record", collection, key.tenant, key.id)


@lru_cache(maxsize=4096)
def generation_point(partition: Partition) -> str:
    return point_id("generation", partition.tenant, partition.scope)


FORMAT_POINT = point_id("format")
"""Point of the note of the library's format; see `memory.ports.formats`."""


@lru_cache(maxsize=4096)
def partition_word(collection: str, partition: Partition) -> str:
    """Return the keyword of all live records of a partition in a collection.

    No other points have it. The length marks the end of the tenant. The text is not
    encoded, because keywords compare by their bytes.
    """
    word = f"{collection}/{len(partition.tenant)}/{partition.tenant}/{partition.scope}"
    word.encode()  # an unpaired surrogate raises here
    return word


_PATH = "path:"
"""The beginning of the scopes that have subtrees."""
DEEPEST = 16
"""The most labels of a subtree with a keyword."""


def ancestor_words(collection: str, partition: Partition) -> list[str]:
    """Return the keywords of the subtrees that a partition is in.

    They are those of a path and of the paths above it, of at most `DEEPEST` labels.
    Other scopes have none.
    """
    tenant, scope = partition.tenant, partition.scope
    ends = [at for at, char in enumerate(scope, 1) if char == "/"] if scope.startswith(_PATH) else []
    return [partition_word(collection, Partition(tenant, scope[:end])) for end in ends[:DEEPEST]]


def is_ancestor(prefix: str) -> bool:
    """Return whether every partition with this prefix has its keyword."""
    return prefix.startswith(_PATH) and prefix.count("/") <= DEEPEST


def rank(record_id: str) -> int:
    """Return a number below 2**53 that sorts like the id.

    The engine compares it exactly. Of two ids, the smaller one never has the larger
    number. It is the id's time with a resolution of 32 microseconds: 48 bits, and five
    bits after the version. Ids of equal rank must be compared themselves.
    """
    bits = UUID(record_id).int
    return bits >> 80 << 5 | bits >> 71 & 31
