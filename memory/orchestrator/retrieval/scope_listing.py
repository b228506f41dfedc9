"""Lists the scopes that hold something, from the partitions of the stores.

A store lists partitions in the order of their texts, also those of erased scopes. So
each batch of them is counted, and scopes that hold nothing are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Container, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

from memory.domain.errors import InvalidInput
from memory.domain.scope import Scope, ScopeKind
from memory.domain.scopes import ScopeInfo, ScopePage
from memory.orchestrator.conversations.sessions import SessionRecords
from memory.orchestrator.storage.collections import DOCUMENTS, ENTRIES
from memory.orchestrator.storage.partial_answers import AnswerGaps
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.split import CONVERSATION
from memory.orchestrator.storage.steps import step
from memory.policies.visibility import unexpired_filter
from memory.ports.collections import Collection
from memory.ports.concurrency import each_at_once
from memory.ports.query import (
    Condition,
    Query,
    Tenant,
    Under,
    Where,
    all_of,
    decode_partition,
    encode_partition,
    within,
)
from memory.ports.record import Partition
from memory.ports.store import Store

T = TypeVar("T")

_COUNTED = 1_000
"""How many records of a batch are read before each scope is counted by itself."""
_FEW = 2
"""So many scopes are counted by themselves: reading their records takes longer."""


@dataclass(frozen=True, slots=True)
class _Source:
    """A store's partitions of one kind of scope.

    They begin with `stored`, which stands for `shown` in the text of a scope.
    """

    store: Store
    shown: str
    stored: str


@dataclass(frozen=True, slots=True)
class _Asking:
    """Makes calls of stores. With `gaps`, a failure is noted instead of raised."""

    placement: Placement
    gaps: AnswerGaps | None

    async def store(self, store: Store, call: Coroutine[Any, Any, T], otherwise: T) -> T:
        """Return the answer of a call, or the other value if a failure was noted."""
        if self.gaps is None:
            return await call
        answer = await self.gaps.try_call(self.placement, store, call)
        return otherwise if answer is None else answer


class ScopeDirectory:
    """Lists the scopes of a tenant, with what they hold."""

    def __init__(self, placement: Placement, sessions: SessionRecords) -> None:
        self._placement = placement
        self._sessions = sessions

    async def page(
        self,
        tenant: str,
        prefixes: Sequence[str],
        *,
        limit: int,
        max_depth: int | None = None,
        cursor: str | None = None,
        exact: Container[str] = (),
        gaps: AnswerGaps | None = None,
    ) -> ScopePage:
        """Return a page of the scopes whose texts begin with one of these prefixes.

        The prefixes are in the order of their texts. With `max_depth`, paths with more
        labels are shown as the path with so many, and counted with it. The prefixes of
        `exact` stand for one scope each.

        With `gaps`, a store that fails is noted there, and the page has what the others
        hold. Without it, its error is raised.
        """
        begin = "" if cursor is None else _place(cursor, tenant)
        found: list[ScopeInfo] = []
        ask = _Asking(self._placement, gaps)
        async for batch in self._batches(ask, tenant, prefixes, begin, limit + 1, max_depth, exact):
            found += await self._drop_empty(ask, tenant, batch)
            if len(found) > limit:
                last = found[limit - 1].scope
                depth = None if last.text in exact else max_depth
                return ScopePage(found[:limit], _cursor(tenant, last, depth))
        return ScopePage(found)

    async def _batches(
        self,
        ask: _Asking,
        tenant: str,
        prefixes: Sequence[str],
        begin: str,
        size: int,
        max_depth: int | None,
        exact: Container[str],
    ) -> AsyncIterator[list[tuple[Scope, bool]]]:
        """Yield the scopes after `begin` in order, some at a time.

        With each comes whether it stands for its whole subtree.
        """
        for is_exact, some in groupby(prefixes, key=lambda prefix: prefix in exact):
            if is_exact:
                named = [(Scope.parse(text), False) for text in some if text > begin]
                for start in range(0, len(named), size):
                    yield named[start : start + size]
                continue
            for prefix in some:
                if begin > prefix and not begin.startswith(prefix):
                    continue
                after, is_last = begin if begin.startswith(prefix) else "", False
                while not is_last:
                    texts, is_last = await self._texts(ask, tenant, self._sources(prefix), after, size)
                    batch, beyond = _cut(texts, _depth_below(prefix, max_depth))
                    yield batch
                    is_last = is_last or (beyond is not None and not beyond.startswith(prefix))
                    after = beyond or texts[-1] if texts else ""

    def _sources(self, prefix: str) -> list[_Source]:
        topology = self._placement.topology
        sources = [_Source(store, prefix, prefix) for store in topology.homes]
        session = f"{ScopeKind.SESSION}:"
        if prefix == session:
            sources.append(_Source(topology.archive, session, f"{CONVERSATION}:"))
        return sources

    async def _texts(
        self, ask: _Asking, tenant: str, sources: Sequence[_Source], after: str, limit: int
    ) -> tuple[list[str], bool]:
        """Return the next texts of scopes in order, and whether they are the last.

        Texts up to the last one of every source that has more are complete.
        """
        found, complete = set[str](), None
        for texts, is_last in await each_at_once(
            ask.store(source.store, self._texts_of(tenant, source, after, limit), ([], True))
            for source in sources
        ):
            found.update(texts)
            if not is_last:
                complete = texts[-1] if complete is None else min(complete, texts[-1])
        return sorted(text for text in found if complete is None or text <= complete), complete is None

    async def _texts_of(self, tenant: str, source: _Source, after: str, limit: int) -> tuple[list[str], bool]:
        begin = None
        if after:
            begin = encode_partition(Partition(tenant, source.stored + after.removeprefix(source.shown)))
        with step("scopes.list"):
            page = await source.store.partitions(
                Tenant(tenant), prefix=source.stored, limit=limit, cursor=begin
            )
        texts = [source.shown + one.scope.removeprefix(source.stored) for one, _ in page.partitions]
        return texts, page.cursor is None

    # -- counting ----------------------------------------------------------------------

    async def _drop_empty(
        self, ask: _Asking, tenant: str, batch: Sequence[tuple[Scope, bool]]
    ) -> list[ScopeInfo]:
        """Return what the scopes hold, without those that hold nothing.

        The second value says whether a path stands for its whole subtree.
        """
        exact = [scope for scope, is_whole in batch if not is_whole]
        entries, documents = Counter[str](), Counter[str]()
        if exact:
            topology = self._placement.topology
            of_documents = self._by_home(tenant, exact)
            asked = [(store, DOCUMENTS, some) for store, some in of_documents.items()]
            asked += [(store, ENTRIES, exact) for store in topology.homes]
            counts = await each_at_once(
                ask.store(store, self._counts(store, collection, tenant, scopes), Counter[str]())
                for store, collection, scopes in asked
            )
            documents = sum(counts[: len(of_documents)], documents)
            entries = sum(counts[len(of_documents) :], entries)
        for scope, is_whole in batch:
            if is_whole:
                below = Under(tenant, (scope.text,))
                for store in self._placement.topology.homes:
                    entries[scope.text] += await ask.store(store, self._count(store, ENTRIES, below), 0)
                for store, where, only in self._placement.topology.documents.places(below):
                    counted = self._count(store, DOCUMENTS, where, only)
                    documents[scope.text] += await ask.store(store, counted, 0)
        named = [scope.id for scope in exact if scope.kind is ScopeKind.SESSION]
        sessions: dict[str, str] = {}
        if named:
            lives = self._sessions.lives(tenant, named)
            sessions = await ask.store(self._placement.topology.archive, lives, {})
        infos = [
            ScopeInfo(scope, entries[scope.text], documents[scope.text], int(_is_session(scope, sessions)))
            for scope, _ in batch
        ]
        return [info for info in infos if info.entries or info.documents or info.sessions]

    async def _counts(
        self, store: Store, collection: Collection, tenant: str, scopes: Iterable[Scope]
    ) -> Counter[str]:
        """Count the live records of each scope.

        If they are few, one query reads them. If they are many, or the scopes few, each
        scope is counted.
        """
        partitions = [Partition(tenant, scope.text) for scope in scopes]
        if len(partitions) > _FEW:
            query = Query(collection, within(*partitions), self._is_live, limit=_COUNTED, select=frozenset())
            page = await self._placement.page("scopes.count", store, query)
            if page.cursor is None and not page.corrupt:
                return Counter(head.scope for head in page.heads)
        return Counter({one.scope: await self._count(store, collection, within(one)) for one in partitions})

    def _by_home(self, tenant: str, scopes: Iterable[Scope]) -> dict[Store, list[Scope]]:
        """Return the scopes by the store that has their documents."""
        found: dict[Store, list[Scope]] = {}
        for scope in scopes:
            home = self._placement.topology.documents.of(Partition(tenant, scope.text))
            found.setdefault(home, []).append(scope)
        return found

    async def _count(
        self, store: Store, collection: Collection, where: Where, only: Condition | None = None
    ) -> int:
        with step("scopes.count"):
            return (await store.count(Query(collection, where, all_of(self._is_live, only)))).records

    @property
    def _is_live(self) -> Condition:
        return unexpired_filter(self._placement.now())


def _is_session(scope: Scope, sessions: Mapping[str, str]) -> bool:
    return scope.kind is ScopeKind.SESSION and scope.id in sessions


def _depth_below(prefix: str, max_depth: int | None) -> int | None:
    """Return the depth to which paths are shown: at least that of the prefix."""
    return None if max_depth is None else max(max_depth, prefix.count("/"))


def _cut(texts: Sequence[str], max_depth: int | None) -> tuple[list[tuple[Scope, bool]], str | None]:
    """Return the scopes to show, and where to go on if the last one has a subtree.

    A path with `max_depth` labels stands for its subtree.
    """
    found: list[tuple[Scope, bool]] = []
    beyond: str | None = None
    for text in texts:
        if beyond is not None and text < beyond:
            continue
        beyond, scope = None, _scope_in(text)
        if scope is None:
            continue
        if max_depth is not None and len(scope.labels) >= max_depth:
            scope = Scope.path(*scope.labels[:max_depth])
            beyond = _behind(scope)
        found.append((scope, beyond is not None))
    return found, beyond


def _scope_in(text: str) -> Scope | None:
    """Return the scope with this text; None if another program wrote it."""
    try:
        return Scope.parse(text)
    except InvalidInput:
        return None


def _behind(path: Scope) -> str:
    """Return the lowest text above all texts of a path's subtree."""
    return path.text.removesuffix("/") + chr(ord("/") + 1)


def _cursor(tenant: str, last: Scope, max_depth: int | None) -> str:
    is_whole = max_depth is not None and len(last.labels) >= max_depth
    return encode_partition(Partition(tenant, _behind(last) if is_whole else last.text))


def _place(cursor: str, tenant: str) -> str:
    place = decode_partition(cursor)
    if place.tenant != tenant:
        raise InvalidInput(
            "cursor", "belongs to another listing. Pass the cursor that the previous page returned"
        )
    return place.scope
