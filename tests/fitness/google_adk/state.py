"""How ADK's names and states are kept in a memory."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote

from google.adk.events.event import Event
from google.adk.sessions import Session, State
from pydantic_core import to_jsonable_python

from memory import Scope

VALUE = "="
"""Stands before the keys of a session's state, which may be any text."""
UPDATED, NEWEST = "updated", "newest"
"""In the state of a session: when it was last updated, and the id of its newest event."""


def session_key(app_name: str, user_id: str, session_id: str) -> str:
    """Return the id of the memory's session for a session of ADK."""
    return "/".join(quote(part, safe="") for part in ("adk", app_name, user_id, session_id))


def parse_key(key: str, app_name: str) -> tuple[str, str] | None:
    """Return the user and the id of a session of ADK; None for any other session."""
    parts = [unquote(part) for part in key.split("/")]
    is_one = len(parts) == 4 and session_key(app_name, parts[2], parts[3]) == key
    return (parts[2], parts[3]) if is_one else None


def shared_places(app_name: str, user_id: str) -> tuple[tuple[Scope, str], tuple[Scope, str]]:
    """Return the scope and the key of the state of the user, and of that of the app."""
    key = f"adk/state/{quote(app_name, safe='')}"
    return (Scope.user(user_id), key), (Scope.object("adk", "apps"), key)


def split_state(state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Split a state into that of the session, of the user and of the app, as JSON.

    A value of the session is kept in a list, so that None does not remove it.
    """
    mine: dict[str, Any] = {}
    users: dict[str, Any] = {}
    apps: dict[str, Any] = {}
    for key, value in to_jsonable_python(state, fallback=str).items():
        if key.startswith(State.APP_PREFIX):
            apps[key.removeprefix(State.APP_PREFIX)] = value
        elif key.startswith(State.USER_PREFIX):
            users[key.removeprefix(State.USER_PREFIX)] = value
        elif not key.startswith(State.TEMP_PREFIX):
            mine[VALUE + key] = [value]
    return mine, users, apps


def build_session(
    app_name: str,
    user_id: str,
    name: str,
    state: Any,
    shared: tuple[dict[str, Any], dict[str, Any]],
    events: list[Event],
) -> Session:
    """Return a session of ADK, with the state of its user and of its app."""
    users, apps = shared
    merged = {key.removeprefix(VALUE): held[0] for key, held in state.items() if key.startswith(VALUE)}
    merged |= {State.APP_PREFIX + key: value for key, value in apps.items()}
    merged |= {State.USER_PREFIX + key: value for key, value in users.items()}
    session = Session(
        app_name=app_name,
        user_id=user_id,
        id=name,
        state=merged,
        events=events,
        last_update_time=state[UPDATED],
    )
    session._storage_update_marker = state.version
    return session


def newer_events(events: list[dict[str, Any]], since: float | None) -> list[dict[str, Any]]:
    """Return the events after the last one that is older than a moment."""
    older = [number for number, one in enumerate(events) if since is not None and one["timestamp"] < since]
    return events[older[-1] + 1 :] if older else events
