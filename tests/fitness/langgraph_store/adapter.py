"""A LangGraph store that keeps items as entries of a memory.

A namespace is a path below a root, and an item is the entry of its key. The value is
the entry's data. Its text, by which searches find it, is taken from the indexed fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    get_text_at_path,
    validate_op_namespace,
)
from langgraph.store.base.batch import AsyncBatchedBaseStore

from memory import Entry, FoundEntry, Memory, NotFound, Scope, TooMuchContention
from tests.fitness.halves import blocking
from tests.fitness.langgraph_store.filters import data_filter

TTL = "langgraph_ttl"
"""The metadata of an entry that expires: its minutes."""
MAX_CONTENT = 64 * 1024


class EntryStore(BaseStore):
    """Keeps the items of LangGraph as entries, found by words and by meaning.

        async with Memory("sqlite:///agent.db", loop="own") as memory:
            graph = builder.compile(store=EntryStore(memory, fields=["text"]))

    A value is JSON of up to 64 KiB. A search uses the embedder of the memory.

    Args:
        memory: An open memory, made with `loop="own"`.
        root: The path above all namespaces. It takes one of the 16 labels of a path.
        fields: The paths in values whose text is indexed; `["$"]`, the default, is the
            whole value. `put(index=…)` overrides them for one item.
        mode: How a query finds items: by words, by meaning or by both.
        ttl: When items expire by default, and whether reads begin that time anew.
            Expired items are always omitted.
    """

    supports_ttl = True

    def __init__(
        self,
        memory: Memory,
        *,
        root: Scope | str = "path:langgraph/",
        fields: Sequence[str] = ("$",),
        mode: Literal["hybrid", "semantic", "lexical"] = "hybrid",
        ttl: TTLConfig | None = None,
    ) -> None:
        self._memory: Any = memory
        self._root = (Scope.parse(root) if isinstance(root, str) else root).labels
        self._fields, self._mode = list(fields), mode
        self.ttl_config = ttl

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations. Reads see the state before the puts; the last put wins."""
        asked = list(ops)
        for op in asked:
            validate_op_namespace(op)
        results: list[Result] = [None] * len(asked)
        gets: dict[Scope, dict[str, list[int]]] = {}
        puts: dict[tuple[Scope, str], PutOp] = {}
        for place, op in enumerate(asked):
            if isinstance(op, GetOp):
                gets.setdefault(self._scope(op.namespace), {}).setdefault(op.key, []).append(place)
            elif isinstance(op, SearchOp):
                results[place] = await self._search(op)
            elif isinstance(op, ListNamespacesOp):
                results[place] = await self._list_namespaces(op)
            elif isinstance(op, PutOp):
                puts[self._scope(op.namespace), op.key] = op
            else:
                raise ValueError(f"Unknown operation type: {type(op)}")
        for scope, keys in gets.items():
            for entry, places in zip(await self._get(scope, list(keys)), keys.values(), strict=True):
                if entry is not None:
                    for place in places:
                        results[place] = Item(**self._fields_of(entry))
                    await self._refresh(entry, any(asked[place].refresh_ttl for place in places))
        await self._put(puts)
        return results

    batch = blocking(abatch)

    async def _get(self, scope: Scope, keys: list[str]) -> list[Entry | None]:
        found: list[Entry | None] = []
        for first in range(0, len(keys), 1_000):
            found += await self._memory.get_many(scope=scope, keys=keys[first : first + 1_000])
        return found

    async def _put(self, puts: Mapping[tuple[Scope, str], PutOp]) -> None:
        drafts = [self._draft(scope, op) for (scope, _), op in puts.items() if op.value is not None]
        if drafts:
            await self._memory.write_many(drafts, if_exists="replace")
        for (scope, key), op in puts.items():
            if op.value is None:
                with suppress(NotFound):
                    await self._memory.delete(scope=scope, key=key)

    def _draft(self, scope: Scope, op: PutOp) -> dict[str, Any]:
        value = dict(op.value or {})
        paths = self._fields if op.index is None else op.index or []
        texts = [text for path in paths for text in get_text_at_path(value, path)]
        draft: dict[str, Any] = {"scope": scope, "key": op.key, "data": value}
        draft["content"] = "\n".join(texts).encode(errors="ignore")[:MAX_CONTENT].decode(errors="ignore")
        if not texts:
            draft["searchable"] = False
        if op.ttl is not None:
            draft |= {"expires_at": timedelta(minutes=op.ttl), "metadata": {TTL: op.ttl}}
        return draft

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        scope = self._scope(op.namespace_prefix).subtree()
        where, last = data_filter(op.filter or {}), op.offset + op.limit
        found: list[tuple[Entry, float | None]] = []
        if op.query and last:
            hits = await self._memory.search(
                op.query,
                scope=scope,
                filter=where,
                mode=self._mode,
                limit=last,
                intent=False,
                age_decay=False,
                explain=True,
            )
            found = [(hit.entry, _similarity(hit)) for hit in hits]
        cursor, is_first = None, True
        while not op.query and len(found) < last and (cursor or is_first):
            page = await self._memory.browse(
                scope, filter=where, limit=min(1_000, last - len(found)), cursor=cursor
            )
            found += [(entry, None) for entry in page]
            cursor, is_first = page.cursor, False
        for entry, _ in found[op.offset :]:
            await self._refresh(entry, op.refresh_ttl)
        return [SearchItem(**self._fields_of(entry), score=score) for entry, score in found[op.offset :]]

    async def _list_namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        found: set[tuple[str, ...]] = set()
        conditions, cursor, is_first = op.match_conditions or (), None, True
        while cursor or is_first:
            page = await self._memory.scopes.list(
                prefix=self._scope(_known_prefix(conditions)), limit=1_000, cursor=cursor
            )
            for one in page.scopes:
                namespace = one.scope.labels[len(self._root) :]
                if one.entries and all(_matches(condition, namespace) for condition in conditions):
                    found.add(namespace[: op.max_depth])
            cursor, is_first = page.cursor, False
        return sorted(found)[op.offset : op.offset + op.limit]

    async def _refresh(self, entry: Entry, is_wanted: bool) -> None:
        """Begin the time to the expiry of an item anew, once a tenth of it is over."""
        if not is_wanted or TTL not in entry.metadata:
            return
        lifetime = timedelta(minutes=entry.metadata[TTL])
        if entry.expires_at and entry.expires_at - datetime.now(UTC) < 0.9 * lifetime:
            with suppress(NotFound, TooMuchContention):  # deleted, or changed by others
                await self._memory.update(entry.id, expires_at=lifetime)

    def _scope(self, namespace: Iterable[str]) -> Scope:
        return Scope.path(*self._root, *namespace)

    def _fields_of(self, entry: Entry) -> dict[str, Any]:
        return {
            "namespace": entry.scope.labels[len(self._root) :],
            "key": entry.key,
            "value": entry.data,
            "created_at": entry.created_at,
            "updated_at": entry.updated_at,
        }


