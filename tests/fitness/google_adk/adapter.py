"""Google ADK over `memory`: a session service.

The memory service is in `memory_service.py`.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from functools import partial
from typing import Any

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.sessions import Session
from google.adk.sessions.base_session_service import (
    BaseSessionService,
    GetSessionConfig,
    ListSessionsResponse,
)

from memory import ABSENT, Conflict, Document, Memory, Message, NotFound, VersionConflict
from memory.formats import export_messages
from tests.fitness.google_adk.state import (
    NEWEST,
    UPDATED,
    build_session,
    newer_events,
    parse_key,
    session_key,
    shared_places,
    split_state,
)

PAGE = 1_000
STALE = "The session has been modified in storage since it was read. Get it again."


class MemorySessionService(BaseSessionService):
    """Keeps the sessions of ADK in sessions of a memory, and shared state in documents.

        memory = Memory("sqlite:///agents.db", loop="own")
        runner = Runner(app_name="boats", agent=agent, session_service=MemorySessionService(memory))

    An event and its change of the session's state are stored together or not at all.
    Changes of `app:` and `user:` state follow. Other users of the memory find the
    session under `session_id(app_name, user_id, id)`.

    An event that is appended again is stored once.

    The state of a session has at most 64 KiB as JSON, without `app:` and `user:` keys.

    Args:
        memory: An open memory that was made with `loop="own"`. Its owner closes it.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session. An omitted or blank id is generated.

        Raises:
            AlreadyExistsError: The user has a session with this id.
        """
        name = (session_id or "").strip() or str(uuid.uuid4())
        mine, users, apps = split_state(state or {})
        session = self._session(app_name, user_id, name)
        now = time.time()
        try:
            await session.append([], state={**mine, UPDATED: now, NEWEST: ""}, expected_version=ABSENT)
        except VersionConflict:
            raise AlreadyExistsError(f"Session with id {name} already exists.") from None
        await self._share(app_name, user_id, users, apps)
        found = await self.get_session(app_name=app_name, user_id=user_id, session_id=name)
        if found is None:
            raise SessionNotFoundError(f"Session {name} was deleted while it was created.")
        return found

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Return a session with its state and events, or None."""
        name = session_id.strip()
        try:
            state = await self._state(app_name, user_id, name)
            shared, events = await asyncio.gather(
                self._shared(app_name, user_id), self._events(app_name, user_id, name, config)
            )
        except NotFound:
            return None
        return build_session(app_name, user_id, name, state, shared, events) if state else None

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the sessions of a user, or of all users, without their events."""
        names: list[tuple[str, str]] = []
        cursor: str | None = None
        while True:
            page = await self._memory.sessions.list(
                namespace=app_name, user=user_id, limit=PAGE, cursor=cursor
            )
            names += [found for one in page.sessions if (found := parse_key(one.id, app_name)) is not None]
            if (cursor := page.cursor) is None:
                break
        users = sorted({user for user, _ in names})
        each = await asyncio.gather(*(self._shared(app_name, user) for user in users))
        shared = dict(zip(users, each, strict=True))
        states = await asyncio.gather(*(self._state(app_name, user, name) for user, name in names))
        sessions = [
            build_session(app_name, user, name, state, shared[user], [])
            for (user, name), state in zip(names, states, strict=True)
            if state
        ]
        sessions.sort(key=lambda one: (one.last_update_time, one.user_id, one.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Erase a session with its events and its state, if there is one."""
        await self._memory.sessions.delete(session_key(app_name, user_id, session_id.strip()))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user, with keys that have no prefix."""
        users, _ = await self._shared(app_name, user_id)
        return users

    async def append_event(self, session: Session, event: Event) -> Event:
        """Store an event with its changes of the state, and add it to the session.

        Raises:
            AlreadyExistsError: The session has another event with this id.
            SessionNotFoundError: The session was deleted.
            StaleSessionError: The session was changed since it was read.
        """
        if event.partial:
            return event
        handle = self._session(session.app_name, session.user_id, session.id, create=False)
        try:
            expected = session._storage_update_marker or await _version_of(handle, session)
            self._apply_temp_state(session, event)
            event = self._trim_temp_delta_state(event)
            mine, users, apps = split_state(event.actions.state_delta if event.actions else {})
            fields = event.model_dump(mode="json", exclude_none=True)
            change = {**mine, UPDATED: event.timestamp, NEWEST: event.id}
            try:
                await handle.append(
                    fields, format="adk", id=event.id, state=change, expected_version=expected
                )
            except Conflict:
                await _require_equal(handle, event.id, fields)
            state = await handle.state()
        except NotFound:
            raise SessionNotFoundError(f"Session {session.id} not found.") from None
        await self._share(session.app_name, session.user_id, users, apps)
        if state[NEWEST] == event.id:
            session._storage_update_marker = state.version
        if all(known.id != event.id for known in session.events):
            session.last_update_time = event.timestamp
            self._commit_event_to_session(session, event)
        return event

    def _session(self, app_name: str, user_id: str, name: str, *, create: bool = True) -> Any:
        key = session_key(app_name, user_id, name)
        return self._memory.session(key, user=user_id, namespace=app_name, create=create)

    async def _state(self, app_name: str, user_id: str, name: str) -> Any:
        """Return the stored state of a session; an empty one if there is no session."""
        try:
            return await self._session(app_name, user_id, name, create=False).state()
        except NotFound:
            return {}

    async def _events(
        self, app_name: str, user_id: str, name: str, config: GetSessionConfig | None
    ) -> list[Event]:
        """Return the newest events that a configuration asks for, oldest first."""
        most = None if config is None else config.num_recent_events
        since = None if config is None else config.after_timestamp
        if most == 0:
            return []
        handle = self._session(app_name, user_id, name, create=False)
        messages: list[Message] = []
        cursor: str | None = None
        while True:
            limit = PAGE if most is None else min(PAGE, most + 1)
            page = await handle.history(order="newest", summaries=False, limit=limit, cursor=cursor)
            messages = [item.message for item in reversed(page.items)] + messages
            events = list(export_messages(messages, "adk"))
            if (cursor := page.cursor) is None:
                break
            del events[0]  # it may be the end of an event that has several messages
            if (most is not None and len(events) >= most) or len(newer_events(events, since)) < len(events):
                break
        events = events if most is None else events[-most:]
        return [Event.model_validate(one) for one in newer_events(events, since)]

    async def _shared(self, app_name: str, user_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the state of the user and the state of the app."""
        found = await asyncio.gather(
            *(self._memory.documents.get(scope, key) for scope, key in shared_places(app_name, user_id))
        )
        users, apps = ({} if document is None else document.value for document in found)
        return users, apps

    async def _share(self, app_name: str, user_id: str, users: dict[str, Any], apps: dict[str, Any]) -> None:
        """Merge changes into the state of the user and into the state of the app."""
        for (scope, key), delta in zip(shared_places(app_name, user_id), (users, apps), strict=True):
            if delta:
                await self._memory.documents.edit(scope, key, partial(_merged, delta))


def _merged(delta: dict[str, Any], found: Document | None) -> dict[str, Any]:
    return {**(found.value if found else {}), **delta}


async def _version_of(handle: Any, session: Session) -> str:
    """Return the version of a session that another service or a copy made."""
    state = await handle.state()
    if not state:
        raise NotFound(session.id)
    if state[UPDATED] > session.last_update_time:
        raise StaleSessionError(STALE)
    return str(state.version)


async def _require_equal(handle: Any, event_id: str, fields: dict[str, Any]) -> None:
    """Raise an error unless the session has this event: then it was appended again."""
    page = await handle.history(ids=[event_id])
    if not page.items:
        raise StaleSessionError(STALE) from None
    if page.items[0].message.raw != fields:
        raise AlreadyExistsError(f"The session has another event with the id {event_id}.") from None
