"""The base class of adapters.

It checks arguments against the capabilities, translates the driver's errors, and calls
the adapter. An adapter subclasses `BaseStore`, sets `claims` to one literal, and
implements `_open`, `_close`, `_check`, `_get`, `_apply`, `_query`, `_count`, `_search`,
`_delete_matching` and `_translate`.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, TypeGuard, TypeVar

from memory.domain.errors import (
    ConfigError,
    InvalidInput,
    MemoryTiersError,
    NotOpen,
    StoreUnavailable,
    Unsupported,
)
from memory.domain.ids import digest_of, is_id
from memory.ports.candidate_scan import count_through, gather, measure_heads
from memory.ports.candidates import CandidateColumns, Candidates, Statistics, none_of
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.due import DuePage, due_by_queries
from memory.ports.fork_guard import ForkGuard
from memory.ports.formats import FormatNote, bring_up_to_date
from memory.ports.full_scan import follow
from memory.ports.heads import head_of
from memory.ports.query import (
    Count,
    Everywhere,
    Hit,
    JsonPath,
    Near,
    Page,
    PartitionPage,
    Query,
    RowType,
    Search,
    Tenant,
    Under,
    Where,
    Words,
    decode_partition,
    encode_partition,
    has_json,
    widen,
)
from memory.ports.query_validation import (
    check_candidates,
    check_limit,
    check_order,
    check_prefix,
    check_select,
    check_under,
    prepare_filter,
)
from memory.ports.record import JsonValue, Key, Partition, Record, Role, Stored
from memory.ports.record_validation import id_problem, vector_problem, write_problem
from memory.ports.rows import row_of, size_of
from memory.ports.store import MOST_NAMED, Audit, Health
from memory.ports.subtrees import (
    candidates_of_groups,
    count_groups,
    delete_groups,
    query_groups,
    search_groups,
)
from memory.ports.writes import Always, Outcome, Put, RaiseGeneration, Status, Write

AUDITED_AT_ONCE = 500
MOST_PREFIXES, MOST_SCOPES = 64, 1_000
"""The most prefixes and scopes of one question that an adapter receives.

