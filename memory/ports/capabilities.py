"""The capabilities of stores and the needs of tiers: one type for both.

docs/backends.md has the table of all backends.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Capabilities:
    """A store's capabilities, or a tier's needs.

    Flags are off by default. A call that needs an unclaimed flag is refused by the
    flag's name. A limit of None means that the store sets no limit.

    As a need, a set flag must be claimed, and a limit must be at least as large.
    """

    durable: bool = False
    """An acknowledged write survives the death of the process and of the server."""
    shared: bool = False
    """Processes may share the open store and see each other's acknowledged writes."""
    ttl: bool = False
    """The store itself deletes expired CACHED copies, marks and tombstones.

    It deletes them some time after `expires_at` or `discard_at`, if no step of theirs
    is pending. It never deletes records in other roles. An expired record may have kept
    versions, relations or replicas elsewhere, and its deletion removes these too.
    """
    conditional: bool = False
    """Conditions other than `Always` are decided atomically between clients."""
    atomic: bool = False
    """An interrupted call of `apply` is kept whole or not at all; `together` works."""
    grouped: bool = False
    """`together` works for the writes of one partition and collection.

    `atomic` implies it. A store that is not atomic as a whole may be so here: one slot
    of a cluster, one part of a split store.
    """
    filter: bool = False
    """The store itself applies filters; the caller does not filter the results."""
    order: bool = False
    """Queries may be ordered by declared and system fields."""
    tenant_wide: bool = False
    """Questions may cover a whole `Tenant`, and for maintenance `Everywhere`."""
    lexical: bool = False
    """The store answers a `Search` by `Words`."""
    semantic: bool = False
    """The store answers a `Search` by `Near`."""
    tenant_statistics: bool = False
    """Ranking by words uses only the statistics of the searched partitions.

    Other tenants' data change nothing.
    """
    fenced: bool = False
    """No record of a lower generation appears after a raised one is acknowledged.

    This holds for as long as the generation is kept (see `durable`), even if a writer
    dies or freezes in the middle of a write.

    Without it, a writer that dies between its write and its second check may leave such
    a record. An erasure is then repeated: `delete_matching` deletes records of a lower
    generation. It is repeated for as long as a call from before the erasure may still
    arrive.
    """
    max_record_bytes: int | None = None
    """The largest record in bytes.

    It counts the content and the pending steps as JSON in UTF-8, and adds the vector's
    bytes.
    """
    max_batch: int | None = None
    """The most writes that one `apply` takes."""
    max_vector_dims: int | None = None
    """The most dimensions a vector may have."""
    loss_window: timedelta | None = None
    """How much acknowledged work the server's death may cost, if not `durable`.

    None means all of it.
    """

    @property
    def groups(self) -> bool:
        """Whether `together` works for the writes of one partition and collection."""
        return self.atomic or self.grouped

    def missing(self, need: Capabilities) -> list[str]:
        """Return the names of the needs that are not offered, in declaration order."""
        return [name for name in (*FLAGS, *LIMITS) if not _offers(getattr(self, name), getattr(need, name))]


HOME_NEEDS = Capabilities(conditional=True, filter=True, order=True, tenant_wide=True)
"""The needs of a tier that is home to records, apart from durability."""
CACHE_NEEDS = Capabilities(conditional=True, tenant_wide=True)
"""The needs of a store for the copies that a short tier reads."""

FLAGS = tuple(f.name for f in fields(Capabilities) if f.type == "bool")
LIMITS = tuple(f.name for f in fields(Capabilities) if f.name.startswith("max_"))


def _offers(have: bool | int | None, need: bool | int | None) -> bool:
    if isinstance(need, bool):
        return bool(have) or not need
    return need is None or have is None or have >= need
