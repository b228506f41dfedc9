"""Google ADK over `memory`: a memory service."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from google.adk.events.event import Event
from google.adk.memory import BaseMemoryService
from google.adk.memory.base_memory_service import SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import Session
from google.genai import types

from memory import Entry, InvalidInput, Memory, PartialWrite, Scope
from tests.fitness.google_adk.state import session_key

RESULTS = 10
READ_AT_ONCE = 1_000
CHUNK_CHARACTERS = 16_000
"""A longer text becomes several entries: an entry holds 64 KiB."""
CONTENT_CHARACTERS = 12_000
"""A content of at most as many characters of JSON comes back with all of its parts."""


class EntryMemoryService(BaseMemoryService):
    """Keeps the memories of ADK in the entries of users.

        memory = Memory("sqlite:///agents.db", loop="own")
        runner = Runner(app_name="boats", agent=agent, memory_service=EntryMemoryService(memory))

    Each event with text becomes an entry in the scope of the user, once. `agent` of the
    entry is the app, and apps do not see each other's memories. `speaker` is the author
    of the event. A memory that was deleted does not come back with its session.

    Args:
        memory: An open memory that was made with `loop="own"`. Its owner closes it.
        results: The most memories that a search returns.
    """

    def __init__(self, memory: Memory, *, results: int = RESULTS) -> None:
        self._memory = memory
        self._results = results

    async def add_session_to_memory(self, session: Session) -> None:
        """Add the events of a session. It may be added again with more events.

        An event that was changed since replaces its memory.
        """
        drafts = _event_drafts(session.app_name, session.user_id, session.events, session.id, {})
        await self._write(session.app_name, session.user_id, drafts, replaces=True)

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Add the events that were not added before.

        Args:
            custom_metadata: Becomes the metadata of the entries, to filter by.
        """
        drafts = _event_drafts(app_name, user_id, events, session_id, custom_metadata or {})
        await self._write(app_name, user_id, drafts, replaces=False)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Add memories. One with an id replaces the memory of that id.

        Raises:
            InvalidInput: A memory has no text. None is added.
        """
        drafts = []
        for number, one in enumerate(memories):
            if not _text_of(one.content):
                raise InvalidInput(f"memories[{number}].content", "has no part with a text")
            fields = {
                "speaker": one.author,
                "metadata": {**(custom_metadata or {}), **one.custom_metadata},
            }
            given = {} if one.timestamp is None else {"timestamp": one.timestamp}
            drafts.append(_drafts(one.content, app_name, one.id, fields, given))
        await self._write(app_name, user_id, drafts, replaces=True)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """Return the memories that answer best; none for a blank query."""
        if not query.strip():
            return SearchMemoryResponse()
        found = await self._memory.search(
            query, scope=Scope.user(user_id), filter={"agent": app_name}, limit=self._results
        )
        return SearchMemoryResponse(memories=[_memory_of(hit.entry) for hit in found])

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Delete a memory by the id that `search_memory` returned, if it exists.

        Raises:
            ValueError: The id is missing.
        """
        if not memory_id:
            raise ValueError("memory_id is required")
        mine = self._memory.scoped(Scope.user(user_id))
        entry = await mine.get(memory_id)
        if entry is not None and entry.agent == app_name:
            await mine.delete(memory_id)

    async def _write(
        self, app_name: str, user_id: str, drafts: Iterable[list[dict[str, Any]]], *, replaces: bool
    ) -> None:
        """Write each draft once; changed ones again, and deleted ones not at all."""
        scope = Scope.user(user_id)
        given = [{"scope": scope, "agent": app_name, **draft} for several in drafts for draft in several]
        stored = await self._stored(scope, [draft["key"] for draft in given if "key" in draft])
        # Conflicts are memories that were deleted, or that another process just wrote.
        with suppress(PartialWrite):
            await self._memory.write_many([one for one in given if one.get("key") not in stored])
        if replaces:
            changed = [
                {name: value for name, value in one.items() if name != "created_at"}
                for one in given
                if (entry := stored.get(one.get("key"))) is not None and _differs(one, entry)
            ]
            await self._memory.write_many(changed, if_exists="replace")

    async def _stored(self, scope: Scope, keys: list[str]) -> dict[str | None, Entry]:
        """Return the entries of these keys that exist."""
        found: dict[str | None, Entry] = {}
        for start in range(0, len(keys), READ_AT_ONCE):
            part = await self._memory.get_many(scope=scope, keys=keys[start : start + READ_AT_ONCE])
            found |= {entry.key: entry for entry in part if entry is not None}
        return found


def _differs(draft: Mapping[str, Any], entry: Entry) -> bool:
    return any(draft[name] != getattr(entry, name) for name in ("content", "data", "metadata"))


def _event_drafts(
    app_name: str,
    user_id: str,
    events: Sequence[Event],
    session_id: str | None,
    metadata: Mapping[str, object],
) -> list[list[dict[str, Any]]]:
    """Return the entries of the events that have a text."""
    found = {}
    for event in events:
        if not event.content or not _text_of(event.content):
            continue
        fields = {
            "speaker": event.author,
            "created_at": datetime.fromtimestamp(event.timestamp, UTC),
            "metadata": dict(metadata),
        }
        if session_id is not None:
            fields["conversation_id"] = session_key(app_name, user_id, session_id)
        found[event.id] = _drafts(event.content, app_name, event.id, fields)
    return list(found.values())


def _text_of(content: types.Content) -> str:
    return " ".join(part.text for part in content.parts or [] if part.text and not part.thought).strip()


def _drafts(
    content: types.Content,
    app_name: str,
    memory_id: str | None,
    fields: dict[str, Any],
    data: Mapping[str, Any] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Return the entries of one memory: one, unless its text is too long for an entry."""
    text = _text_of(content)
    whole = content.model_dump(mode="json", exclude_none=True)
    kept = {"role": content.role, **data}
    if len(json.dumps(whole)) <= CONTENT_CHARACTERS:
        kept["content"] = whole
    key = None if memory_id is None else f"adk/{quote(app_name, safe='')}/{memory_id}"
    drafts = []
    for start in range(0, len(text), CHUNK_CHARACTERS):
        chunk = {"content": text[start : start + CHUNK_CHARACTERS], "data": kept, **fields}
        if key is not None:
            chunk["key"] = f"{key}#{start}" if start else key
        drafts.append(chunk)
    return drafts


def _memory_of(entry: Entry) -> MemoryEntry:
    data = entry.data
    content = data.get("content") or {"role": data["role"], "parts": [{"text": entry.content}]}
    return MemoryEntry(
        id=entry.id,
        content=types.Content.model_validate(content),
        author=entry.speaker,
        timestamp=data.get("timestamp") or entry.created_at.isoformat(),
        custom_metadata=entry.metadata,
    )
