"""The stores of a manager: named objects that can search, and may do more."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from memory.agents.manager.extraction import Extraction, resolve_extraction
from memory.domain import validation
from memory.domain.agent_results import StoreEntry
from memory.domain.conflicts import ConflictReport
from memory.domain.corrections import explain_arguments
from memory.domain.entry import Entry
from memory.domain.errors import Conflict, InvalidInput, Unsupported
from memory.domain.provenance import UNSAID, Provenance
from memory.domain.search_results import FoundEntry
from memory.facade.memory import Memory
from memory.facade.runtime.access import Access, access_of, engine_of
from memory.facade.scoped import ScopedMemory
from memory.orchestrator.enrichment.conflicts import Resolver
from memory.orchestrator.storage.callbacks import invoke

LIMIT = 3
"""The limit of a search if neither the caller nor the store sets one."""


class MemoryStore:
    """A base class for custom stores.

    `search` is required. Other methods are optional: a method that is not overridden
    counts as missing.
    """

    async def search(self, query: str, *, limit: int) -> Sequence[Any]:
        """Return the best entries, at most `limit`, the best first.

        Each is a `StoreEntry`, a mapping with a `content`, or a text.
        """
        raise Unsupported("search", store=type(self).__name__)

    async def add(self, content: str, metadata: Mapping[str, Any] | None = None) -> Any:
        """Add one text.

        The manager may repeat a call with the same text. A store chooses its return
        value.
        """
        raise Unsupported("add", store=type(self).__name__)

    async def add_messages(self, messages: Sequence[Any], context: Mapping[str, Any] | None = None) -> Any:
        """Add messages as they are; calls may be repeated, as with `add`."""
        raise Unsupported("add_messages", store=type(self).__name__)

    async def initialize(self) -> None:
        """Prepare the store. The manager calls it once, before the first use."""

    def get_tools(self) -> Sequence[Any]:
        """Return more tools. The manager registers them after its own."""
        return ()


@explain_arguments
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class NamedStore:
    """A store with its name and settings.

    The manager may deliver messages again if it does not know whether they arrived.
    Then it uses the same `key`, if the store's `add` takes one. If `add` takes a
    `provenance`, it also receives the provenance of the text. A scope of a memory takes
    both.

    Args:
        name: The name of the store.
        store: A scoped view of a memory, or any object with `search`. A writable store
            needs `add` or `add_messages`. Blocking methods are called in a thread.
        description: Tells a model what the store holds.
        limit: The limit of a search if the caller gives none.
        writable: Whether the manager may add to it.
        extraction: Whether and how it receives an agent's messages. See
            `MemoryManager.record`.
    """

    name: str
    store: Any
    description: str | None = None
    limit: int | None = None
    writable: bool = False
    extraction: bool | Extraction = False
    learns: Extraction | None = field(init=False, default=None)
    """The resolved `extraction`; None if nothing is extracted into the store."""
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
        if _is_memory(self.store):
            raise InvalidInput(
                "stores",
                f"store '{self.name}' is a whole memory, and a store is one scope. Pass"
                " memory.scoped('user:ada')",
            )
        if "search" not in self._can:
            raise InvalidInput(
                "stores",
                f"store '{self.name}' has no search method. Add one to {type(self.store).__name__}",
            )
        able = {"adds": self.can("add"), "takes_messages": self.can("add_messages")}
        object.__setattr__(
            self, "learns", resolve_extraction(self.extraction, self.name, writable=self.writable, **able)
        )

    def __repr__(self) -> str:
        return f"<NamedStore {self.name!r}{' writable' * self.writable}>"

    def can(self, ability: str) -> bool:
        """Return whether the store itself has that method."""
        return ability in self._can

    @property
    def access(self) -> Access | None:
        """The access to the memory that the store is a view of, or None."""
        if not _is_view(self.store):
            return None
        view: ScopedMemory = getattr(self.store, "_original", self.store)
        return access_of(view)

    @property
    def takes_texts(self) -> bool:
        """Whether single texts may be added."""
        return self.writable and self.can("add")

    @property
    def takes_keys(self) -> bool:
        """Whether `add` takes a key, so that repeated calls store a text once."""
        return self.can("add") and "key" in inspect.signature(self._can["add"]).parameters

    @property
    def takes_provenance(self) -> bool:
        """Whether `add` takes a `Provenance`, as that of a scope of a memory does."""
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
        """Add one text, with its provenance and key if the store takes them.

        Return the conflicts that a scope of a memory found; None if it found none or
        did not look for them.
        """
        metadata = (
            None if metadata is None else deepcopy(dict(metadata))
        )  # each store may change its own copy
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
        """Call a method of the store. A blocking one runs in a thread."""
        return await invoke(self._can[ability], *args, **kwargs)

    async def check_relevance(self, least: float | None) -> None:
        """Raise `InvalidInput` for a minimum relevance without a calibrated embedder.

        Only stores that are a scope of a memory are checked.
        """
        view = getattr(self.store, "_original", self.store) if _is_view(self.store) else None
        if isinstance(view, ScopedMemory):
            await engine_of(view).embeddings.check_relevance(least, "hybrid")

    async def search(self, query: str, limit: int | None) -> list[StoreEntry]:
        """Search the store and set its name on the results.

        Return at most `limit` results; the default is the configured limit, or 3.
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
    """Return whether it is a scope of a memory, sync or async."""
    return ScopedMemory in (type(store), getattr(type(store), "__wrapped__", None))


def _is_memory(store: Any) -> bool:
    """Return whether it is a memory, sync or async, whose `search` needs a scope."""
    return issubclass(getattr(type(store), "__wrapped__", type(store)), Memory)


def _writes_to(view: Any) -> Callable[..., Any]:
    """Return the `add` of a scope of a memory."""

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
    """Ignore the conflict if the key exists with the same text and other metadata.

    A key depends on the text only. A model that reads the same messages again may
    return other metadata.
    """
    try:
        yield
    except Conflict as error:
        if key is None or error.existing_id is None or error.deleted_at is not None:
            raise


def _own(store: Any, name: str) -> Callable[..., Any] | None:
    """Return a method of a store; None if only `MemoryStore` defines it."""
    method = getattr(store, name, None)
    if not callable(method) or getattr(type(store), name, None) is getattr(MemoryStore, name):
        return None
    return method  # type: ignore[no-any-return]


def content_of(value: object, field: str = "content") -> str:
    """Validate a text to store: not blank, and within the size limit of an entry."""
    checked = validation.text(field, value, max_bytes=validation.MAX_CONTENT_BYTES)
    if not checked.strip():
        raise InvalidInput(field, "must not be blank")
    return checked


def _relevance_of(said: Any) -> float | None:
    """Return a result's relevance; None unless it is a number from 0 to 1."""
    known = isinstance(said, int | float) and not isinstance(said, bool) and 0 <= said <= 1
    return float(said) if known else None


def _entry_of(found: Any, name: str) -> StoreEntry:
    """Convert one result of a store to a `StoreEntry`."""
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