class BatchedEntryStore(AsyncBatchedBaseStore):
    """Merges the calls that one event loop makes at once, over an `EntryStore`.

    It belongs to the loop that makes it. Of several puts of one item the last one wins.
    """

    supports_ttl = True

    def __init__(self, store: EntryStore) -> None:
        super().__init__()
        self._store, self.ttl_config = store, store.ttl_config

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations at once."""
        results: list[Result] = self._store.batch(ops)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations at once."""
        return await self._store.abatch(ops)


def _similarity(hit: FoundEntry) -> float | None:
    """Return the cosine of the item's vector to the query's, if there are vectors."""
    cosine: float | None = (hit.explanation or {}).get("relevance", {}).get("cosine")
    return hit.relevance if cosine is None else cosine


def _known_prefix(conditions: Iterable[MatchCondition]) -> list[str]:
    """Return the labels that all wanted namespaces begin with."""
    for condition in conditions:
        if condition.match_type == "prefix":
            path = list(condition.path)
            return path[: path.index("*")] if "*" in path else path
    return []


def _matches(condition: MatchCondition, namespace: Sequence[str]) -> bool:
    path = list(condition.path)
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[-len(path) :]
    if not path:
        return True
    return len(part) == len(path) and all(
        wanted in ("*", label) for wanted, label in zip(path, part, strict=True)
    )
