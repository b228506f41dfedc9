"""Transcripts of the Claude Agent SDK, mirrored into memory-tiers.

options = ClaudeAgentOptions(session_store=MemorySessionStore(memory))
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast
from urllib.parse import quote
from uuid import uuid4

from claude_agent_sdk import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
    fold_session_summary,
)

from memory import InvalidInput, Memory, NotFound, Session, SessionInfo, VersionConflict
from memory.formats import import_message

FORMAT = "claude"
MOST_AT_ONCE = 500
"""Lines of one write of memory-tiers."""
SUMMARY = "summary"
"""The name of the summary in the state of a session."""
OPAQUE = "memory-tiers/line"
"""The type of a line that holds another line as text."""
MOST_ID_BYTES = 512
READS_AT_ONCE = 16
RETRIES_KNOWN = 64


class MemorySessionStore:
    """A `SessionStore` of the Claude Agent SDK over sessions of memory-tiers.

    Each transcript is one session, and each line one message. Lines are loaded equal.
    `memory.search_messages` finds the text of users and of the assistant. A transcript
    of a subagent is a session of its own.

    A line with a `uuid` is stored once, however often it is sent. Lines that share a
    `uuid` but differ are all stored, and so are equal lines of one batch. A batch that
    failed may be sent again: also its lines without a `uuid` are stored once then.

    Args:
        memory: The memory. `memory.for_tenant("acme")` keeps tenants apart. Make it
            with `loop="own"` to use the store from several event loops.
        user: The user that the transcripts belong to. `memory.admin.erase_user` erases
            them.
    """

    def __init__(self, memory: Memory, *, user: str | None = None) -> None:
        self._memory = memory
        self._user = user
        self._failed: dict[str, str] = {}

    # -- lines -------------------------------------------------------------------------

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add lines behind those that the transcript has.

        The summary of a main transcript is stored behind its lines. Another process
        that appends at the same time does not overwrite it.
        """
        if not entries:
            return
        session = self._session(key, create=True)
        digest = _digest([key, entries]) if self._failed else ""
        request = self._failed.pop(digest, None) or uuid4().hex
        try:
            for first in range(0, len(entries), MOST_AT_ONCE):
                part = entries[first : first + MOST_AT_ONCE]
                await self._append(session, part, f"{request}:{first}")
            if not key.get("subpath"):
                await _summarise(session, key, entries)
        except Exception:
            while len(self._failed) >= RETRIES_KNOWN:
                self._failed.pop(next(iter(self._failed)))
            self._failed[_digest([key, entries])] = request
            raise

    async def _append(self, session: Session, lines: Sequence[SessionStoreEntry], request: str) -> None:
        ids = _line_ids(lines)
        lines = [_opaque(line) if line.get("type") == OPAQUE else line for line in lines]
        request_id = request if None in ids else None
        try:
            await session.append(lines, format=FORMAT, id=ids, request_id=request_id)
        except InvalidInput:
            lines = [line if _is_readable(line) else _opaque(line) for line in lines]
            await session.append(lines, format=FORMAT, id=ids, request_id=request_id)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return all lines of a transcript; None if there is none."""
        try:
            window = await self._session(key, create=False).window()
        except NotFound:
            return None
        lines = [_loaded(line) for line in window.to(FORMAT)]
        return cast(list[SessionStoreEntry], lines) or None

    async def delete(self, key: SessionKey) -> None:
        """Erase a transcript; a main transcript with those of its subagents."""
        if not key.get("subpath"):
            async for info in self._listed(_name(key["project_key"], key["session_id"])):
                await self._memory.sessions.delete(info.id)
        await self._memory.sessions.delete(_session_id(key))

    # -- lists -------------------------------------------------------------------------

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the main transcripts of a project, with the time of the last line."""
        listed = self._listed(_name(project_key))
        return [{"session_id": info.metadata["session_id"], "mtime": _mtime(info)} async for info in listed]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the summaries of the main transcripts of a project."""
        turns = asyncio.Semaphore(READS_AT_ONCE)

        async def read(info: SessionInfo) -> SessionSummaryEntry | None:
            async with turns:
                try:
                    state = await self._memory.session(info.id, create=False).state()
                except NotFound:  # it was deleted meanwhile
                    return None
            data = state.get(SUMMARY)
            name = info.metadata["session_id"]
            return None if data is None else {"session_id": name, "mtime": _mtime(info), "data": data}

        listed = [info async for info in self._listed(_name(project_key))]
        read_all = await asyncio.gather(*(read(info) for info in listed))
        return [summary for summary in read_all if summary is not None]

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of the transcripts of a session's subagents."""
        listed = self._listed(_name(key["project_key"], key["session_id"]))
        return sorted([info.metadata["subpath"] async for info in listed])

    async def _listed(self, namespace: str) -> AsyncIterator[SessionInfo]:
        cursor, more = None, True
        while more:
            page = await self._memory.sessions.list(
                namespace=namespace, user=self._user, by="created", order="oldest", limit=1_000, cursor=cursor
            )
            for info in page.sessions:
                yield info
            cursor, more = page.cursor, page.cursor is not None

    def _session(self, key: SessionKey, *, create: bool) -> Session:
        subpath = key.get("subpath")
        parents = (key["project_key"], key["session_id"]) if subpath else (key["project_key"],)
        names = {"session_id": key["session_id"]} | ({"subpath": subpath} if subpath else {})
        return self._memory.session(
            _session_id(key), create=create, user=self._user, namespace=_name(*parents), metadata=names
        )


async def _summarise(session: Session, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
    """Fold the lines into the summary that the state of the session has."""
    while True:
        state = await session.state()
        before = state.get(SUMMARY)
        known: SessionSummaryEntry | None = None
        if before is not None:
            known = {"session_id": key["session_id"], "mtime": 0, "data": before}
        after = fold_session_summary(known, key, entries)["data"]
        if after == before:
            return
        try:
            await session.append([], state={SUMMARY: after}, expected_version=state.version)
        except VersionConflict:
            continue
        return


def _session_id(key: SessionKey) -> str:
    subpath = key.get("subpath")
    return _name(key["project_key"], key["session_id"], *([subpath] if subpath else []))


def _name(*parts: str) -> str:
    """Return a name of these parts that no other parts have."""
    name = "/".join(["claude", *(quote(part, safe="") for part in parts)])
    return name if len(name) <= MOST_ID_BYTES else f"claude/{_digest(parts)}/{len(parts)}"


def _line_ids(lines: Sequence[SessionStoreEntry]) -> list[str | None]:
    """Return the id of each line that has a `uuid`.

    Different lines with the same `uuid` get different ids, and so do equal lines.
    """
    seen: Counter[str] = Counter()
    ids: list[str | None] = []
    for line in lines:
        if not line.get("uuid"):
            ids.append(None)
            continue
        name = _digest(line)
        ids.append(f"{str(line['uuid'])[:64]}:{name[:32]}:{seen[name]}")
        seen[name] += 1
    return ids


def _opaque(line: SessionStoreEntry) -> SessionStoreEntry:
    """Return a line that holds this one as text, because memory-tiers cannot read it."""
    return cast(SessionStoreEntry, {"type": OPAQUE, "line": json.dumps(line)})


def _is_readable(line: SessionStoreEntry) -> bool:
    try:
        import_message(line, FORMAT)
    except InvalidInput:
        return False
    return True


def _loaded(line: dict[str, Any]) -> dict[str, Any]:
    held: dict[str, Any] = json.loads(line["line"]) if line["type"] == OPAQUE else line
    return held


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _mtime(info: SessionInfo) -> int:
    return int(info.updated_at.timestamp() * 1_000)
