"""In-memory store: the executable specification of `memory.ports`.

Its coroutines never suspend. Every call happens in one step, so a seeded simulation is
deterministic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import ClassVar

from memory.adapters.in_memory.frozen import frozen_record, maybe_in_utc
from memory.adapters.in_memory.ranking import by_words
from memory.adapters.in_memory.state import State
from memory.adapters.in_memory.writing import carry_out
from memory.ports.base import BaseStore, content_bytes
from memory.ports.candidate_scan import head_fields, measure_heads, neighbours, place_of
from memory.ports.candidates import CandidateColumns, Candidates, Statistics, none_of
from memory.ports.capabilities import Capabilities
from memory.ports.clock import Clock, system_clock
from memory.ports.collections import Collection
from memory.ports.due import DuePage, due_by_queries
from memory.ports.heads import head_of
from memory.ports.query import Count, Everywhere, Hit, JsonPath, Near, Page, Query, RowType, Search, Tenant
from memory.ports.query_evaluation import condition, first_partitions, page_of
from memory.ports.record import Key, Mark, Partition, Record, Role, Standing, Stored, Tombstone
from memory.ports.store import Health
from memory.ports.text import count_words
from memory.ports.vector_scan import best, by_nearness
from memory.ports.write_decision import carried_steps
from memory.ports.writes import Outcome, Status, Write

_KINDS: dict[type[Standing], RowType] = {
    Record: RowType.RECORD,
    Mark: RowType.MARK,
    Tombstone: RowType.TOMBSTONE,
}


class InMemoryStore(BaseStore):
    """Keeps records in the memory of the process.

    The records live as long as `state`: they survive `close` and are there after the
    next `open`.

    Args:
        capabilities: Replaces the claimed capabilities, for tests.
        state: The data. Stores that share it act as clients of one "server".
        clock: Tells when a record has expired. It is read only if `ttl` is claimed.
    """

    answers_under: ClassVar[bool] = True
    claims: ClassVar[Capabilities] = Capabilities(
        conditional=True,
        atomic=True,
        grouped=True,
        filter=True,
        order=True,
        tenant_wide=True,
        lexical=True,
        semantic=True,
        tenant_statistics=True,
        fenced=True,
    )

    def __init__(
        self,
        name: str = "memory",
        *,
        capabilities: Capabilities | None = None,
        state: State | None = None,
        clock: Clock = system_clock,
    ) -> None:
        super().__init__(name)
        if capabilities is not None:
            self._capabilities = capabilities
        self.state = State() if state is None else state
        self._clock = clock

    @property
    def epoch(self) -> str:
        return "" if self.capabilities.durable else str(self.state.runs)

    def restart(self, keep: bool) -> None:
        """Restart the "server", with or without its data.

        Every store on this state continues and sees a new epoch.
        """
        self.state.restart(keep)

    # -- life --------------------------------------------------------------------------

    async def _open(self, collections: Sequence[Collection]) -> None:
        """Do nothing: a collection exists as soon as it has a record."""

    async def _close(self) -> None:
        """Do nothing: there are no connections."""

    async def _check(self) -> Health:
        return Health(ok=True, detail="in memory", epoch=self.epoch, quarantined=self.state.damages)

    # -- work --------------------------------------------------------------------------

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        self._forget()
        return [self.state.fetch_visible(collection.name, key) for key in keys]

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        self._forget()
        self.state.begin()
        try:
            outcomes = [carry_out(self.state, write) for write in writes]
        except BaseException:
            self.state.roll_back()
            raise
        if together and not all(o.applied for o in outcomes):
            self.state.roll_back()
            return [Outcome(Status.SKIPPED) if o.applied else o for o in outcomes]
        self.state.commit()
        return outcomes

    async def _query(self, query: Query) -> Page:
        matching, corrupt = self._find_matches(query)
        found, cursor = page_of(matching, query)
        return Page(tuple(found), cursor, tuple(corrupt))

    def counted_bytes(self, collection: Collection, record: Record) -> int:
        return content_bytes(frozen_record(record))

    def _reads_json(self, part: JsonPath) -> bool:
        return True

    async def _count(self, query: Query) -> Count:
        matching, _ = self._find_matches(query)
        return Count(len(matching), sum(content_bytes(s) for s in matching if isinstance(s, Record)))

    async def _search(self, search: Search) -> list[Hit]:
        self._forget()
        name, lets_through = search.collection.name, condition(search.filter)
        records = [
            r
            for r in self.state.live(name, search.where)
            if r.role in search.roles and not self.state.is_damaged(name, r.key)
        ]
        if isinstance(search.by, Near):
            found = by_nearness(search.by.vector, [r for r in records if lets_through(r)])
        else:  # Filtered-out records still count for how rare a word is.
            weighed = by_words(search.by.text, search.collection, records)
            found = [(r, score) for r, score in weighed if lets_through(r)]
        return [
            Hit(head_of(search.collection, r, search.select), score) for r, score in best(found, search.limit)
        ]

    async def _candidates(self, asked: Candidates) -> CandidateColumns:
        self._forget()
        name, lets_through = asked.collection.name, condition(asked.filter)
        records = [
            r
            for r in self.state.live(name, asked.where)
            if r.role in asked.roles and not self.state.is_damaged(name, r.key)
        ]
        there = {
            r.key.id: head_of(asked.collection, r, head_fields(asked)) for r in records if lets_through(r)
        }
        ids = {
            r.key.id
            for r, _ in best(
                [(r, s) for r, s in by_words(asked.text, asked.collection, records) if r.key.id in there],
                asked.limit,
            )
        }
        if asked.near is not None:
            ids |= {
                head.key.id for head, _ in best(by_nearness(asked.near, list(there.values())), asked.limit)
            }
        ids |= there.keys() & set(asked.among)
        if asked.around is not None:
            beside = neighbours([there[i] for i in ids], asked.around)
            ids |= {i for i, head in there.items() if place_of(head, asked.around) in beside}
        counted = [
            count_words(
                [(t, asked.collection.weights[part]) for part, t in r.texts.items()], frozenset(asked.counted)
            )
            for r in records
        ]
        containing = {stem: sum(1 for found, _ in counted if stem in found) for stem in asked.counted}
        statistics = Statistics(len(records), sum(length for _, length in counted), containing)
        return await measure_heads(
            asked,
            [head for i, head in there.items() if i in ids],
            statistics if asked.statistics else none_of(asked),
        )

    async def _due(
        self, now: datetime, limit: int, cursor: str | None, expired: Mapping[Collection, datetime]
    ) -> DuePage:
        """Collect due records; collections in which nothing is due are not queried."""
        collections = tuple(self._collections.values())
        idle = {
            c.name
            for c in collections
            if not any(_waits(s, now, expired.get(c)) for s in self.state.everything(c.name))
        }
        return await due_by_queries(self.query, collections, now, limit, cursor, expired, idle)

    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        matching, corrupt = self._find_matches(query)
        keys = [s.key for s in matching if isinstance(s, Record)] + corrupt
        for key in keys:
            stored = self.state.fetch_stored(query.collection.name, key)
            over = max(stored.version + 1, version) if stored else version
            owed = carried_steps(stored.owed, carry) if stored and key not in corrupt else ()
            self.state.place(
                query.collection.name, key, Tombstone(key, over, owed, discard_at=maybe_in_utc(discard_at))
            )
        return len(keys)

    async def _partitions(
        self, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int
    ) -> list[tuple[Partition, int]]:
        self._forget()
        return first_partitions(self.state.partitions(), where, prefix, after, limit)

    async def _idle_partitions(self, limit: int) -> list[tuple[Partition, int]]:
        self._forget()
        return list(islice(self.state.idle(), limit))

    async def _forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        self._forget()
        standing = dict(self.state.idle())
        forgotten = [
            partition for partition, generation in dict(idle).items() if standing.get(partition) == generation
        ]
        for partition in forgotten:
            self.state.forget_partition(partition)
        return len(forgotten)

    def _find_matches(self, query: Query) -> tuple[list[Standing], list[Key]]:
        """Return the matches, unordered, and the keys of corrupt records.

        A corrupt record in the queried partitions matches every filter.
        """
        self._forget()
        matching: list[Standing] = []
        corrupt: list[Key] = []
        asked: list[Standing] = []
        if RowType.RECORD in query.types:
            asked.extend(self.state.live(query.collection.name, query.where))
        if isinstance(query.where, Everywhere) and query.types != {RowType.RECORD}:
            asked.extend(
                s
                for s in self.state.everything(query.collection.name)
                if not isinstance(s, Record) and _KINDS[type(s)] in query.types
            )
        lets_through = condition(query.filter)
        for standing in asked:
            if self.state.is_damaged(query.collection.name, standing.key):
                corrupt.append(standing.key)
            elif isinstance(standing, Record) and standing.role not in query.roles:
                continue
            elif lets_through(standing):
                matching.append(standing)
        return matching, corrupt

    def _forget(self) -> None:
        if self.capabilities.ttl:
            self.state.forget(self._clock())

    def _translate(self, error: Exception) -> Exception | None:
        """Return None: there are no driver errors to translate."""
        return None


def _waits(standing: Standing, now: datetime, expired: datetime | None) -> bool:
    """Whether `due` may report this slot."""
    if standing.owed:
        return True
    if isinstance(standing, Record):
        return standing.role is Role.ARRIVING or (
            expired is not None and standing.expires_at is not None and standing.expires_at < expired
        )
    return standing.discard_at is not None and standing.discard_at < now
