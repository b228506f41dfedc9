"""Qdrant Edge: the engine in this process, on one folder.

Observed properties of `qdrant-edge-py` 0.9:

- Every call holds the GIL throughout. A thread would free nobody and cost a tenth of a
  millisecond, as much as a search. So calls run on the event loop, and long ones are
  split (`pages.everything`, `commit`).
- An acknowledged update is in the write-ahead log, so killing the process loses none.
  The log is not synced, so a crash of the machine may lose the last updates. It grows
  until the shard is closed, and is read again after a kill: see `log_bytes`.
- There is no graph index before `optimize`: searches compare everything that passes the
  filter, exactly. For 20,000 vectors of 256 that takes 1.4 ms, and optimizing takes 27
  s. It pays off only far beyond that, and runs in a separate process
  (`EdgeEngine.optimise`).
- A full disk kills the process (SIGBUS): see `reserve_bytes`.
- Errors are plain exceptions, and panics derive from `BaseException`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

import qdrant_edge as edge

from memory.adapters.qdrant.codec import Payload
from memory.adapters.qdrant.config import EdgeConfig
from memory.adapters.qdrant.edge_folder import Folder
from memory.adapters.qdrant.engine import (
    MOST_VALUES,
    WORDS,
    Conditions,
    FoundPoint,
    FullPoint,
    Index,
    PointChange,
    PointQuery,
    QdrantCondition,
    Sparse,
    Vectors,
    dense_name,
)
from memory.adapters.qdrant.errors import EdgeFailure, translate_edge
from memory.domain.errors import StoreError
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.rows import RECORD

P = ParamSpec("P")
T = TypeVar("T")

_SCHEMAS: dict[str, Any] = {
    "keyword": edge.PayloadSchemaType.Keyword,
    "tenant": edge.KeywordIndexParams(is_tenant=True),
    "integer": edge.PayloadSchemaType.Integer,
    "float": edge.PayloadSchemaType.Float,
}


class EdgeConditions:
    """Conditions in Edge's types."""

    def equals(self, path: str, value: str | int) -> QdrantCondition:
        return edge.FieldCondition(path, match=edge.MatchValue(value))

    def among(self, path: str, values: Sequence[str] | Sequence[int]) -> QdrantCondition:
        return edge.FieldCondition(path, match=edge.MatchAny(list(values)))  # type: ignore[arg-type]

    def between(
        self,
        path: str,
        *,
        gt: float | None = None,
        gte: float | None = None,
        lt: float | None = None,
        lte: float | None = None,
    ) -> QdrantCondition:
        return edge.FieldCondition(path, range=edge.RangeFloat(gt=gt, gte=gte, lt=lt, lte=lte))

    def points(self, points: Sequence[str]) -> QdrantCondition:
        return edge.HasIdCondition(set(points))

    def missing(self, path: str) -> QdrantCondition:
        return edge.IsEmptyCondition(path)

    def every(self, parts: Sequence[QdrantCondition]) -> QdrantCondition:
        return edge.Filter(must=list(parts))

    def some(self, parts: Sequence[QdrantCondition]) -> QdrantCondition:
        return edge.Filter(should=list(parts))

    def none(self, parts: Sequence[QdrantCondition]) -> QdrantCondition:
        return edge.Filter(must_not=list(parts))

    def fits(self, condition: QdrantCondition) -> bool:
        return True


