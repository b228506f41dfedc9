"""The store port: the only interface that every backend implements.

The engine uses stores only through it (see docs/architecture.md).

Clauses (`memory.ports.contract.clauses`): life.*, get.*, apply.*, count.*, erase.*,
search.*, due.*, upkeep.*, remote.*, full.*, and those of each capability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from memory.ports.candidates import CandidateColumns, Candidates
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.due import DuePage
from memory.ports.query import Count, Everywhere, Hit, Page, PartitionPage, Query, Search, Tenant
from memory.ports.record import JsonValue, Key, Partition, Record, Stored
from memory.ports.writes import Outcome, Write


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a store.

    `epoch` names the run of the server. It changes when the server restarts and may
    have lost data.

    `quarantined` counts damaged records of all tenants. A record counts once a read or
    a query has met it, and until it is deleted. It may have been moved aside for
    inspection, or may still be in its place. An overwritten record may still count
    while the store keeps its copy.
    """

    ok: bool
    detail: str = ""
    version: str = ""
    epoch: str = ""
    facts: dict[str, JsonValue] = field(default_factory=dict)
    quarantined: int = 0


MOST_NAMED = 100
"""The most problems, and the most damaged records, that an audit names."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of comparing a store's derived data with its records.

    `checked` is the number of records examined. `problems` describes each difference in
    one sentence, without text of any record. `damaged` names the unreadable records by
    collection, id and tenant. Only a new write in its place restores such a record.
    Each list has at most `MOST_NAMED` items.
    """

    checked: int = 0
    problems: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()


