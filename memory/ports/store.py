"""The narrow waist: the one port that every backend implements (architecture, sentence
1).

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
    """How a store is. `epoch` names the run of the server: it changes when the server
    restarts and may have lost what it held.

    `quarantined` counts damaged records, of every tenant, that somebody has met by a
    read or a query, until they are deleted: what was moved out of the way for people to
    look at, or stands where it stood. One that was written over may be counted still,
    where its copy is kept.
    """

    ok: bool
    detail: str = ""
    version: str = ""
    epoch: str = ""
    facts: dict[str, JsonValue] = field(default_factory=dict)
    quarantined: int = 0


MOST_NAMED = 100
"""How many problems, and how many damaged records, an audit names."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What came of comparing what a store derives with the records it derives it from.

    `checked` is how many records were looked at; `problems` says what differed, a
    sentence each, with no text of any record. `damaged` names the records that cannot
    be read, each by collection, id and tenant: nothing makes them anew but a write in
    their place. Of each at most `MOST_NAMED`.
    """

    checked: int = 0
    problems: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()


class Store(Protocol):
    """Keeps records. Knows nothing of what they mean.

    Every method but `open` and `close` raises `NotOpen` before `open` and after
    `close`. Failures of the backend are raised as `StoreError` and its kinds, never as
    the driver's own. A call that was cancelled or timed out may have been applied. What
    a store hands out is never changed by it or by anyone later, and what it was handed
    it does not keep a reference to that a caller could change.
    """

    @property
    def name(self) -> str:
        """The store's name in messages. Carries no secret."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it can do; before `open` as claimed, after it as found."""
        ...

    @property
    def epoch(self) -> str:
        """The run of the server as last seen; constant for durable stores."""
        ...

    async def open(self, collections: Sequence[Collection]) -> None:
        """Connect and make ready for these collections: schema and indexes. Opening
        twice is a no-op. A failed open can be repeated.

        A collection may declare more fields, or indexes, than when its records were
        written: they have none of these. It may declare fewer, as an earlier release
        does beside a later one: what it does not declare stays with the records, until
        a put replaces them.
        """
        ...

    async def close(self) -> None:
        """Let go of what `open` took, waiting for calls under way. Closing twice, or
        what was never opened, is a no-op. It may be opened again.
        """
        ...

    async def check(self) -> Health:
        """Ask the backend whether it works. Does not raise for an unreachable backend:
        says so.
        """
        ...

    async def get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        """What stands under each key, in the order asked, whatever its role or expiry:
        one answer a key, None where nothing is.

        Sees every write acknowledged before the call.
        """
        ...

    async def apply(self, writes: Sequence[Write], *, together: bool = False) -> list[Outcome]:
        """Carry out the writes in order and say what became of each: one bad write
        never fails its batch.

        A later write of the batch sees the earlier ones. Where `atomic`, a crash keeps
        all of the call's applied writes or none. `together=True` (refused without
        `atomic`) keeps them only when every one applied: else nothing is kept and those
        that would have been applied are SKIPPED. More writes than `max_batch` are
        refused as `InvalidInput`.
        """
        ...

    async def query(self, query: Query) -> Page:
        """One page of what matches. See `Query`."""
        ...

    async def count(self, query: Query) -> Count:
        """How many records match, `limit`, `order` and `cursor` aside, and what they
        take.
        """
        ...

    def counted_bytes(self, collection: Collection, record: Record) -> int:
        """What `count` will tell of this record in bytes where it stands here, within a
        tenth. Nothing is asked.
        """
        ...

    async def search(self, search: Search) -> list[Hit]:
        """The best matches, best first, at most `limit`; ties by id ascending. See
        `Search`.
        """
        ...

    async def candidates(self, asked: Candidates) -> CandidateColumns:
        """What may answer a question, measured for whoever ranks it: see `Candidates`,
        `CandidateColumns`. Any store answers, whatever it has an index for.

        It may bring more than the best `limit` of a way where that costs it nothing,
        and nothing that the question does not let through.
        """
        ...

    async def delete_matching(
        self,
        query: Query,
        version: int,
        discard_at: datetime | None = None,
        carry: frozenset[str] = frozenset(),
    ) -> int:
        """Leave tombstones, each of version `max(stored + 1, version)`, for the records
        that match (`limit`, `order`, `cursor` aside).

        A tombstone goes on owing the steps that `carry` names; the others, whose data
        may be what the record said, are dropped.

        Returns how many there were. A corrupt record of the asked partitions matches
        whatever the filter: erasure must reach it.
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
        """What waits for maintenance in any collection of any tenant: see `DueReason`. Asked
        often, and most often there is nothing.

        `expired` names the collections whose records are due at home once they have
        expired before that moment. At most `limit` rows, from 1 to `MAX_LIMIT`, but for
        rows of several tenants under one id, which come together; what is due for two
        reasons is told for each. What stays as it is comes exactly once over the pages.
        Corrupt rows are left out. Needs `tenant_wide` and `filter`.
        """
        ...

    async def partitions(
        self, where: Tenant | Everywhere, *, prefix: str = "", limit: int = 1_000, cursor: str | None = None
    ) -> PartitionPage:
        """The partitions with a live record of any collection and role, readable or
        not, or a generation above 0, each once with its generation.

        A page at a time, ordered by tenant and scope; with `prefix` those whose scope
        begins so. `limit` is from 1 to `MAX_LIMIT`. Partitions that come and go
        meanwhile may be missed or named; all others are there. Needs `tenant_wide`.
        """
        ...

    # -- upkeep ------------------------------------------------------------------------

    async def audit(self, *, repair: bool = False) -> Audit:
        """Compare everything the store derives from its records (word indexes,
        statistics, registries, caches) with the records themselves.

        Derived data is never the only copy of anything. With `repair` what differs is
        made anew from the records, and the problems tell what was found before; without
        it nothing is changed but what any reading mends. A store that derives nothing
        checks nothing. It may take long; other calls go on beside it, and what they
        change meanwhile is no problem. Where `tenant_wide`, every damaged record is
        named, and met so: `check` counts it from then on.
        """
        ...

    async def vacuum(self) -> int:
        """Give back the room that deleted content takes, and overwrite what of it is
        still readable in files, as far as a client can ask for that.

        Returns how many bytes were given back, as near as the store can tell; 0 where
        the backend sees to it by itself.
        """
        ...

    async def idle_partitions(self, limit: int = 1_000) -> list[tuple[Partition, int]]:
        """Partitions of which something is kept, a generation or an entry in a
        registry, though nothing stands in them any more, at most `limit`.

        Nothing: no record and no mark of any collection; while tombstones of it are
        left a store may hold a partition back. Each comes with its generation. A store
        that keeps nothing of such partitions has none. One of very many partitions may
        look at some hundreds of them, and at the next ones when it is asked again.
        """
        ...

    async def forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        """Forget what is kept of these partitions, each where nothing stands in it and
        its generation is the one given; how many were forgotten.

        A forgotten partition begins anew at generation 0. Who calls this knows that no
        call from before the generation was raised can still arrive.
        """
        ...