class EdgeEngine:
    """One shard in one folder, open in one process at a time."""

    conditions: Conditions = EdgeConditions()
    alone = True
    exact_statistics = True
    epoch = ""

    def __init__(self, name: str, config: EdgeConfig) -> None:
        self._name = name
        self.folder = Folder(name, config.path, config.reserve_bytes)
        self._log_bytes = config.log_bytes
        self.thresholds = config.thresholds
        self._logged = 0
        self.shard: edge.EdgeShard | None = None
        self.dimensions: set[int] = set()
        self._indexes: Sequence[Index] = ()
        self._ready = asyncio.Event()
        self._upkeep = asyncio.Lock()
        self.turn = asyncio.Lock()

    # -- life --------------------------------------------------------------------------

    async def open(self, indexes: Sequence[Index], look: Callable[[], Awaitable[None]]) -> None:
        indexes = [index for index in indexes if not index.optional]
        self._indexes = indexes
        try:
            self.folder.take()
            self._load()
            self._ready.set()
            await look()
            standing = _call(self.open_shard.info).payload_schema
            for index in indexes:
                if index.path not in standing:
                    _call(make_index, self.open_shard, index)
                    await asyncio.sleep(0)
        except BaseException:
            self._let_go()
            raise

    def _load(self) -> None:
        self.folder.seal_shard()
        shard = str(self.folder.shard)
        if self.folder.has_shard():
            self.shard = _call(edge.EdgeShard.load, shard)
        else:
            self.shard = _call(new_shard, shard)
        self.dimensions = self.folder.dimensions()
        self._logged = 0

    async def close(self) -> None:
        """Close the shard, after writes and maintenance have ended.

        This writes memory to disk, which may take a second for ten thousand new points.
        """
        async with self.turn, self._upkeep:
            self._let_go()

    def _let_go(self) -> None:
        shard, self.shard = self.shard, None
        self._ready.set()  # waiting calls then report that it is closed
        try:
            if shard is not None:
                _call(shard.close)
        finally:
            self.folder.give_back()

    @property
    def open_shard(self) -> edge.EdgeShard:
        if self.shard is None:
            raise EdgeFailure("its folder is closed")
        return self.shard

    async def version(self) -> str:
        await self._until_ready()
        info = _call(self.open_shard.info)
        return f"Qdrant Edge, {info.points_count} points in {info.segments_count} segments"

    async def optimise(self) -> None:
        """Merge and index segments in a separate process.

        Calls wait until it is done; the event loop does not. It takes a minute or more
        per hundred thousand points. It pays off if searches compare more than about
        fifty thousand points.
        """
        await self._in_a_child("edge_optimise", str(self.folder.shard))

    async def rewrite(self) -> int:
        """Rewrite the shard without deleted data; return how many bytes that freed.

        Calls wait until it is done. It needs as much disk space as the shard itself.
        After a crash, either the old or the new shard is complete.
        """
        await self._until_ready()
        before = self.folder.size()
        self.folder.make_sure_of_room(before)
        indexes = json.dumps([[index.path, index.kind] for index in self._indexes])
        folders, at_once = (
            (str(self.folder.shard), str(self.folder.new)),
            str(self.thresholds.rewritten_at_once),
        )
        await self._in_a_child("edge_rewrite", *folders, indexes, at_once, then=self.folder.swap)
        return max(0, before - self.folder.size())

    async def _in_a_child(
        self, module: str, *arguments: str, then: Callable[[], None] = lambda: None
    ) -> None:
        """Run a module on the closed shard in a separate process, then reopen it.

        `then` runs before the shard is reopened.
        """
        async with self._upkeep:
            await self._until_ready()
            self._ready.clear()
            shard, self.shard = self.shard, None
            try:
                if shard is not None:
                    _call(shard.close)
                await self._run(module, *arguments)
                then()
            finally:
                try:
                    self._load()
                finally:
                    self._ready.set()  # if it could not be opened, calls report that

    async def _run(self, module: str, *arguments: str) -> None:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            f"memory.adapters.qdrant.{module}",
            *arguments,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            _, said = await child.communicate()
        except BaseException:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()
            raise
        if child.returncode:
            raise StoreError(self._name, f"{module} failed: {said.decode(errors='replace').strip()[-300:]}")

    async def _until_ready(self) -> None:
        while not self._ready.is_set():  # it may be closed again before this task runs
            await self._ready.wait()

    # -- reading -----------------------------------------------------------------------

    async def retrieve(self, points: Sequence[str], keys: Sequence[str] | None = None) -> dict[str, Payload]:
        await self._until_ready()
        wanted = True if keys is None else list(keys)
        try:
            return {
                str(r.id): r.payload or {}
                for r in _call(self.open_shard.retrieve, list(points), wanted, False)
            }
        except EdgeFailure:
            return {
                str(r.id): self._alone(r.id, wanted)
                for r in _call(self.open_shard.retrieve, list(points), False, False)
            }

    async def scroll(
        self, where: QdrantCondition, limit: int, after: Any = None, keys: Sequence[str] | None = None
    ) -> tuple[list[FoundPoint], Any]:
        await self._until_ready()
        following: Any = None

        def ask(payload: bool | list[str]) -> list[Any]:
            nonlocal following
            request = edge.ScrollRequest(offset=after, limit=limit, filter=where, with_payload=payload)
            records, following = _call(self.open_shard.scroll, request)
            return records

        return self._fetch_points(ask, keys, lambda record: record.id), following

    async def whole(self, limit: int, after: Any = None) -> tuple[list[FullPoint], Any]:
        await self._until_ready()
        try:
            records, following = _call(
                self.open_shard.scroll,
                edge.ScrollRequest(offset=after, limit=limit, with_payload=True, with_vector=True),
            )
        except EdgeFailure:
            records, following = _call(
                self.open_shard.scroll,
                edge.ScrollRequest(offset=after, limit=limit, with_payload=False, with_vector=True),
            )
            return [
                FullPoint(str(r.id), self._alone(r.id, True), _parse_vectors(r.vector)) for r in records
            ], following
        return [FullPoint(str(r.id), r.payload or {}, _parse_vectors(r.vector)) for r in records], following

    async def scroll_ordered(
        self, where: QdrantCondition, path: str, descending: bool, start: float | None, limit: int
    ) -> list[FoundPoint]:
        await self._until_ready()
        order = edge.OrderBy(
            path, direction=edge.Direction.Desc if descending else edge.Direction.Asc, start_from=start
        )

        def ask(payload: bool | list[str]) -> list[Any]:
            return _call(
                self.open_shard.scroll,
                edge.ScrollRequest(limit=limit, filter=where, with_payload=payload, order_by=order),
            )[0]

        return self._fetch_points(ask, None, lambda record: record.order_value)

    async def count(self, where: QdrantCondition) -> int:
        await self._until_ready()
        return _call(self.open_shard.count, edge.CountRequest(filter=where, exact=True))

    async def tally(self, path: str, where: QdrantCondition) -> dict[int, int]:
        """Return the counts of an indexed number.

        Edge's fast way adds up the counts of its segments. It is exact, because no
        point is in two segments, unlike on a busy server.
        """
        await self._until_ready()
        request = edge.FacetRequest(path, limit=MOST_VALUES, exact=False, filter=where)
        return {int(hit.value): hit.count for hit in _call(self.open_shard.facet, request).hits}

    async def values(self, path: str, where: QdrantCondition) -> list[str]:
        await self._until_ready()
        request = edge.FacetRequest(path, limit=MOST_VALUES, exact=False, filter=where)
        return [str(hit.value) for hit in _call(self.open_shard.facet, request).hits]

    async def ask(self, questions: Sequence[PointQuery]) -> list[list[FoundPoint]]:
        return [await self._answer(question) async for question in iterate_cooperatively(questions, 1)]

    async def _answer(self, question: PointQuery) -> list[FoundPoint]:
        await self._until_ready()
        if question.near is not None and len(question.near) not in self.dimensions:
            return []
        if question.near is None and question.words is None:
            return (await self.scroll(question.where, question.limit, None, question.keys))[0]
        return self._rank(question)

    def _rank(self, question: PointQuery) -> list[FoundPoint]:
        params: edge.SearchParams | None = None
        if question.words is not None:
            query = edge.Query.Nearest(
                edge.SparseVector(question.words.indices, question.words.values), using=WORDS
            )
            params = edge.SearchParams(idf=edge.IdfParams(corpus=question.corpus))
        else:
            vector = question.near or []
            query = edge.Query.Nearest(vector, using=dense_name(len(vector)))
        vectors: bool | list[str] = [WORDS] if question.with_words else False

        def ask(payload: bool | list[str]) -> list[Any]:
            request = edge.QueryRequest(
                limit=question.limit,
                query=query,
                filter=question.where,
                params=params,
                with_payload=payload,
                with_vector=vectors,
            )
            return _call(self.open_shard.query, request)

        return self._fetch_points(ask, question.keys, lambda point: point.score)

    def _fetch_points(
        self,
        ask: Callable[[bool | list[str]], list[Any]],
        keys: Sequence[str] | None,
        value: Callable[[Any], Any],
    ) -> list[FoundPoint]:
        """Return the points with their payloads.

        A payload that Edge cannot read fails the whole call; then each is read
        separately.
        """
        wanted = True if keys is None else list(keys)
        try:
            return [FoundPoint(point.payload or {}, value(point), _words(point)) for point in ask(wanted)]
        except EdgeFailure:
            return [
                FoundPoint(self._alone(point.id, wanted), value(point), _words(point)) for point in ask(False)
            ]

    def _alone(self, point: Any, wanted: bool | list[str]) -> Payload:
        """Read one payload.

        If Edge cannot read it, the result fails its checksum and has the point's id.
        Its owner is unknown then.
        """
        try:
            records = _call(self.open_shard.retrieve, [point], wanted, False)
        except EdgeFailure:
            return {"tenant": "", "id": str(point)}
        return records[0].payload or {} if records else {}

    # -- writing -----------------------------------------------------------------------

    async def commit(
        self, changes: Sequence[PointChange], afterwards: dict[str, Payload | None] | None = None
    ) -> set[str]:
        """Apply the changes. There are no other writers, so no change is lost.

        Many changes are applied in groups. Each single change is atomic.
        """
        await self._until_ready()
        size = sum([500 + (c.payload or {}).get("bytes", 0) * 3 for c in changes])
        self.folder.make_sure_of_room(
            size, deleting=all(c.payload is None or c.payload.get("kind") != RECORD for c in changes)
        )
        kept = [c for c in changes if c.payload is not None and c.vectors is not None]
        for dimensions in {
            len(c.vectors.dense) for c in kept if c.vectors and c.vectors.dense
        } - self.dimensions:
            _call(make_vector, self.open_shard, dimensions)
            self.dimensions.add(dimensions)
        most = self.thresholds.changed_in_a_turn
        async for some in self._portions(kept, most):
            self._update(edge.UpdateOperation.upsert_points([_point(c) for c in some]))
        async for (change,) in self._portions(
            [c for c in changes if c.payload is not None and c.vectors is None], 1
        ):
            self._update(_payload_update(change))
        async for some in self._portions([c for c in changes if c.payload is None], most):
            self._remove(some)
        self._logged += size
        if self._logged > self._log_bytes:  # only closing the shard truncates the log
            _call(self.open_shard.close)
            self._load()
        return set()

    async def _portions(
        self, changes: Sequence[PointChange], size: int
    ) -> AsyncIterator[Sequence[PointChange]]:
        """Yield groups of changes; other tasks run in between.

        If they closed the shard, wait until it is open again.
        """
        async for start in iterate_cooperatively(
            range(0, len(changes), size), self.thresholds.changed_in_a_turn // size
        ):
            await self._until_ready()
            yield changes[start : start + size]

    def _remove(self, changes: Sequence[PointChange]) -> None:
        """Remove points, after overwriting unreadable ones.

        Edge reads the points that it removes. After a failed update it accepts no
        other.
        """
        unreadable = [c.point for c in changes if "kind" not in (c.before or {})]
        if unreadable:
            self._update(
                edge.UpdateOperation.upsert_points([edge.Point(point, {}, {}) for point in unreadable])
            )
        self._update(edge.UpdateOperation.delete_points([c.point for c in changes]))

    def _update(self, operation: edge.UpdateOperation) -> None:
        _call(self.open_shard.update, operation)

    def translate(self, error: Exception) -> Exception | None:
        return translate_edge(self._name, error)


