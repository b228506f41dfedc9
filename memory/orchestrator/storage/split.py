"""Several stores in one tier.

The store of a record is chosen by properties that never change: tenant, scope kind and
collection.

The whole is a `Store` again, so higher layers see one store. A partition of one
collection is in one part only, and its conditions are decided there. A key does not
tell its scope. If scopes of a tenant are in different parts, the parts are asked which
of them holds the key. A tombstone for a key that no part holds is left in each. A
question about a tenant or about everything goes to every part, and the answers are
merged.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar

from memory.domain.errors import InvalidInput, NotOpen, StoreTimeout, Unsupported
from memory.domain.ids import is_id
from memory.domain.scope import ScopeKind
from memory.ports.base import is_group
from memory.ports.candidates import CandidateColumns, Candidates, concatenate
from memory.ports.capabilities import FLAGS, LIMITS, Capabilities
from memory.ports.collections import Collection
from memory.ports.concurrency import each_at_once
from memory.ports.due import DuePage, DueRow, cursor_at, place_of
from memory.ports.full_scan import follow
from memory.ports.merging import best_hits, merge_answers, with_sort_values, without_sort_values
from memory.ports.query import (
    MAX_LIMIT,
    Count,
    Everywhere,
    Hit,
    Page,
    PartitionPage,
    Partitions,
    Query,
    RowType,
    Search,
    Tenant,
    Where,
    encode_partition,
)
from memory.ports.query_validation import check_limit
from memory.ports.record import Corrupt, JsonValue, Key, Partition, Record, Stored, Tombstone
from memory.ports.store import MOST_NAMED, Audit, Health, Store
from memory.ports.writes import Delete, Newer, Outcome, Purge, Put, RaiseGeneration, Write

P = ParamSpec("P")
T = TypeVar("T")

_ALL = 10**9
"""More partitions than any store has."""
CLOSES_WITHIN = timedelta(minutes=1)
"""How long one store may take to close."""
CONVERSATION = "conversation"
"""Prefix of the scope of a session's conversation. It goes to the part that has the
session's entries.
"""
SCRATCHPAD = "scratchpad"
"""Prefix of the scope of a scratchpad. Each agent has one, and the agents of a tenant
share one.
"""


@dataclass(frozen=True, slots=True)
class Share:
    """The conditions under which a record goes to one store of a tier.

    All given conditions must hold; an empty one is no condition.
    """

    store: Store
    tenants: frozenset[str] = frozenset()
    scope_kinds: frozenset[ScopeKind] = frozenset()
    collections: frozenset[str] = frozenset()

    def may_take(self, tenant: str | None, collection: str) -> bool:
        """Return whether some scope of this tenant and collection goes there.

        A tenant of None stands for any tenant.
        """
        return (tenant is None or not self.tenants or tenant in self.tenants) and (
            not self.collections or collection in self.collections
        )

    def is_for_some(self, partition: Partition) -> bool:
        """Return whether some collection of this partition goes there."""
        kind = partition.scope.partition(":")[0]
        kind = ScopeKind.SESSION if kind == CONVERSATION else kind
        return (not self.tenants or partition.tenant in self.tenants) and (
            not self.scope_kinds or kind in self.scope_kinds
        )

    def is_for(self, partition: Partition, collection: str) -> bool:
        return self.is_for_some(partition) and (not self.collections or collection in self.collections)


def _to_its_end(
    call: Callable[Concatenate[SplitStore, P], Awaitable[T]],
) -> Callable[Concatenate[SplitStore, P], Coroutine[Any, Any, T]]:
    """Make closing wait until the call has ended.

    A call has several steps. If a part were closed between two of them, the call would
    be cut short.
    """

    @functools.wraps(call)
    async def waited_for(self: SplitStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._under_way():
            return await call(self, *args, **kwargs)

    return waited_for


class SplitStore:
    """One store made of several.

    A record goes to the first share that takes it, or to `rest` if none does.
    """

    def __init__(self, name: str, shares: Sequence[Share], rest: Store) -> None:
        self._name = name
        self._shares = (*shares, Share(rest))
        self._calls = 0
        self._all_over = asyncio.Event()
        self._closing = 0

    @property
    def name(self) -> str:
        return self._name

    @property
    def parts(self) -> tuple[Store, ...]:
        """The distinct stores of which it is made."""
        return tuple(dict.fromkeys(share.store for share in self._shares))

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities that every part has.

        It is never `atomic`, because a batch may touch several parts. It is `grouped`
        if every part keeps the writes of one partition together.
        """
        claims = [part.capabilities for part in self.parts]
        flags: dict[str, Any] = {name: all(getattr(c, name) for c in claims) for name in FLAGS}
        limits: dict[str, Any] = {
            name: min((v for c in claims if (v := getattr(c, name)) is not None), default=None)
            for name in LIMITS
        }
        grouped = all(c.groups for c in claims)
        return replace(
            Capabilities(**flags, **limits, loss_window=_widest(claims)), atomic=False, grouped=grouped
        )

    @property
    def epoch(self) -> str:
        return "/".join(part.epoch for part in self.parts)

    @property
    def data_loss(self) -> str:
        return "; ".join(filter(None, [getattr(part, "data_loss", "") for part in self.parts]))

    @property
    def reads_only(self) -> bool:
        return all(getattr(part, "reads_only", False) for part in self.parts)

    # -- life --------------------------------------------------------------------------

    async def open(self, collections: Sequence[Collection]) -> None:
        await open_all(self.parts, collections)

    async def close(self) -> None:
        self._closing += 1
        try:
            while self._calls:
                self._all_over.clear()
                await self._all_over.wait()
            await close_all(self.parts)
        finally:
            self._closing -= 1

    @contextlib.contextmanager
    def _under_way(self) -> Iterator[None]:
        """Count a call for which closing waits. While closing waits, no call begins."""
        if self._closing:
            raise NotOpen(f"store '{self.name}'")
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._all_over.set()

    @_to_its_end
    async def check(self) -> Health:
        """Return the combined health: it is ok if every part is."""
        healths = {part.name: await part.check() for part in self.parts}
        facts: dict[str, JsonValue] = {
            name: {"ok": h.ok, "detail": h.detail, "version": h.version, **h.facts}
            for name, h in healths.items()
        }
        bad = [f"{name}: {h.detail}" for name, h in healths.items() if not h.ok]
        version, in_quarantine = (
            ", ".join(h.version for h in healths.values()),
            sum(h.quarantined for h in healths.values()),
        )
        return Health(not bad, "; ".join(bad), version, self.epoch, facts, in_quarantine)

    # -- reading -----------------------------------------------------------------------

    @_to_its_end
    async def get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        if not keys:
            return await self.parts[0].get(collection, keys)  # the part checks whether it is open
        standing = await self._fetch_stored(collection, keys)
        return [authoritative_copy(found.values()) if (found := standing.get(key)) else None for key in keys]

    async def _fetch_stored(
        self, collection: Collection, keys: Sequence[Key]
    ) -> dict[Key, dict[Store, Stored]]:
        """Return the rows under each key, by part.

        A key has several rows only if a tombstone was left in each part.
        """
        asked: dict[Store, list[Key]] = {}
        for key in dict.fromkeys(keys):
            for part in self._parts_of(key.tenant, collection):
                asked.setdefault(part, []).append(key)
        found: dict[Key, dict[Store, Stored]] = {}
        answers = await each_at_once(part.get(collection, there) for part, there in asked.items())
        for (part, there), rows in zip(asked.items(), answers, strict=True):
            for key, stored in zip(there, rows, strict=True):
                if stored is not None:
                    found.setdefault(key, {})[part] = stored
        return found

    @_to_its_end
    async def query(self, query: Query) -> Page:
        return await self._page(query)

    async def _page(self, query: Query) -> Page:
        asked = self._where_by_part(query.collection, query.where)
        if len(asked) == 1:
            ((part, where),) = asked
            return await part.query(replace(query, where=where))
        asking = with_sort_values(query)
        pages = await each_at_once(part.query(replace(asking, where=where)) for part, where in asked)
        page = without_sort_values(merge_answers(pages, query), query)
        if query.types == {RowType.RECORD}:
            return page
        # Several parts may have a tombstone, and one of them a record newer than it.
        standing = await self._fetch_stored(query.collection, [f.key for f in page.records])
        found = {
            f.key: f for f in page.records if f == authoritative_copy(standing.get(f.key, {None: f}).values())
        }
        return replace(page, records=tuple(found.values()))

    @_to_its_end
    async def count(self, query: Query) -> Count:
        asked = self._where_by_part(query.collection, query.where)
        counts = await each_at_once(part.count(replace(query, where=where)) for part, where in asked)
        records = sum(c.records for c in counts)
        if RowType.TOMBSTONE in query.types and len(asked) > 1:  # each part may have one
            records = 0
            async for page in follow(self._page, replace(query, order=(), limit=MAX_LIMIT, cursor=None)):
                records += len(page.records)
        return Count(records, sum(c.bytes for c in counts))

    def counted_bytes(self, collection: Collection, record: Record) -> int:
        return self.holder(record.partition, collection).counted_bytes(collection, record)

    @_to_its_end
    async def search(self, search: Search) -> list[Hit]:
        """Return the best hits of all parts.

        Each part scores words by its own statistics.
        """
        found = await each_at_once(
            part.search(replace(search, where=where))
            for part, where in self._where_by_part(search.collection, search.where)
        )
        return best_hits((hit for hits in found for hit in hits), search.limit)

    @_to_its_end
    async def candidates(self, asked: Candidates) -> CandidateColumns:
        """Return the candidates of all parts."""
        parts = self._where_by_part(asked.collection, asked.where)
        return concatenate(
            await each_at_once(part.candidates(replace(asked, where=where)) for part, where in parts)
        )

    @_to_its_end
    async def partitions(
        self, where: Tenant | Everywhere, *, prefix: str = "", limit: int = 1_000, cursor: str | None = None
    ) -> PartitionPage:
        """Return the partitions of all parts, each once.

        A partition in several parts has the highest of its generations.
        """
        pages = await each_at_once(
            part.partitions(where, prefix=prefix, limit=limit, cursor=cursor) for part in self.parts
        )
        found: dict[Partition, int] = {}
        for partition, generation in (one for page in pages for one in page.partitions):
            found[partition] = max(generation, found.get(partition, 0))
        first = tuple(sorted(found.items())[:limit])
        more = len(found) > limit or any(page.cursor is not None for page in pages)
        return PartitionPage(first, encode_partition(first[-1][0]) if more else None)

    # -- writing -----------------------------------------------------------------------

    @_to_its_end
    async def delete_matching(
        self,
        query: Query,
        version: int,
        discard_at: datetime | None = None,
        carry: frozenset[str] = frozenset(),
    ) -> int:
        asked = self._where_by_part(query.collection, query.where)
        return sum(
            await each_at_once(
                part.delete_matching(replace(query, where=where), version, discard_at, carry)
                for part, where in asked
            )
        )

    @_to_its_end
    async def apply(self, writes: Sequence[Write], *, together: bool = False) -> list[Outcome]:
        if together and not is_group(writes):
            raise Unsupported("atomic", store=self.name)
        if not writes:
            return await self.parts[0].apply(writes)
        limit = self.capabilities.max_batch
        if limit is not None and len(writes) > limit:
            raise InvalidInput(
                "writes", f"store '{self.name}' takes at most {limit} writes at once, not {len(writes)}"
            )
        places, behind = await self._places(writes)
        if together:
            places = self._one_place(writes, places, behind)
        answers = await self._apply_to_parts(writes, places, together=together)
        outcomes = [
            await self._one(write, [found[part] for part in there], there)
            for write, there, found in zip(writes, places, answers, strict=True)
        ]
        late = [
            (_over(writes[i], stored), part)
            for i, left in behind.items()
            if outcomes[i].applied
            for part, stored in left.items()
        ]
        await self._apply_to_parts([write for write, _ in late], [(part,) for _, part in late])
        return outcomes

    def _one_place(
        self, writes: Sequence[Write], places: Sequence[tuple[Store, ...]], found: Container[int]
    ) -> list[tuple[Store, ...]]:
        """Return the part that takes all writes of one partition and collection.

        A key that no part holds goes along.

        Raises:
            Unsupported: Several parts hold the keys, or that part keeps no groups.
        """
        known = {
            places[number][0]
            for number, write in enumerate(writes)
            if not isinstance(write, RaiseGeneration)
            and (
                isinstance(write, Put)
                or number in found
                or len(self._parts_of(write.key.tenant, write.collection)) == 1
            )
        } or {places[0][0]}
        (part, *others) = known
        if others or not part.capabilities.groups:
            raise Unsupported("grouped", store=self.name)
        return [(part,)] * len(places)

    async def _apply_to_parts(
        self, writes: Sequence[Write], places: Sequence[Sequence[Store]], *, together: bool = False
    ) -> list[dict[Store, Outcome]]:
        """Return the answers of all parts to which a write goes."""
        batches = {
            part: numbers
            for part in self.parts
            if (numbers := [i for i, there in enumerate(places) if part in there])
        }
        calls = [
            part.apply([writes[i] for i in numbers], together=together) for part, numbers in batches.items()
        ]
        answers: list[dict[Store, Outcome]] = [{} for _ in writes]
        for (part, numbers), outcomes in zip(batches.items(), await each_at_once(calls), strict=True):
            for i, outcome in zip(numbers, outcomes, strict=True):
                answers[i][part] = outcome
        return answers

    async def _places(
        self, writes: Sequence[Write]
    ) -> tuple[list[tuple[Store, ...]], dict[int, dict[Store, Stored]]]:
        """Return the parts to which each write goes.

        The second result holds the rows under the same key in further parts. Those
        parts follow after the first have applied the write.
        """
        behind: dict[int, dict[Store, Stored]] = {}
        places: list[tuple[Store, ...]] = []
        lost: dict[Collection, list[int]] = {}
        born: dict[tuple[str, Key], tuple[Store, ...]] = {}
        for number, write in enumerate(writes):
            if isinstance(write, RaiseGeneration):
                places.append(self._parts_of_partition(write.partition))
            elif isinstance(write, Put):
                places.append((self.holder(write.record.partition, write.collection),))
                born[write.collection.name, write.key] = places[-1]
            else:
                places.append(
                    born.get((write.collection.name, write.key))
                    or self._parts_of(write.key.tenant, write.collection)
                )
                if len(places[-1]) > 1:
                    lost.setdefault(write.collection, []).append(number)
        for collection, numbers in lost.items():
            behind |= await self._find(collection, writes, numbers, places)
        return places, behind

    async def _find(
        self,
        collection: Collection,
        writes: Sequence[Write],
        numbers: Sequence[int],
        places: list[tuple[Store, ...]],
    ) -> dict[int, dict[Store, Stored]]:
        """Find the parts of the keys whose scope is unknown.

        A write to a key that no part holds goes to one part, but a tombstone for it
        goes to each. A write to a key that several parts hold goes to the part with the
        authoritative row; the other parts follow.
        """
        behind: dict[int, dict[Store, Stored]] = {}
        keys = {
            number: write.key
            for number in numbers
            if not isinstance(write := writes[number], RaiseGeneration)
        }
        standing = await self._fetch_stored(collection, [key for key in keys.values() if is_id(key.id)])
        for number, key in keys.items():
            if found := standing.get(key):
                counts = max(found, key=lambda part: _rank(found[part]))
                places[number] = (counts,)
                behind[number] = {part: stored for part, stored in found.items() if part is not counts}
            elif not (
                isinstance(write := writes[number], Delete)
                and isinstance(write.when, Newer)
                and is_id(key.id)
            ):
                places[number] = places[number][:1]
        return behind

    async def _one(self, write: Write, outcomes: Sequence[Outcome], places: Sequence[Store]) -> Outcome:
        """Return one outcome for those of several parts: the first.

        Generations are made equal in all parts.
        """
        if isinstance(write, RaiseGeneration) and len({o.number for o in outcomes}) > 1:
            highest = max(o.number or 0 for o in outcomes)
            equal = [(await part.apply([RaiseGeneration(write.partition, highest)]))[0] for part in places]
            return equal[0]
        return outcomes[0]

    @_to_its_end
    async def due(
        self,
        now: datetime,
        limit: int = 500,
        cursor: str | None = None,
        *,
        expired: Mapping[Collection, datetime] | None = None,
    ) -> DuePage:
        """Return due rows, part after part.

        Of a key with rows in several parts, only the authoritative row is returned.
        """
        check_limit(limit)
        rows: list[DueRow] = []
        number, inner = place_of(cursor, len(self.parts))
        while True:
            part = self.parts[number]
            found = await part.due(now, limit - len(rows), inner, expired=expired)
            rows += await self._authoritative_rows(part, found.rows)
            number, inner = (number, found.cursor) if found.cursor is not None else (number + 1, None)
            if number == len(self.parts) or len(rows) >= limit:
                return DuePage(tuple(rows), cursor_at(number, inner, len(self.parts)))

    async def _authoritative_rows(self, part: Store, rows: Sequence[DueRow]) -> list[DueRow]:
        """Return the rows of this part that are authoritative.

        A row in several parts belongs to the first of them.
        """
        standing = {
            c: await self._fetch_stored(c, [r.key for r in rows if r.collection is c])
            for c in dict.fromkeys(r.collection for r in rows)
        }
        kept: list[DueRow] = []
        for row in rows:
            found = standing[row.collection].get(row.key, {})
            counts = max(found, key=lambda held: _rank(found[held]), default=part)
            kept += [row] if counts is part else []
        return kept

    # -- upkeep ------------------------------------------------------------------------

    @_to_its_end
    async def audit(self, *, repair: bool = False) -> Audit:
        audits = await each_at_once(part.audit(repair=repair) for part in self.parts)
        problems, damaged = (
            [said for a in audits for said in getattr(a, of)] for of in ("problems", "damaged")
        )
        return Audit(
            sum(a.checked for a in audits), tuple(problems[:MOST_NAMED]), tuple(damaged[:MOST_NAMED])
        )

    @_to_its_end
    async def vacuum(self) -> int:
        return sum(await each_at_once(part.vacuum() for part in self.parts))

    @_to_its_end
    async def idle_partitions(self, limit: int = 1_000) -> list[tuple[Partition, int]]:
        """Return the partitions that are idle in every part that has their generation.

        A partition that is idle in one part may be in use in another.
        """
        asked = limit
        while True:
            found, all_told = await self._idle(asked)
            if all_told or len(found) >= limit:
                return list(found)[:limit]
            asked *= 2

    @_to_its_end
    async def forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        standing, _ = await self._idle(_ALL)
        together: dict[tuple[Store, ...], list[tuple[Partition, int]]] = {}
        for one in dict.fromkeys(idle):
            if one in standing:
                together.setdefault(standing[one], []).append(one)
        calls = [[part.forget_partitions(some) for part in parts] for parts, some in together.items()]
        return sum([min(await each_at_once(some)) for some in calls])

    async def _idle(self, limit: int) -> tuple[dict[tuple[Partition, int], tuple[Store, ...]], bool]:
        """Return the idle partitions among the first `limit` of each part.

        Each comes with the parts that keep a row of it. The second result tells whether
        those were all. A generation is raised in every part where the partition may
        have records. Only some parts may know a generation of zero.
        """
        lists = await each_at_once(part.idle_partitions(limit) for part in self.parts)
        listed: dict[tuple[Partition, int], tuple[Store, ...]] = {}
        for part, found in zip(self.parts, lists, strict=True):
            for one in found:
                listed[one] = (*listed.get(one, ()), part)
        idle = {
            one: parts
            for one, parts in listed.items()
            if one[1] == 0 or set(self._parts_of_partition(one[0])) <= set(parts)
        }
        return idle, all(len(found) < limit for found in lists)

    # -- who holds what ----------------------------------------------------------------

    def holder(self, partition: Partition, collection: Collection) -> Store:
        """Return the part that holds this partition's records of the collection."""
        return next(share.store for share in self._shares if share.is_for(partition, collection.name))

    def _parts_of_partition(self, partition: Partition) -> tuple[Store, ...]:
        """Return the parts that may have records of a partition in some collection."""
        reached = []
        for share in self._shares:
            if share.is_for_some(partition):
                reached.append(share.store)
                if not share.collections:
                    break
        return tuple(dict.fromkeys(reached))

    def _parts_of(self, tenant: str | None, collection: Collection) -> tuple[Store, ...]:
        """Return the parts that may have records of this tenant and collection.

        The scope is unknown. A tenant of None stands for any tenant.
        """
        reached = []
        for share in self._shares:
            if share.may_take(tenant, collection.name):
                reached.append(share.store)
                if not share.scope_kinds and (tenant is not None or not share.tenants):
                    break
        return tuple(dict.fromkeys(reached))

    def _where_by_part(self, collection: Collection, where: Where) -> list[tuple[Store, Where]]:
        """Return the parts to ask, each with its share of `where`."""
        if isinstance(where, Partitions):
            apart: dict[Store, list[Partition]] = {}
            for partition in where.partitions:
                apart.setdefault(self.holder(partition, collection), []).append(partition)
            return [(part, Partitions(tuple(partitions))) for part, partitions in apart.items()]
        tenant = None if isinstance(where, Everywhere) else where.tenant
        return [(part, where) for part in self._parts_of(tenant, collection)]


