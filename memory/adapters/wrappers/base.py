"""Base class of wrappers: forwards every method of a store through one hook.

A wrapper overrides the hook and adds only its own behaviour.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from memory.ports.candidates import CandidateColumns, Candidates
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.due import DuePage
from memory.ports.query import Count, Everywhere, Hit, Page, PartitionPage, Query, Search, Tenant
from memory.ports.record import Key, Partition, Record, Stored
from memory.ports.store import Audit, Health, Store
from memory.ports.writes import Outcome, Write

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a store's method.

    `collections` names the collections that it concerns. `writes` holds the writes of
    an `apply`.
    """

    method: str
    collections: tuple[str, ...] = ()
    writes: tuple[Write, ...] = ()
    together: bool = False


class Wrapper:
    """Store that forwards every call to another store through `_call`.

    Its name, capabilities and epoch are those of the wrapped store.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    async def _call(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        """Make the call. Each call of `work` runs it once."""
        return await work()

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    @property
    def epoch(self) -> str:
        return self.inner.epoch

    @property
    def data_loss(self) -> str:
        return str(getattr(self.inner, "data_loss", ""))

    @property
    def reads_only(self) -> bool:
        return bool(getattr(self.inner, "reads_only", False))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    # -- life --------------------------------------------------------------------------

    async def open(self, collections: Sequence[Collection]) -> None:
        await self._call(
            Call("open", tuple(c.name for c in collections)), lambda: self.inner.open(collections)
        )

    async def close(self) -> None:
        await self._call(Call("close"), self.inner.close)

    async def check(self) -> Health:
        return await self._call(Call("check"), self.inner.check)

    # -- work --------------------------------------------------------------------------

    async def get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        return await self._call(Call("get", (collection.name,)), lambda: self.inner.get(collection, keys))

    async def apply(self, writes: Sequence[Write], *, together: bool = False) -> list[Outcome]:
        return await self._call(
            Call("apply", _collections(writes), tuple(writes), together),
            lambda: self.inner.apply(writes, together=together),
        )

    async def query(self, query: Query) -> Page:
        return await self._call(Call("query", (query.collection.name,)), lambda: self.inner.query(query))

    async def count(self, query: Query) -> Count:
        return await self._call(Call("count", (query.collection.name,)), lambda: self.inner.count(query))

    def counted_bytes(self, collection: Collection, record: Record) -> int:
        return self.inner.counted_bytes(collection, record)

    async def search(self, search: Search) -> list[Hit]:
        return await self._call(Call("search", (search.collection.name,)), lambda: self.inner.search(search))

    async def candidates(self, asked: Candidates) -> CandidateColumns:
        return await self._call(
            Call("candidates", (asked.collection.name,)), lambda: self.inner.candidates(asked)
        )

    async def delete_matching(
        self,
        query: Query,
        version: int,
        discard_at: datetime | None = None,
        carry: frozenset[str] = frozenset(),
    ) -> int:
        call = Call("delete_matching", (query.collection.name,))
        return await self._call(call, lambda: self.inner.delete_matching(query, version, discard_at, carry))

    async def due(
        self,
        now: datetime,
        limit: int = 500,
        cursor: str | None = None,
        *,
        expired: Mapping[Collection, datetime] | None = None,
    ) -> DuePage:
        return await self._call(Call("due"), lambda: self.inner.due(now, limit, cursor, expired=expired))

    # -- upkeep ------------------------------------------------------------------------

    async def audit(self, *, repair: bool = False) -> Audit:
        return await self._call(Call("audit"), lambda: self.inner.audit(repair=repair))

    async def vacuum(self) -> int:
        return await self._call(Call("vacuum"), self.inner.vacuum)

    async def partitions(
        self, where: Tenant | Everywhere, *, prefix: str = "", limit: int = 1_000, cursor: str | None = None
    ) -> PartitionPage:
        return await self._call(
            Call("partitions"),
            lambda: self.inner.partitions(where, prefix=prefix, limit=limit, cursor=cursor),
        )

    async def idle_partitions(self, limit: int = 1_000) -> list[tuple[Partition, int]]:
        return await self._call(Call("idle_partitions"), lambda: self.inner.idle_partitions(limit))

    async def forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        return await self._call(Call("forget_partitions"), lambda: self.inner.forget_partitions(idle))


def _collections(writes: Sequence[Any]) -> tuple[str, ...]:
    """Return the distinct names of the collections that the writes concern."""
    named = (getattr(write, "collection", None) for write in writes)
    return tuple(dict.fromkeys(collection.name for collection in named if collection is not None))
