"""Where things are: buckets, and the parts of keys. `lua/common.lua` puts keys together from the same parts.

All keys of a bucket share a hash tag and so, on a cluster, a slot. A partition belongs to the bucket that its digest names, and an id made
by this library carries that digest: a record, its partition's generation and its partition's index are together, and the id alone
finds them. Any other id has the bucket its own digest names; a partition knows in which buckets such ids put records of its own.

    {prefix:bucket}:r:collection:tenant:id        a record, mark or tombstone, see `packing`
    {prefix:bucket}:t:collection:partition        sorted set: a partition's records by creation
    {prefix:bucket}:a:collection                  sorted set: all records by id
    {prefix:bucket}:g:collection                  sorted set: marks and tombstones by id
    {prefix:bucket}:o:collection                  sorted set: what owes a step, by id
    {prefix:bucket}:n:collection:tenant           set: the tenant's partitions that have records here
    {prefix:bucket}:p:partition                   hash: generation, other buckets with records of the partition
    {prefix:bucket}:m:partition                   set: the keys of the partition's marks
    {prefix:bucket}:e                             hash: the names of the partitions that have such a hash
    {prefix:bucket}:q:collection                  hash: what could not be read, set aside
    {prefix}:schema                               the version of this layout
    {prefix}:collections                          set: the names of all collections

Tenants and partitions stand in keys as digests, foreign ids in hexadecimal: no text of a user is ever part of a key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from memory.ports.record import Key, Partition

SCHEMA = 2
BUCKETS = tuple(f"{n:02x}" for n in range(64))
"""A whole tenant is asked bucket by bucket; on a cluster, so many nodes at most share the records."""
NOWHERE = "0" * 32

_OURS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_PLAIN = re.compile(rb"[0-9A-Za-z_-]{1,64}")
_IN_PLAIN = ord("p")


def plain_bytes(text: str) -> bytes:
    """Any text as bytes, also half a surrogate pair: different texts differ, and sort as code points do."""
    return text.encode("utf-8", "surrogatepass")


@lru_cache(maxsize=4096)
def tenant_token(tenant: str) -> str:
    return blake2b(plain_bytes(tenant), digest_size=16).hexdigest()


@lru_cache(maxsize=16_384)
def partition_token(partition: Partition) -> str:
    tenant = plain_bytes(partition.tenant)
    return blake2b(b"%d:%b%b" % (len(tenant), tenant, plain_bytes(partition.scope)), digest_size=16).hexdigest()


@lru_cache(maxsize=16_384)
def home_bucket(partition: Partition) -> str:
    """The partition's own bucket: the first six of the 32 bits that its ids carry."""
    digest = blake2b(plain_bytes(f"{partition.tenant}\x00{partition.scope}"), digest_size=4).digest()
    return BUCKETS[digest[0] >> 2]


def bucket_of(record_id: str) -> str:
    """The bucket an id belongs to."""
    if _OURS.fullmatch(record_id):
        return BUCKETS[int(record_id[19:23], 16) >> 8 & 0x3F]
    return BUCKETS[blake2b(plain_bytes(record_id), digest_size=1).digest()[0] >> 2]


def sortable(record_id: str) -> bytes:
    """An id as indexes have it, in the order of ids: without NUL inside, then NUL and how it stands in a key: p(lain) or in h(exadecimal)."""
    raw = plain_bytes(record_id)
    if _PLAIN.fullmatch(raw):
        return raw + b"\x00p"
    return start_of(record_id) + b"h"


def start_of(record_id: str) -> bytes:
    """What `sortable` begins with: everything before it is a smaller id's."""
    return plain_bytes(record_id).replace(b"\x01", b"\x01\x02").replace(b"\x00", b"\x01\x01") + b"\x00"


def id_of(sorted_id: bytes) -> str:
    """The id that `sortable` wrote."""
    raw = sorted_id[:-2]
    if b"\x01" in raw:
        raw = raw.replace(b"\x01\x01", b"\x00").replace(b"\x01\x02", b"\x01")
    return raw.decode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class Place:
    """The one place where a key's record, mark or tombstone stands."""

    bucket: str
    collection: str
    tenant: str
    id: bytes

    @property
    def arguments(self) -> tuple[str | bytes, ...]:
        """As the scripts take it."""
        return (self.bucket, self.collection, self.tenant, self.id)


def place_of(collection: str, key: Key) -> Place:
    return Place(bucket_of(key.id), collection, tenant_token(key.tenant), sortable(key.id))


def tagged(prefix: str, bucket: str) -> str:
    return f"{{{prefix}:{bucket}}}"


def record_key(prefix: str, place: Place) -> bytes:
    plain = place.id[:-2]
    token = plain if place.id[-1] == _IN_PLAIN else b"~" + plain.hex().encode()
    return f"{tagged(prefix, place.bucket)}:r:{place.collection}:{place.tenant}:".encode() + token