def _widest(claims: Iterable[Capabilities]) -> timedelta | None:
    """Return the widest loss window of the parts.

    None means that everything may be lost, or that nothing can be.
    """
    windows = [c.loss_window for c in claims if not c.durable]
    return None if None in windows else max((w for w in windows if w is not None), default=None)


async def open_all(stores: Sequence[Store], collections: Sequence[Collection]) -> None:
    """Open every store. On failure, close those that were opened."""
    opened: list[Store] = []
    try:
        for store in stores:
            await store.open(collections)
            opened.append(store)
    except BaseException:
        with contextlib.suppress(Exception):  # the caller needs the error of the open
            await close_all(opened)
        raise


async def close_all(stores: Sequence[Store]) -> None:
    """Close every store, even if one fails or hangs. Then raise the first failure."""
    failures: list[Exception] = []
    for store in stores:
        within = asyncio.timeout(CLOSES_WITHIN.total_seconds())
        try:
            async with within:
                await store.close()
        except TimeoutError as error:
            failures.append(_not_closed(store) if within.expired() else error)
        except Exception as error:  # noqa: BLE001 - raised below
            failures.append(error)
    if failures:
        raise failures[0]


def _not_closed(store: Store) -> StoreTimeout:
    seconds = f"{CLOSES_WITHIN.total_seconds():g} s"
    return StoreTimeout(
        store.name,
        f"it did not close within {seconds}, and was left. What it acknowledged is stored. Its connections"
        " may stay open until the process ends",
    )


def authoritative_copy(stored: Iterable[Stored]) -> Stored:
    """Return the row that counts among the rows under one key in several parts.

    A record wins over tombstones, since those are left in every part, also beside the
    record.
    """
    return max(stored, key=_rank)


def _over(write: Write, stored: Stored) -> Write:
    """Return the write for a part that has an older row.

    A purge of the authoritative row purges an older tombstone too.
    """
    return (
        replace(write, at=stored.version, role_is=None)
        if isinstance(write, Purge) and isinstance(stored, Tombstone)
        else write
    )


def _rank(stored: Stored) -> tuple[bool, int]:
    return (not isinstance(stored, Tombstone), 0 if isinstance(stored, Corrupt) else stored.version)
