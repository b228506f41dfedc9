"""Strands Agents over `memory`: storage of snapshots, and memory stores."""

from __future__ import annotations

import builtins
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from strands.memory import (
    AddMessagesContext,
    ExtractionConfig,
    MemoryEntry,
    MemoryStore,
    SearchOptions,
)
from strands.storage import Storage
from strands.storage.storage import _NamespacedStorage
from strands.types.content import Message
from strands.types.exceptions import StorageError

from memory import Conflict, FoundEntry, Memory, MemoryTiersError, Scope

RESULTS = 10


class MemoryStorage(Storage):
    """Keeps bytes in the documents of one scope, for `SnapshotSessionManager`.

        manager = SnapshotSessionManager("chat-1", storage=MemoryStorage(memory, "user:ada"))

    Keys have 1 to 512 bytes, and are compared as they are.

    Args:
        memory: An open memory that was made with `loop="own"`. Its owner closes it.
        scope: The scope of the documents.
    """

    def __init__(self, memory: Memory, scope: Scope | str) -> None:
        self._documents = memory.documents
        self._scope = scope

    async def write(self, key: str, data: bytes) -> None:
        """Store data under a key, in place of what is there."""
        with _storage_errors():
            await self._documents.put(self._scope, key, bytes(data))

    async def read(self, key: str) -> bytes | None:
        """Return the data under a key, or None."""
        with _storage_errors():
            found = await self._documents.get(self._scope, key)
        return None if found is None else found.value

    async def delete(self, key: str) -> None:
        """Delete the data under a key, if there is any."""
        with _storage_errors():
            await self._documents.delete(self._scope, key)

    async def list(self, query: str) -> builtins.list[str]:
        """Return the keys that begin with a prefix, in order."""
        with _storage_errors():
            return [document.key async for document in self._documents.iterate(self._scope, prefix=query)]

    def namespace(self, prefix: str) -> Storage:
        """Return a view that puts a prefix before all keys."""
        return _NamespacedStorage(self, prefix)


@contextmanager
def _storage_errors() -> Iterator[None]:
    try:
        yield
    except MemoryTiersError as error:
        raise StorageError(str(error)) from error


class ScopeMemoryStore(MemoryStore):
    """A `MemoryStore` over the entries of one scope.

        facts = ScopeMemoryStore(memory, "user:ada", name="ada", extraction=True)
        agent = Agent(memory_manager=MemoryManager([facts]))

    A text that is added again is stored once. With `extraction=True` Strands asks a
    model for the facts of the conversation, and adds them.

    Args:
        memory: An open memory that was made with `loop="own"`. Its owner closes it.
        scope: The scope to search, and to write to.
        name: The name of the store for the model.
        description: Tells the model what the store holds.
        max_search_results: The number of results, 10 by default.
        writable: Whether the agent may add to it.
        extraction: Whether and how facts are extracted from the conversation.
    """

    _finds_messages = False

    def __init__(
        self,
        memory: Memory,
        scope: Scope | str,
        *,
        name: str,
        description: str | None = None,
        max_search_results: int | None = None,
        writable: bool = True,
        extraction: ExtractionConfig | bool | None = None,
    ) -> None:
        self.name = name
        self.description = description
        self.max_search_results = max_search_results
        self.writable = writable
        self.extraction = extraction
        self._memory = memory
        self._scoped = memory.scoped(scope)

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemoryEntry]:
        """Return the entries that answer best, and none for a blank query."""
        asked = (options or {}).get("max_search_results")
        limit = asked if asked is not None else self.max_search_results
        if not query.strip():
            return []
        most = RESULTS if limit is None else limit
        found = await self._scoped.search(query, limit=most, messages=self._finds_messages)
        return [_entry(hit) for hit in found]

    async def add(self, content: str, metadata: dict[str, Any] | None = None) -> str:
        """Store a text once, and return the id of its entry.

        Raises:
            InvalidInput: The text is blank.
            ValueError: The store is not writable.
        """
        if not self.writable:
            raise ValueError(f"store '{self.name}' is not writable. Pass writable=True to allow it")
        key = hashlib.sha256(content.strip().encode()).hexdigest()
        try:
            entry = await self._scoped.write(content, metadata=metadata, key=key, if_exists="keep")
        except Conflict:  # the fact was true before, was retired, and is true again
            entry = await self._scoped.write(content, metadata=metadata)
        return entry.id


class ConversationMemoryStore(ScopeMemoryStore):
    """A `ScopeMemoryStore` that also stores the messages of the agent themselves.

    With `extraction=True` no model is asked: the messages go to a session, and `search`
    finds them beside the entries of the scope.

    Args:
        memory: As in `ScopeMemoryStore`.
        user: The user whose entries and messages are searched.
        session_id: The session that receives the messages.
        **settings: The other arguments of `ScopeMemoryStore`.
    """

    _finds_messages = True

    def __init__(self, memory: Memory, user: str, session_id: str, **settings: Any) -> None:
        super().__init__(memory, Scope.user(user), **settings)
        self._session = memory.session(session_id, user=user)
        self._run = uuid4().hex

    async def initialize(self) -> None:
        """Begin a run of the agent: sequence numbers of messages start anew."""
        self._run = uuid4().hex

    async def add_messages(self, messages: list[Message], context: AddMessagesContext | None = None) -> None:
        """Append messages to the session; a repeated batch is stored once."""
        numbers = context.sequence_numbers if context is not None else None
        ids = None if numbers is None else [f"{self._run}-{number}" for number in numbers]
        await self._session.append(messages, format="bedrock", id=ids)


def _entry(hit: Any) -> MemoryEntry:
    added = {"_id": hit.id, "_relevance": hit.relevance}
    if not isinstance(hit, FoundEntry):
        return MemoryEntry(hit.content, metadata=added)
    entry = hit.entry
    content = ": ".join(part for part in (entry.title, entry.content) if part)
    return MemoryEntry(content, metadata={**entry.metadata, **added})
