"""Names of buckets and keys. `lua/common.lua` builds keys from the same parts.

All keys of a bucket share a hash tag and so, on a cluster, a slot. Ids contain the
digest of their partition, whose first bits name the bucket. So the id alone locates a
record, its partition's generation and its partition's indexes, all in one bucket.

    {prefix:bucket}:r:collection:tenant:id        a record, mark or tombstone, see `codec`
    {prefix:bucket}:t:collection:partition        sorted set: a partition's records by creation
    {prefix:bucket}:o:collection:partition:field  sorted set: a partition's records by an ordered text
    {prefix:bucket}:c:collection:partition        list: the ids that changed last in it; processes use it to refresh their caches
    {prefix:bucket}:a:collection                  sorted set: all records by id
    {prefix:bucket}:g:collection                  sorted set: marks and tombstones by id
    {prefix:bucket}:x:collection                  sorted set: home records that expire, by time
    {prefix:bucket}:u:collection:tier             sorted set: home or arriving records of a tier, by creation or last change, whichever is earlier
    {prefix:bucket}:u:collection                  sorted set: unreadable records
    {prefix:bucket}:d                             sorted set: rows with a pending step, arriving or discardable ones, of all collections, by time
    {prefix:bucket}:p:partition                   hash: generation; room for other counters of a partition
    {prefix:bucket}:s:partition                   set: the collections in which the partition has records
    {prefix:bucket}:m:partition                   set: the keys of the partition's marks
    {prefix:bucket}:e                             sorted set: the names of the partitions that have records, by tenant
    {prefix:bucket}:i                             sorted set: the names of the partitions that have a generation, by tenant
    {prefix:bucket}:q:collection                  hash: unreadable values in quarantine
    {prefix}:schema                               the version of this layout
    {prefix}:format                               the note of the library's format, see `memory.ports.formats`
    {prefix}:mark                                 a random text; if it is missing, the data is gone

Keys contain digests of tenants and partitions, and never a user's text. Members of the
index by a text begin with that text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from memory.domain.ids import digest_of, partition_digest
from memory.ports.record import Key, Partition

SCHEMA = 5
BUCKETS = tuple(f"{n:02x}" for n in range(64))
"""Buckets. A query for a whole tenant asks each of them.

On a cluster, at most this many nodes share the records.
"""
NOWHERE = "0" * 32


def _bytes(text: str) -> bytes:
    """Encode any text, even with an unpaired surrogate: a query may name one."""
    return text.encode("utf-8", "surrogatepass")


@lru_cache(maxsize=4096)
def tenant_token(tenant: str) -> str:
    return blake2b(_bytes(tenant), digest_size=16).hexdigest()


@lru_cache(maxsize=16_384)
def partition_token(partition: Partition) -> str:
    tenant = _bytes(partition.tenant)
    return blake2b(b"%d:%b%b" % (len(tenant), tenant, _bytes(partition.scope)), digest_size=16).hexdigest()


def bucket_of(record_id: str) -> str:
    """Return the bucket of an id: the first six bits of its partition's digest."""
    return BUCKETS[digest_of(record_id) >> 26]


@lru_cache(maxsize=16_384)
def home_bucket(partition: Partition) -> str:
    """Return the bucket of a partition and of all ids made for it."""
    try:
        return BUCKETS[partition_digest(partition.tenant, partition.scope) >> 26]
    except UnicodeEncodeError:  # an unpaired surrogate; nothing is stored there
        return BUCKETS[0]


@dataclass(frozen=True, slots=True)
class Address:
    """Location of a key's record, mark or tombstone."""

    bucket: str
    collection: str
    tenant: str
    id: str

    @property
    def arguments(self) -> tuple[str, ...]:
        """The address as arguments of scripts."""
        return (self.bucket, self.collection, self.tenant, self.id)


def address_of(collection: str, key: Key) -> Address:
    return Address(bucket_of(key.id), collection, tenant_token(key.tenant), key.id)


def hash_tag(prefix: str, bucket: str) -> str:
    return f"{{{prefix}:{bucket}}}"


def record_key(prefix: str, address: Address) -> str:
    return f"{hash_tag(prefix, address.bucket)}:r:{address.collection}:{address.tenant}:{address.id}"