def new_shard(shard: str) -> edge.EdgeShard:
    config = edge.EdgeConfig(
        sparse_vectors={WORDS: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)}, wal_enabled=True
    )
    return edge.EdgeShard.create(shard, config)


def make_index(shard: edge.EdgeShard, index: Index) -> None:
    shard.update(edge.UpdateOperation.create_field_index(index.path, _SCHEMAS[index.kind]))


def make_vector(shard: edge.EdgeShard, dimensions: int) -> None:
    shard.update(
        edge.UpdateOperation.create_dense_vector(dense_name(dimensions), dimensions, edge.Distance.Dot)
    )


def _point(change: PointChange) -> edge.Point:
    vectors = change.vectors or Vectors()
    named: dict[str, Any] = {}
    if vectors.words is not None:
        named[WORDS] = edge.SparseVector(vectors.words.indices, vectors.words.values)
    if vectors.dense is not None:
        named[dense_name(len(vectors.dense))] = vectors.dense
    return edge.Point(change.point, named, change.payload)


def _payload_update(change: PointChange) -> edge.UpdateOperation:
    """Return an update of the payload that keeps the vectors.

    If no key disappears, only changed keys are written and indexed.
    """
    before, after = change.before or {}, change.payload or {}
    if not before or not before.keys() <= after.keys() or None in after.values():  # a null removes a key
        return edge.UpdateOperation.overwrite_payload([change.point], after)
    return edge.UpdateOperation.set_payload(
        [change.point],
        {name: value for name, value in after.items() if not _is_same(before.get(name), value)},
    )


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal in JSON; Python alone equates 1, 1.0 and true."""
    return type(one) is type(other) and (one == other if isinstance(one, str) else repr(one) == repr(other))


def _words(point: Any) -> Sparse | None:
    vectors = point.vector
    words = _parse_vectors(vectors).get(WORDS) if isinstance(vectors, dict) and vectors else None
    return words if isinstance(words, Sparse) else None


def _parse_vectors(vectors: Any) -> dict[str, Sparse | list[float]]:
    return {
        name: Sparse(list(vector.indices), list(vector.values))
        if isinstance(vector, edge.SparseVector)
        else list(vector)
        for name, vector in (vectors or {}).items()
    }


def _call(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call Edge and convert every exception to an `EdgeFailure` with its text."""
    try:
        return function(*args, **kwargs)
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as exc:
        raise EdgeFailure(f"{type(exc).__name__}: {exc}" if type(exc) is not Exception else str(exc)) from exc
