"""Locates documents: the one place that turns a scope into the home of its documents.

Their home is tier `mid`, or tier `short` for the scopes that a setting names. All
documents of a scope have one home, so a group of changes stays atomic. The documents of
the library itself, such as API keys and audit records, are always in `mid`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from memory.ports.query import Condition, Not, Or, Partitions, StartsWith, Tenant, Under, Where
from memory.ports.record import Partition
from memory.ports.store import Store

if TYPE_CHECKING:
    from memory.orchestrator.storage.topology import Topology

DocumentPlace: TypeAlias = tuple[Store, Where, Condition | None]
"""A store, and what to ask of it. See `DocumentHomes.places`."""
LIBRARY = "~"
"""Begins the tenants in which the library keeps documents of its own."""


class DocumentHomes:
    """The homes of documents in one topology.

    Args:
        short: The texts with which scopes begin whose documents are in tier `short`.
    """

    def __init__(self, topology: Topology, short: Sequence[str] = ()) -> None:
        self._topology = topology
        self.short = tuple(short)

    def tier(self, partition: Partition) -> str:
        """Return the tier that has the documents of a partition."""
        is_short = self.short and partition.scope.startswith(self.short)
        return "short" if is_short and not partition.tenant.startswith(LIBRARY) else "mid"

    def of(self, partition: Partition) -> Store:
        """Return the store that has the documents of a partition."""
        return self._topology.home(self.tier(partition))

    @property
    def stores(self) -> tuple[Store, ...]:
        """The distinct stores that have documents."""
        archive = self._topology.archive
        return tuple(dict.fromkeys((archive, self._topology.home("short")))) if self.short else (archive,)

    def places(self, where: Where) -> list[DocumentPlace]:
        """Return the stores that have documents there, each with what to ask of it.

        The condition leaves out documents that have their home elsewhere.
        """
        archive, short = self._topology.archive, self._topology.home("short")
        if not self.short or short is archive:
            return [(archive, where, None)]
        if isinstance(where, Partitions):
            apart: dict[Store, list[Partition]] = {}
            for partition in where.partitions:
                apart.setdefault(self.of(partition), []).append(partition)
            return [(store, Partitions(tuple(some)), None) for store, some in apart.items()]
        if isinstance(where, Tenant | Under) and where.tenant.startswith(LIBRARY):
            return [(archive, where, None)]
        if isinstance(where, Under):
            texts = (*where.prefixes, *where.scopes)
            if all(text.startswith(self.short) for text in texts):
                return [(short, where, None)]
            if not any(one.startswith(text) or text.startswith(one) for text in texts for one in self.short):
                return [(archive, where, None)]
        return [(archive, where, Not(self.is_short)), (short, where, self.is_short)]

    @property
    def is_short(self) -> Condition:
        """The condition of scopes whose documents are in tier `short`."""
        return Or(tuple(StartsWith("scope", prefix) for prefix in self.short))
