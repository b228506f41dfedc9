"""Names the engine needs: a point's id, a partition's keyword, and a number that sorts as ids do."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate
from uuid import UUID

from memory.ports.record import Key, Partition


def point_id(*parts: str) -> str:
    """The UUID under which a point of this name is kept: a digest, so that any text is an id and two tenants' ids never meet.

    Also half of a surrogate pair: no point of such a name is ever written, and each write of one is refused by itself.
    """
    digest = bytearray(blake2b("".join([f"{len(part)}:{part}" for part in parts]).encode("utf-8", "surrogatepass"), digest_size=16).digest())
    digest[6] = digest[6] & 0x0F | 0x80  # version 8, RFC variant: a legal UUID wherever one is checked
    digest[8] = digest[8] & 0x3F | 0x80
    return str(UUID(bytes=bytes(digest)))


@lru_cache(maxsize=4096)
def record_point(collection: str, key: Key) -> str:
    return point_id("record", collection, key.tenant, key.id)


@lru_cache(maxsize=4096)
def generation_point(partition: Partition) -> str:
    return point_id("generation", partition.tenant, partition.scope)


@lru_cache(maxsize=4096)
def partition_word(collection: str, partition: Partition) -> str:
    """The keyword that all live records of one partition in one collection share, and no others.

    The length says where the tenant ends. The text is given to the engine as it is: keywords compare by their bytes.
    """
    word = f"{collection}/{len(partition.tenant)}/{partition.tenant}/{partition.scope}"
    word.encode()  # half of a surrogate pair is no character: refused here, as everywhere
    return word


# -- a number that sorts as ids do ------------------------------------------------------------------------------------
# The engine sorts by numbers, ids are text. An id's rank is where it lies between the smallest and the largest text, in 2**53 steps, which is
# what the engine compares exactly. Each character narrows the interval to its share; those of UUIDs have large shares, so that an id's first
# twelve characters count, forty bits of its time. Ids of one rank are told apart by reading them.

_COMMON = b"-0123456789abcdef"
_SHARES = [128 if byte in _COMMON else 1 for byte in range(256)]
_STARTS = [0, *accumulate([1, *_SHARES])]  # the first share is the end of the text, which sorts before any continuation
_WHOLE = _STARTS[-1]
_STEPS = 2**53
_READ = 24


@lru_cache(maxsize=8192)
def rank(text: str) -> int:
    """A number below 2**53: of two texts the one that sorts first, by code point, never has the higher one."""
    low, width = 0, _STEPS << 64
    for byte in text.encode("utf-8", "surrogatepass")[:_READ]:
        low += width * _STARTS[byte + 1] // _WHOLE
        width = width * _SHARES[byte] // _WHOLE
    return low >> 64
