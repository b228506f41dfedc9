"""What a store can do and what a tier needs: one type for both (architecture, sentence
2).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Flags are off by default; what is not claimed is refused by name. Limits of None
    mean no limit of the store's own.

    As a need, a set flag must be claimed, and a limit must be at least as large.
    """

    durable: bool = False
    """An acknowledged write survives the death of the process and of the server."""
    shared: bool = False
    """Many processes may hold the same store open at once and see each other's
    acknowledged writes.
    """
    ttl: bool = False
    """The store itself forgets, some time after `expires_at` or `discard_at`, CACHED
    copies, marks and tombstones that owe nothing.

    Records in other roles it never forgets: an expired one may have kept versions,
    relations or replicas elsewhere, which its deletion takes along.
    """
    conditional: bool = False
    """`Absent`, `AtVersion` and `Newer` are decided by the store in one step, also
    against other clients.
    """
    atomic: bool = False
    """A call of `apply` is kept whole or not at all when it is cut off, and
    `together=True` is honoured.
    """
    filter: bool = False
    """Filters are applied by the store, not by the caller on what comes back."""
    order: bool = False
    """Queries may be ordered by declared and system fields."""
    tenant_wide: bool = False
    """A whole `Tenant`, and for maintenance `Everywhere`, can be asked."""
    lexical: bool = False
    """`Search` by `Words`."""
    semantic: bool = False
    """`Search` by `Near`."""
    tenant_statistics: bool = False
    """Ranking by words uses the asked partitions' own statistics: other tenants' data
    changes nothing (D65).
    """
    fenced: bool = False
    """Once a raised generation is acknowledged, and for as long as it is kept (see
    `durable`), no record of a lower one comes to stand any more, whoever dies or
    freezes in the middle of bringing it.

    Without it, a writer that dies between its write and its second look may leave one
    standing; an erasure is then repeated (`delete_matching` of what is of a lower
    generation) for as long as a call from before it may still arrive.
    """
    max_record_bytes: int | None = None
    """The largest record, in bytes of its content and of what it owes as JSON in UTF-8
    with the vector's bytes added.
    """
    max_batch: int | None = None
    """The most writes one `apply` takes."""
    max_vector_dims: int | None = None
    """The most dimensions a vector may have."""
    loss_window: timedelta | None = None
    """Where not `durable`: how much acknowledged work the server's death may cost; None
    means all of it.
    """

    def missing(self, need: Capabilities) -> list[str]:
        """The names of what `need` asks for and this does not offer, in declaration
        order; empty when it will do.
        """
        return [name for name in (*FLAGS, *LIMITS) if not _offers(getattr(self, name), getattr(need, name))]


HOME_NEEDS = Capabilities(conditional=True, filter=True, order=True, tenant_wide=True)
"""What a store must do to be the home of records, durability aside."""
CACHE_NEEDS = Capabilities(conditional=True, tenant_wide=True)
"""What a store must do to keep the copies that a short tier reads."""

FLAGS = tuple(f.name for f in fields(Capabilities) if f.type == "bool")
LIMITS = tuple(f.name for f in fields(Capabilities) if f.name.startswith("max_"))


def _offers(have: bool | int | None, need: bool | int | None) -> bool:
    if isinstance(need, bool):
        return bool(have) or not need
    return need is None or have is None or have >= need
