"""Names the engine needs: a point's id, a partition's keyword, and a number that sorts
as ids do.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from uuid import UUID

from memory.ports.record import Key, Partition


def point_id(*parts: str) -> str:
    """The UUID under which a point of this name is kept: a digest, so that any text is
    an id and two tenants' ids never meet.

    Also half of a surrogate pair: no point of such a name is ever written, and each
    write of one is refused by itself.
    """
    digest = bytearray(
        blake2b(
            "".join([f"{len(part)}:{part}" for part in parts]).encode("utf-8", "surrogatepass"),
            digest_size=16,
        ).digest()
    )
    digest[6] = digest[6] & 0x0F | 0x80  # version 8, RFC variant: a legal UUID wherever one is checked
    digest[8] = digest[8] & 0x3F | 0x80
    return str(UUID(bytes=bytes(digest)))


@lru_cache(maxsize=4096)
def record_point(collection: str, key: Key) -> str:
    return point_id("record", collection, key.tenant, key.id)


@lru_cache(maxsize=4096)
def generation_point(partition: Partition) -> str:
    return point_id("generation", partition.tenant, partition.scope)


FORMAT_POINT = point_id("format")
"""Where the note of the library's format stands, see `memory.ports.formats`."""


@lru_cache(maxsize=4096)
def partition_word(collection: str, partition: Partition) -> str:
    """The keyword that all live records of one partition in one collection share, and
    no others.

    The length says where the tenant ends. The text is given to the engine as it is:
    keywords compare by their bytes.
    """
    word = f"{collection}/{len(partition.tenant)}/{partition.tenant}/{partition.scope}"
    word.encode()  # half of a surrogate pair is no character: refused here, as everywhere
    return word


def rank(record_id: str) -> int:
    """A number below 2**53, which the engine compares exactly: of two ids the one that
    sorts first never has the higher one.

    It is an id's time, to 32 microseconds: 48 bits and, past the version, the first
    five that follow. Ids of one rank are told apart by reading them.
    """
    bits = UUID(record_id).int
    return bits >> 80 << 5 | bits >> 71 & 31
