"""Names: buckets, and the parts of keys. `lua/common.lua` puts keys together from the
same parts.

All keys of a bucket share a hash tag and so, on a cluster, a slot. Ids carry the digest
of their partition, whose first bits name the bucket: a record, its partition's
generation and its partition's indexes are together, and the id alone finds them.

    {prefix:bucket}:r:collection:tenant:id        a record, mark or tombstone, see `codec`
    {prefix:bucket}:t:collection:partition        sorted set: a partition's records by creation
    {prefix:bucket}:c:collection:partition        list: the ids that changed last in it, by which processes know whether what they keep is current
    {prefix:bucket}:a:collection                  sorted set: all records by id
    {prefix:bucket}:g:collection                  sorted set: marks and tombstones by id
    {prefix:bucket}:x:collection                  sorted set: records at home that expire, by moment
    {prefix:bucket}:u:collection:tier             sorted set: records at home or arriving in a tier, by creation or the last change, which is earlier
    {prefix:bucket}:u:collection                  sorted set: what could not be read
    {prefix:bucket}:d                             sorted set: what owes a step, arrives or may be discarded, of all collections, by moment
    {prefix:bucket}:p:partition                   hash: generation; room for what else is counted of a partition
    {prefix:bucket}:s:partition                   set: the collections in which the partition has records
    {prefix:bucket}:m:partition                   set: the keys of the partition's marks
    {prefix:bucket}:e                             sorted set: the names of the partitions that have records, by tenant
    {prefix:bucket}:i                             sorted set: the names of the partitions that have a generation, by tenant
    {prefix:bucket}:q:collection                  hash: what could not be read, in quarantine
    {prefix}:schema                               the version of this layout
    {prefix}:format                               the note of the library's format, see `memory.ports.formats`
    {prefix}:mark                                 a random text, whose absence tells that the data is gone

Tenants and partitions stand in keys as digests: no text of a user is ever part of a
key.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from memory.domain.ids import digest_of, partition_digest
from memory.ports.record import Key, Partition

SCHEMA = 5
BUCKETS = tuple(f"{n:02x}" for n in range(64))
"""A whole tenant is asked bucket by bucket; on a cluster, so many nodes at most share
the records.
"""
NOWHERE = "0" * 32


def _bytes(text: str) -> bytes:
    """Any text as bytes, also half a surrogate pair: such a name may be asked for."""
    return text.encode("utf-8", "surrogatepass")


@lru_cache(maxsize=4096)
def tenant_token(tenant: str) -> str:
    return blake2b(_bytes(tenant), digest_size=16).hexdigest()


@lru_cache(maxsize=16_384)
def partition_token(partition: Partition) -> str:
    tenant = _bytes(partition.tenant)
    return blake2b(b"%d:%b%b" % (len(tenant), tenant, _bytes(partition.scope)), digest_size=16).hexdigest()


def bucket_of(record_id: str) -> str:
    """The bucket an id belongs to: the first six bits of its partition's digest."""
    return BUCKETS[digest_of(record_id) >> 26]


@lru_cache(maxsize=16_384)
def home_bucket(partition: Partition) -> str:
    """The bucket of the partition and all ids made for it."""
    try:
        return BUCKETS[partition_digest(partition.tenant, partition.scope) >> 26]
    except UnicodeEncodeError:  # half a character: nothing stands there
        return BUCKETS[0]


@dataclass(frozen=True, slots=True)
class Address:
    """Where a key's record, mark or tombstone stands."""

    bucket: str
    collection: str
    tenant: str
    id: str

    @property
    def arguments(self) -> tuple[str, ...]:
        """As the scripts take it."""
        return (self.bucket, self.collection, self.tenant, self.id)


def address_of(collection: str, key: Key) -> Address:
    return Address(bucket_of(key.id), collection, tenant_token(key.tenant), key.id)


def hash_tag(prefix: str, bucket: str) -> str:
    return f"{{{prefix}:{bucket}}}"


def record_key(prefix: str, address: Address) -> str:
    return f"{hash_tag(prefix, address.bucket)}:r:{address.collection}:{address.tenant}:{address.id}"