class Store(Protocol):
    """Keeps records, without knowing their meaning.

    Every method but `open` and `close` raises `NotOpen` before `open` and after
    `close`. Failures of the backend are raised as `StoreError` and its subclasses,
    never as the driver's own errors. A call that was cancelled or timed out may have
    been applied.

    Nothing changes an object after the store has returned it. The store keeps no
    reference to an argument that a caller could change.
    """

    @property
    def name(self) -> str:
        """The store's name in messages. It carries no secret."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """The store's capabilities: as claimed before `open`, as found after it."""
        ...

    @property
    def epoch(self) -> str:
        """The run of the server as last seen; constant for durable stores."""
        ...

    async def open(self, collections: Sequence[Collection]) -> None:
        """Connect, and prepare the schema and the indexes of these collections.

        Opening twice is a no-op. A failed open can be repeated.

        A collection may declare more fields or indexes than when its records were
        written. Those records have no value for the new fields. It may also declare
        fewer, as an earlier release does beside a later one. Undeclared fields stay
        with the records until a put replaces them. No call changes a collection that is
        not declared, and a partition with its records is not idle.
        """
        ...

    async def close(self) -> None:
        """Wait for the calls in progress and release the resources of `open`.

        Closing twice is a no-op, and so is closing a store that was never opened. A
        closed store may be opened again.
        """
        ...

    async def check(self) -> Health:
        """Ask the backend whether it works.

        An unreachable backend raises nothing: the returned `Health` reports it.
        """
        ...

    async def get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        """Return the stored item of each key, in the given order.

        The read sees every write that was acknowledged before the call. Role and expiry
        do not matter.

        Returns:
            One item for each key; None where nothing is stored.
        """
        ...

    async def apply(self, writes: Sequence[Write], *, together: bool = False) -> list[Outcome]:
        """Apply the writes in order and return an outcome for each.

        One bad write never fails its batch. A later write sees the earlier ones. With
        the capability `atomic`, a crash keeps all of the call's applied writes or none.

        Args:
            together: Keep the writes only if every one applies. Otherwise nothing is
                kept, and the writes that would have been applied are SKIPPED. Refused
                without `atomic`. With `grouped`, writes of one partition and collection
                are accepted.

        Raises:
            InvalidInput: There are more writes than `max_batch`.
        """
        ...

    async def query(self, query: Query) -> Page:
        """Return one page of the matching rows. See `Query`."""
        ...

    async def count(self, query: Query) -> Count:
        """Count the matching records and their bytes.

        `limit`, `order` and `cursor` of the query are ignored.
        """
        ...

    def counted_bytes(self, collection: Collection, record: Record) -> int:
        """Return the bytes that `count` would report for this record, within a tenth.

        It sends no request to the backend.
        """
        ...

    async def search(self, search: Search) -> list[Hit]:
        """Return at most `limit` matches, best first. See `Search`.

        Ties are ordered by id, ascending.
        """
        ...

    async def candidates(self, asked: Candidates) -> CandidateColumns:
        """Return candidates for a question, with the figures that ranking needs.

        See `Candidates` and `CandidateColumns`. Every store answers, with or without an
        index.

        The answer may hold more than the best `limit` of each way if that costs the
        store nothing. It never holds a record that the question excludes.
        """
        ...

    async def delete_matching(
        self,
        query: Query,
        version: int,
        discard_at: datetime | None = None,
        carry: frozenset[str] = frozenset(),
    ) -> int:
        """Replace the matching records by tombstones.

        Each tombstone has version `max(stored + 1, version)`. `limit`, `order` and
        `cursor` of the query are ignored. A record that is written meanwhile is judged
        as it is when it is replaced. A corrupt record of the given partitions matches
        any filter, because erasure must reach it.

        Args:
            carry: The steps that stay pending on the tombstone. The other steps are
                dropped, because their data may hold text of the record.

        Returns:
            The number of tombstones.
        """
        ...

    async def due(
        self,
        now: datetime,
        limit: int = 500,
        cursor: str | None = None,
        *,
        expired: Mapping[Collection, datetime] | None = None,
    ) -> DuePage:
        """Return the rows of any collection and tenant that await maintenance.

        See `DueReason`. This is called often, and most calls find nothing. A row that
        is due for two reasons is reported for each. A row that does not change appears
        exactly once over the pages. Corrupt rows are left out. Needs `tenant_wide` and
        `filter`.

        Args:
            limit: The most rows, from 1 to `MAX_LIMIT`. Rows of several tenants under
                one id come together and may exceed it.
            expired: The collections whose HOME records are due if they expired before
                the given moment.
        """
        ...

    async def partitions(
        self, where: Tenant | Everywhere, *, prefix: str = "", limit: int = 1_000, cursor: str | None = None
    ) -> PartitionPage:
        """Return the partitions with their generations, a page at a time.

        A partition is listed once if it has a live record or a generation above 0. The
        record may be of any collection and role, readable or not. The order is by
        tenant and scope. A partition that appears or disappears meanwhile may be missed
        or listed; all others are listed. Needs `tenant_wide`.

        Args:
            prefix: Only partitions whose scope begins with it.
            limit: From 1 to `MAX_LIMIT`.
        """
        ...

    # -- upkeep ------------------------------------------------------------------------

    async def audit(self, *, repair: bool = False) -> Audit:
        """Compare all derived data of the store with its records.

        Derived data are word indexes, statistics, registries and caches. They are never
        the only copy of anything. A store without derived data checks nothing. An audit
        may take long. Other calls continue meanwhile, and their changes are no
        problems.

        With `tenant_wide`, the audit names every damaged record. `check` counts these
        from then on.

        Args:
            repair: Rebuild differing data from the records; the problems then describe
                the state before. Without it, an audit changes nothing except repairs
                that any read makes.
        """
        ...

    async def vacuum(self) -> int:
        """Free the space of deleted content and overwrite its remains in files.

        It does this as far as a client can ask the backend for it.

        Returns:
            The freed bytes, as near as the store can tell; 0 if the backend frees space
                by itself.
        """
        ...

    async def idle_partitions(self, limit: int = 1_000) -> list[tuple[Partition, int]]:
        """Return at most `limit` empty partitions that still take space in the store.

        An empty partition has no record and no mark of any collection. The store keeps
        its generation or an entry in a registry. It may leave out a partition while
        tombstones of it are left. A store that keeps nothing of empty partitions
        returns none.

        A store with very many partitions may examine some hundreds of them in one call,
        and the next ones in the next call.

        Returns:
            Each partition with its generation.
        """
        ...

    async def forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        """Delete the store's remaining data of these empty partitions.

        A partition is skipped if it is no longer empty or its generation differs from
        the given one. A forgotten partition starts again at generation 0. Call this
        only when no call from before the generation was raised can still arrive.

        Returns:
            The number of forgotten partitions.
        """
        ...