A question for more is asked for groups of partitions.
"""

T = TypeVar("T")
Question = TypeVar("Question", Query, Search, Candidates)


class LoginRefused(ConfigError):
    """The server of a store refuses the user or the password.

    While the store is open this is an outage: the password was changed at the server.
    Then callers get `StoreUnavailable`.
    """

    def __init__(self, store: str, problem: str) -> None:
        super().__init__(f"store '{store}': {problem}")
        self.problem = problem


class BaseStore(ABC):
    """The public methods of a store; `memory.ports.store.Store` documents them."""

    claims: ClassVar[Capabilities]
    """The most that the adapter can do, readable without its driver."""

    notes_format: ClassVar[bool] = False
    """Whether the adapter stores the format note; see `memory.ports.formats`.

    Such an adapter implements `_read_format` and `_swap_format`. Its `_open` passes the
    note that it found to `_take_format` before it changes anything.
    """

    answers_under: ClassVar[bool] = False
    """Whether the adapter receives questions whose place is `Under`.

    Otherwise it is asked for the partitions that exist there, some at a time. See
    `memory.ports.subtrees`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._capabilities = self.claims
        self._collections: dict[str, Collection] = {}
        self._opened = False
        self.json_paths: Mapping[str, frozenset[tuple[str, ...]]] = {}
        """Paths in bodies that callers filter by, by collection. Set it before `open`.

        A store with indexes on expressions has one for each path.
        """
        self._opening = asyncio.Lock()
        self._calls_under_way = 0
        """Calls in progress; `close` waits for them."""
        self._at_rest: asyncio.Future[None] | None = None
        self._format: str | None = None
        self._forks = ForkGuard(self)

    @property
    def name(self) -> str:
        return self._name

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def epoch(self) -> str:
        return ""

    @property
    def data_loss(self) -> str:
        """A sentence for `degraded` on data lost since opening; empty if none is known.

        Not part of the port.
        """
        return ""

    @property
    def reads_only(self) -> bool:
        """Whether the store is open to read only.

        The library then attempts nothing that nobody asked for, such as counts. Not
        part of the port.
        """
        return False

    @property
    def path(self) -> Path | None:
        """The absolute path of the file or folder that holds the store.

        Opening creates it. None if there is none. Not part of the port: `doctor` shows
        it.
        """
        return None

    # -- life --------------------------------------------------------------------------

    async def open(self, collections: Sequence[Collection]) -> None:
        self._forks.check()
        async with self._opening:
            if self._opened:
                return
            self._forks.acquire()
            try:
                await self._translate_errors(self._open(collections))
            except BaseException:
                self._forks.release()
                raise
            self._collections = {c.name: c for c in collections}
            self._opened = True
            if not self.notes_format:
                return
            try:
                await bring_up_to_date(self, self._format)
            except BaseException:
                self._opened = False
                await self._translate_errors(self._close())
                self._forks.release()
                raise

    async def close(self) -> None:
        self._forks.check()
        async with self._opening:
            if not self._opened:
                return
            self._opened = False
            self._end_waiting()
            try:
                await self._rest()
            finally:
                await self._translate_errors(self._close())
                self._forks.release()

    async def _rest(self) -> None:
        """Wait for the calls in progress."""
        while self._calls_under_way:
            self._at_rest = asyncio.get_running_loop().create_future()
            await self._at_rest

    async def check(self) -> Health:
        self._must_be_open()
        return await self._work(self._health())

    async def _health(self) -> Health:
        """Return the health as the adapter finds it, or the error that it meets."""
        facts: dict[str, JsonValue] = {} if self.path is None else {"path": str(self.path.resolve())}
        try:
            health = await self._check()
        except Exception as error:
            ours = error if isinstance(error, MemoryTiersError) else self._translate(error)
            if ours is None:
                raise
            return Health(ok=False, detail=str(ours), epoch=self.epoch, facts=facts)
        return replace(health, facts=facts | dict(health.facts))

    # -- the note of the format, see `memory.ports.formats` ----------------------------

    def _take_format(self, note: str | None) -> None:
        """Keep the note that `_open` found.

        Raises:
            FormatMismatch: The note has a newer format.
        """
        FormatNote.parse(self.name, note)
        self._format = note

    async def read_format(self) -> str | None:
        """Read the note; None if there is none yet."""
        return await self._translate_errors(self._read_format())

    async def swap_format(self, before: str | None, after: str) -> bool:
        """Replace the note if it still is `before`, atomically between processes.

        Returns:
            Whether the note was replaced.
        """
        return await self._translate_errors(self._swap_format(before, after))

    # -- work --------------------------------------------------------------------------

    async def get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        self._must_be_declared(collection)
        if problem := next((p for key in keys if (p := id_problem(key.id))), ""):
            raise InvalidInput("id", problem.removeprefix("id: "))
        return await self._work(self._get(collection, keys)) if keys else []

    async def apply(self, writes: Sequence[Write], *, together: bool = False) -> list[Outcome]:
        self._must_be_open()
        if together and not self.capabilities.atomic:
            self._must_offer("grouped" if is_group(writes) else "atomic")
        limit = self.capabilities.max_batch
        if limit is not None and len(writes) > limit:
            raise InvalidInput(
                "writes", f"store '{self.name}' takes at most {limit} writes at once, not {len(writes)}"
            )
        refused = {
            i: reason
            async for i, write in iterate_cooperatively(enumerate(writes))
            if (reason := self._refusal(write))
        }
        if not refused:
            return await self._work(self._apply(writes, together)) if writes else []
        if together:
            return [
                Outcome(Status.REJECTED, reason=refused[i]) if i in refused else Outcome(Status.SKIPPED)
                for i in range(len(writes))
            ]
        good = [w for i, w in enumerate(writes) if i not in refused]
        done = iter(await self._work(self._apply(good, together)) if good else ())
        return [
            Outcome(Status.REJECTED, reason=refused[i]) if i in refused else next(done)
            for i in range(len(writes))
        ]

    async def query(self, query: Query) -> Page:
        query = self._prepare_question(query)
        if query.order:
            self._must_offer("order")
            check_order(query.collection, query.order)
        check_limit(query.limit)
        if query.types != {RowType.RECORD} and not isinstance(query.where, Everywhere):
            raise InvalidInput(
                "types", "marks and tombstones name no scope; list them with `where=Everywhere()`"
            )
        if query.select is not None:
            check_select(query.collection, query.select)
        if self._is_in_groups(query.where):
            return await self._work(query_groups(self, query, query.where))
        if query.select is None:
            return await self._work(self._query(query))
        if query.types != {RowType.RECORD}:
            raise InvalidInput("select", "marks and tombstones have no heads; ask without `select`")
        page = await self._work(self._query(query))
        if not page.records:
            return page
        heads = [
            head_of(query.collection, r, query.select)
            async for r in iterate_cooperatively(page.records)
            if isinstance(r, Record)
        ]
        return replace(page, records=(), heads=tuple(heads))

    async def count(self, query: Query) -> Count:
        query = self._prepare_question(query, exactly=True)
        if self._is_in_groups(query.where):
            return await self._work(count_groups(self, query, query.where))
        return await self._work(self._count(query))

    def counted_bytes(self, collection: Collection, record: Record) -> int:
        return size_of(row_of(collection, record))

    async def search(self, search: Search) -> list[Hit]:
        search = self._prepare_question(search)
        self._must_offer("lexical" if isinstance(search.by, Words) else "semantic")
        check_limit(search.limit)
        check_select(search.collection, search.select)
        if isinstance(search.by, Near) and (problem := vector_problem(search.by.vector)):
            raise InvalidInput("vector", problem)
        if not search.roles:
            return []
        if self._is_in_groups(search.where):
            return await self._work(search_groups(self, search, search.where))
        return await self._work(self._search(search))

    async def candidates(self, asked: Candidates) -> CandidateColumns:
        asked = self._prepare_question(asked)
        check_candidates(asked)
        if not asked.roles:
            return await measure_heads(asked, (), none_of(asked))
        if self._is_in_groups(asked.where):
            return await self._work(candidates_of_groups(self, asked, asked.where))
        return await self._work(self._candidates(asked))

    async def delete_matching(
        self,
        query: Query,
        version: int,
        discard_at: datetime | None = None,
        carry: frozenset[str] = frozenset(),
    ) -> int:
        query = self._prepare_question(query, exactly=True)
        if self._is_in_groups(query.where):
            return await self._work(delete_groups(self, query, query.where, version, discard_at, carry))
        return await self._work(self._delete_matching(query, version, discard_at, carry))

    async def due(
        self,
        now: datetime,
        limit: int = 500,
        cursor: str | None = None,
        *,
        expired: Mapping[Collection, datetime] | None = None,
    ) -> DuePage:
        self._must_be_open()
        self._must_offer("tenant_wide")
        self._must_offer("filter")
        check_limit(limit)
        for collection in expired or ():
            self._must_be_declared(collection)
        return await self._work(self._due(now, limit, cursor, expired or {}))

    async def partitions(
        self, where: Tenant | Everywhere, *, prefix: str = "", limit: int = 1_000, cursor: str | None = None
    ) -> PartitionPage:
        self._must_be_open()
        self._must_offer("tenant_wide")
        check_limit(limit)
        check_prefix("prefix", prefix)
        if not isinstance(where, Tenant | Everywhere):
            raise InvalidInput("where", "takes Tenant or Everywhere")
        after = None if cursor is None else decode_partition(cursor)
        found = await self._work(self._partitions(where, prefix, after, limit + 1))
        page = tuple(found[:limit])
        return PartitionPage(page, encode_partition(page[-1][0]) if len(found) > limit else None)

    # -- upkeep ------------------------------------------------------------------------

    async def audit(self, *, repair: bool = False) -> Audit:
        """Run the adapter's audit, and query everything for unreadable records."""
        self._must_be_open()
        found = await self._work(self._audit(repair))
        damaged = await self._damaged_entries() if self.capabilities.tenant_wide else found.damaged
        return replace(found, problems=found.problems[:MOST_NAMED], damaged=damaged[:MOST_NAMED])

    async def _damaged_entries(self) -> tuple[str, ...]:
        named: dict[str, None] = {}
        for collection in self._collections.values():
            limit = collection.at_once(AUDITED_AT_ONCE)
            everything = Query(
                collection, Everywhere(), limit=limit, roles=frozenset(Role), types=frozenset(RowType)
            )
            async for page in follow(self.query, everything):
                named |= dict.fromkeys(
                    f"{collection.name} {key.id} of tenant {key.tenant}" for key in page.corrupt
                )
        return tuple(named)

    async def vacuum(self) -> int:
        self._must_be_open()
        return await self._work(self._vacuum())

    async def idle_partitions(self, limit: int = 1_000) -> list[tuple[Partition, int]]:
        self._must_be_open()
        if limit < 1:
            raise InvalidInput("limit", "must be at least 1")
        return await self._work(self._idle_partitions(limit))

    async def forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        self._must_be_open()
        return await self._work(self._forget_partitions(idle)) if idle else 0

    # -- what an adapter implements ----------------------------------------------------

    @abstractmethod
    async def _open(self, collections: Sequence[Collection]) -> None: ...

    def _end_waiting(self) -> None:  # noqa: B027 - for an adapter whose calls queue
        """Handle the start of closing, which waits for the calls in progress.

        Calls that your engine has not begun may end as `NotOpen`.
        """

    @abstractmethod
    async def _close(self) -> None:
        """Close the backend. No call begins any more.

        No call is in progress either, unless the caller of `close` has given up
        waiting.
        """

    @abstractmethod
    async def _check(self) -> Health:
        """Return the health of the backend, or raise what it raises.

        `BaseStore` reports an error, and adds the path to the facts.
        """

    @abstractmethod
    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]: ...

    @abstractmethod
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]: ...

    @abstractmethod
    async def _query(self, query: Query) -> Page:
        """Answer a query.

        With `select`, return heads, or whole records if the adapter reads these anyway.
        `BaseStore` makes heads of them.
        """

    @abstractmethod
    async def _count(self, query: Query) -> Count: ...

    async def _search(self, search: Search) -> list[Hit]:
        raise Unsupported("lexical" if isinstance(search.by, Words) else "semantic", store=self.name)

    async def _candidates(self, asked: Candidates) -> CandidateColumns:
        """Answer by several questions, for an adapter without a single request."""
        return await gather(
            self, asked, await self._statistics(asked) if asked.statistics else none_of(asked)
        )

    async def _read_format(self) -> str | None:
        """Return no note, for an adapter that stores none."""
        return None

    async def _swap_format(self, before: str | None, after: str) -> bool:
        return False

    async def _statistics(self, asked: Candidates) -> Statistics:
        """Compute the statistics, for an adapter that does not maintain them."""
        return await count_through(self, asked)

    async def _due(
        self, now: datetime, limit: int, cursor: str | None, expired: Mapping[Collection, datetime]
    ) -> DuePage:
        """Answer by several queries, for an adapter without a single request.

        An adapter that overrides this makes its own cursors.
        """
        if cursor is None and not await self._may_be_due(now, expired):
            return DuePage()
        return await due_by_queries(
            self.query, tuple(self._collections.values()), now, limit, cursor, expired
        )

    async def _may_be_due(self, now: datetime, expired: Mapping[Collection, datetime]) -> bool:
        """Whether any record may be due, for an adapter that one request tells it.

        Usually none is.
        """
        return True

    @abstractmethod
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int: ...

    async def _partitions(
        self, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int
    ) -> Sequence[tuple[Partition, int]]:
        """Return the first `limit` partitions behind `after`, with their generations.

        They are ordered. An adapter that claims `tenant_wide` implements this. If its
        engine cannot order them, pass all of them to
        `memory.ports.query_evaluation.first_partitions`.
        """
        raise Unsupported("tenant_wide", store=self.name)

    async def _audit(self, repair: bool) -> Audit:
        """Return an empty audit, for an adapter without derived data."""
        return Audit()

    async def _vacuum(self) -> int:
        """Do nothing, for an adapter whose backend frees space by itself."""
        return 0

    async def _idle_partitions(self, limit: int) -> list[tuple[Partition, int]]:
        """Return none, for an adapter that keeps nothing of empty partitions.

        Only an adapter without generations keeps nothing of a partition but its
        records, marks and tombstones.
        """
        return []

    async def _forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        return 0

    @abstractmethod
    def _translate(self, error: Exception) -> Exception | None:
        """Return our error for a driver's, the most specific first.

        None if the error is not the driver's.
        """

    # -- checks ------------------------------------------------------------------------

    async def _work(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a call of the adapter; `close` waits for its end.

        After `close`, no call begins.
        """
        if not self._opened:
            call.close()
            self._must_be_open()
        self._calls_under_way += 1
        try:
            return await self._translate_errors(call)
        finally:
            self._calls_under_way -= 1
            if not self._calls_under_way and self._at_rest is not None and not self._at_rest.done():
                self._at_rest.set_result(None)

    async def _translate_errors(self, call: Awaitable[T]) -> T:
        """Await the adapter and translate the driver's errors into ours.

        A cancelled call always ends cancelled. `asyncio.wait_for`, which drivers use,
        may return or raise something else if both happen at once.
        """
        task = asyncio.current_task()
        before = task.cancelling() if task else 0
        try:
            answer = await call
        except Exception as error:
            if task and task.cancelling() > before:
                await asyncio.sleep(0)  # see below
                raise asyncio.CancelledError from error
            ours = self._translate(error)
            if ours is None:
                raise
            if isinstance(ours, LoginRefused) and self._opened:  # the password was changed
                raise StoreUnavailable(self.name, ours.problem) from error
            raise ours from error
        if task and task.cancelling() > before:
            # The message of the cancellation is lost. A scope of anyio, which knows its
            # own by it, cancels again in the next step.
            await asyncio.sleep(0)
            raise asyncio.CancelledError
        return answer

    def _must_be_open(self) -> None:
        self._forks.check()
        if not self._opened:
            raise NotOpen(f"store '{self.name}'")

    def _must_be_declared(self, collection: Collection) -> None:
        self._must_be_open()
        if collection.name not in self._collections:
            raise InvalidInput("collection", f"store '{self.name}' was not opened with '{collection.name}'")

    def _must_offer(self, flag: str) -> None:
        if not getattr(self.capabilities, flag):
            raise Unsupported(flag, store=self.name)

    def _reads_json(self, part: JsonPath) -> bool:
        """Return whether the adapter compares values in bodies exactly so.

        Otherwise the adapter receives a wider filter without this comparison.
        """
        return False

    def _is_in_groups(self, where: Where) -> TypeGuard[Under]:
        """Return whether a place is asked for by groups of its partitions."""
        return isinstance(where, Under) and not (
            self.answers_under and len(where.prefixes) <= MOST_PREFIXES and len(where.scopes) <= MOST_SCOPES
        )

    def _prepare_question(self, asked: Question, *, exactly: bool = False) -> Question:
        """Check the question and bring it to the form that adapters receive.

        Other questions than `exactly` may be answered with more records.
        """
        self._must_be_declared(asked.collection)
        if isinstance(asked.where, Tenant | Under | Everywhere):
            self._must_offer("tenant_wide")
        if isinstance(asked.where, Under):
            check_under(asked.where)
            asked = replace(asked, where=asked.where.disjoint())
        if asked.filter is None:
            return asked
        self._must_offer("filter")
        part = prepare_filter(asked.collection, asked.filter)
        if part is not None and has_json(part):
            if exactly:
                raise InvalidInput("filter", "JsonPath is for queries and searches only")
            part = widen(part, lambda one: not isinstance(one, JsonPath) or self._reads_json(one))
        return asked if part is asked.filter else replace(asked, filter=part)

    def _refusal(self, write: Write) -> str:
        """Return why the store always refuses this write; empty if it does not."""
        if not isinstance(write, RaiseGeneration):
            self._must_be_declared(write.collection)
            if not isinstance(write, Put) or not isinstance(write.when, Always):
                self._must_offer("conditional")
        if problem := write_problem(write):
            return problem
        return self._record_refusal(write.record) if isinstance(write, Put) else ""

    def _record_refusal(self, record: Record) -> str:
        """Return which limit of this store the record exceeds; empty if none."""
        dims = self.capabilities.max_vector_dims
        if dims is not None and record.vector is not None and len(record.vector) // 4 > dims:
            return (
                f"vector: store '{self.name}' takes at most {dims} dimensions, not {len(record.vector) // 4}"
            )
        limit = self.capabilities.max_record_bytes
        if limit is not None and (size := record_bytes(record)) > limit:
            return f"record: store '{self.name}' takes at most {limit} bytes, not {size}"
        return ""


def is_group(writes: Sequence[Write]) -> bool:
    """Whether all writes are of one partition and collection, and raise no generation.

    An id tells its partition by a digest. A store that is `grouped` keeps partitions of
    one digest together.
    """
    groups: set[object] = set()
    for write in writes:
        if isinstance(write, RaiseGeneration) or not is_id(write.key.id):
            return False
        groups.add((write.collection.name, write.key.tenant, digest_of(write.key.id)))
    return len(groups) <= 1


_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode


def content_bytes(record: Record) -> int:
    """The size of a record's content, as `Count` reports it."""
    content = _as_json([dict(record.fields), dict(record.body), dict(record.texts)])
    return len(content.encode("utf-8", "surrogatepass")) + len(record.vector or b"")


def record_bytes(record: Record) -> int:
    """The size of a record as `max_record_bytes` counts it.

    That is its content and its pending steps, which may be as large.
    """
    owed = _as_json([[o.id, o.step, dict(o.data)] for o in record.owed]) if record.owed else ""
    return content_bytes(record) + len(owed.encode("utf-8", "surrogatepass"))
