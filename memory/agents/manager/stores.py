"""What a memory manager manages: stores by name, each any object that can search, and
what of them else can be asked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from memory.agents.manager.extraction import Extraction, resolve_extraction
from memory.domain import validation
from memory.domain.conflicts import ConflictReport
from memory.domain.entry import Entry
from memory.domain.errors import Conflict, InvalidInput, Unsupported
from memory.domain.provenance import UNSAID, Provenance
from memory.domain.results import ResultMixin
from memory.facade.runtime.access import Access
from memory.facade.scoped import ScopedMemory
from memory.orchestrator.enrichment.conflicts import Resolver
from memory.orchestrator.retrieval.search import FoundEntry
from memory.orchestrator.storage.callbacks import invoke

LIMIT = 3
"""What a store is asked for where neither the caller nor its configuration says (E21)."""


@dataclass(frozen=True, slots=True, repr=False)
class StoreEntry(ResultMixin):
    """What a store found. `store_name` is stamped by the manager (E1)."""

    content: str
    store_name: str | None = None
    metadata: dict[str, Any] | None = None
    score: None = None
    """Always None: results of several stores are concatenated, and their order has no
    sort key.
    """
    relevance: float | None = None
    """How well the entry answers, from 0 to 1; None where the store does not say."""


class MemoryStore:
    """A base for stores of one's own: `search` is needed, the rest by presence. What is
    not overridden counts as not there (E10).
    """

    async def search(self, query: str, *, limit: int) -> Sequence[Any]:
        """The best entries, at most so many, the best first: `StoreEntry`, mappings
        with a `content`, or texts.
        """
        raise Unsupported("search", store=type(self).__name__)

    async def add(self, content: str, metadata: Mapping[str, Any] | None = None) -> Any:
        """Keep one text. It may be told the same again (E9); what it returns is its own
        affair (E8).
        """
        raise Unsupported("add", store=type(self).__name__)

    async def add_messages(self, messages: Sequence[Any], context: Mapping[str, Any] | None = None) -> Any:
        """Keep what was said; see `add`."""
        raise Unsupported("add_messages", store=type(self).__name__)

    async def initialize(self) -> None:
        """What is to be done once before it is used (E6)."""

    def get_tools(self) -> Sequence[Any]:
        """Tools of its own, registered behind the manager's (E7)."""
        return ()


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class NamedStore:
    """A store under a name, and how it is used.

    `store` is a scoped view of a memory, or any object with `search`, and with `add` or
    `add_messages` where it is `writable`; its methods may block: they are called in a
    thread then. `description` tells a model what is in it; `limit` is what it is asked
    for unless the caller says otherwise. With `extraction` it is told what an agent's
    conversations say, as `MemoryManager.record` has it: the same again where it is in
    doubt whether it arrived, under the same `key` where its `add` takes one, as that of
    a scope of a memory does. Where its `add` takes a `provenance`, as that does, it is
    told where what is added comes from.
    """

    name: str
    store: Any
    description: str | None = None
    limit: int | None = None
    writable: bool = False
    extraction: bool | Extraction = False
    learns: Extraction | None = field(init=False, default=None)
    """What `extraction` comes to; None where nothing is extracted into it."""
    _can: Mapping[str, Callable[..., Any]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if not validation.identifier("name", self.name).strip():
            raise InvalidInput("name", "must not be blank")
        if self.description is not None:
            validation.text("description", self.description)
        if self.limit is not None:
            validation.whole_limit(self.limit, default=LIMIT)
        if not isinstance(self.writable, bool):
            raise InvalidInput("writable", f"must be True or False, not {type(self.writable).__name__}")
        object.__setattr__(self, "_can", _abilities(self.store))
        if "search" not in self._can:
            raise InvalidInput(
                "stores",
                f"store '{self.name}' has no search method, which {type(self.store).__name__} would need",
            )
        able = {"adds": self.can("add"), "takes_messages": self.can("add_messages")}
        object.__setattr__(
            self, "learns", resolve_extraction(self.extraction, self.name, writable=self.writable, **able)
        )

    def __repr__(self) -> str:
        return f"<NamedStore {self.name!r}{' writable' * self.writable}>"

    def can(self, ability: str) -> bool:
        """Whether the store has that method itself (E10)."""
        return ability in self._can

    @property
    def access(self) -> Access | None:
        """The access to the memory that the store is a view of; None for other stores."""
        if not _is_view(self.store):
            return None
        view: ScopedMemory = getattr(self.store, "_original", self.store)
        return view._access

    @property
    def takes_texts(self) -> bool:
        """Whether single texts may be added."""
        return self.writable and self.can("add")

    @property
    def takes_keys(self) -> bool:
        """Whether what is added under a key is kept once, however often it is told."""
        return self.can("add") and "key" in inspect.signature(self._can["add"]).parameters

    @property
    def takes_provenance(self) -> bool:
        """Whether it is told where what is added comes from (`Provenance`), as a scope
        of a memory is.
        """
        return self.can("add") and "provenance" in inspect.signature(self._can["add"]).parameters

    async def add(
        self,
        content: str,
        metadata: Mapping[str, Any] | None,
        provenance: Provenance,
        *,
        key: str | None = None,
        detect_conflicts: bool = False,
        resolve: Resolver | None = None,
    ) -> ConflictReport | None:
        """Add one text, with its provenance and key as far as the store takes them.

        Returns the conflicts that a scope of a memory found; None where there were none
        or none were looked for.
        """
        metadata = (
            None if metadata is None else deepcopy(dict(metadata))
        )  # its own: what it does to them is no matter of another's
        more: dict[str, Any] = {"provenance": provenance} if self.takes_provenance else {}
        more |= {"key": key} if key is not None else {}
        if not (detect_conflicts and _is_view(self.store)):
            await self.call("add", content, metadata, **more)
            return None
        entry: Entry = await self.call(
            "add", content, metadata, detect_conflicts=True, resolve=resolve, **more
        )
        report = entry.conflict_report
        return report if report is not None and (report.found or report.note) else None

    async def call(self, ability: str, *args: Any, **kwargs: Any) -> Any:
        """What one of its methods returns; one that blocks runs in a thread."""
        return await invoke(self._can[ability], *args, **kwargs)

    async def check_relevance(self, least: float | None) -> None:
        """Raise `InvalidInput` for a least relevance where the store is a scope of a
        memory whose embedder has no calibration.
        """
        view = getattr(self.store, "_original", self.store) if _is_view(self.store) else None
        if isinstance(view, ScopedMemory):
            await view._access.engine.embeddings.check_relevance(least, "hybrid")

    async def search(self, query: str, limit: int | None) -> list[StoreEntry]:
        """What it finds, stamped with its name; at most `limit`, or what is configured,
        or 3 (E21).
        """
        most = limit or self.limit or LIMIT
        found = await self.call("search", query, limit=most)
        if isinstance(found, str | bytes | Mapping):
            raise InvalidInput(
                "search",
                f"store '{self.name}' returned a {type(found).__name__}, not a list of results",
            )
        return [_entry_of(one, self.name) for one in list(found)[:most]]


ABILITIES = ("search", "add", "add_messages", "initialize", "get_tools")


def _abilities(store: Any) -> dict[str, Callable[..., Any]]:
    if _is_view(store):
        return {"search": store.search, "add": _writes_to(store)}
    return {name: method for name in ABILITIES if (method := _own(store, name)) is not None}


def _is_view(store: Any) -> bool:
    """Whether it is a scope of a memory, or its blocking twin."""
    return ScopedMemory in (type(store), getattr(type(store), "__wrapped__", None))


def _writes_to(view: Any) -> Callable[..., Any]:
    """`add` of a scope of a memory."""

    async def add(
        content: str,
        metadata: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        provenance: Provenance = UNSAID,
        **checking: Any,
    ) -> Any:
        with _kept_once(key):
            return await view.write(
                content, metadata=metadata, key=key, **provenance.to_arguments(), **checking
            )

    def add_blocking(
        content: str,
        metadata: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        provenance: Provenance = UNSAID,
        **checking: Any,
    ) -> Any:
        with _kept_once(key):
            return view.write(content, metadata=metadata, key=key, **provenance.to_arguments(), **checking)

    return add if inspect.iscoroutinefunction(view.write) else add_blocking


@contextmanager
def _kept_once(key: str | None) -> Iterator[None]:
    """No conflict where the same words stand under the key already, with other
    metadata: a key is of the words alone (decision E71), and a model that reads the
    same again may say another thing of them.
    """
    try:
        yield
    except Conflict as error:
        if key is None or error.existing_id is None or error.deleted_at is not None:
            raise


def _own(store: Any, name: str) -> Callable[..., Any] | None:
    """A method of a store, unless it is the base's, which only says what it would do."""
    method = getattr(store, name, None)
    if not callable(method) or getattr(type(store), name, None) is getattr(MemoryStore, name):
        return None
    return method  # type: ignore[no-any-return]


def content_of(value: object, field: str = "content") -> str:
    """A text that may be kept: not blank, and no longer than an entry's."""
    checked = validation.text(field, value, max_bytes=validation.MAX_CONTENT_BYTES)
    if not checked.strip():
        raise InvalidInput(field, "must not be blank")
    return checked


def _relevance_of(said: Any) -> float | None:
    """Return the relevance that a store's own result gives; None where it is no number
    from 0 to 1.
    """
    known = isinstance(said, int | float) and not isinstance(said, bool) and 0 <= said <= 1
    return float(said) if known else None


def _entry_of(found: Any, name: str) -> StoreEntry:
    """One thing found, however the store says it."""
    if isinstance(found, FoundEntry):
        said = ": ".join(part for part in (found.entry.title, found.entry.content) if part)
        return StoreEntry(said, name, dict(found.entry.metadata) or None, relevance=found.relevance)
    if isinstance(found, str):
        return StoreEntry(found, name)
    names = ("content", "metadata", "relevance")
    content, metadata, relevance = (
        found.get(key) if isinstance(found, Mapping) else getattr(found, key, None) for key in names
    )
    if not isinstance(content, str):
        raise InvalidInput(
            "search", f"store '{name}' returned a {type(found).__name__} without a content that is text"
        )
    return StoreEntry(content, name, dict(metadata) if metadata else None, relevance=_relevance_of(relevance))
