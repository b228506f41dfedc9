"""The scope of a session's records and the key of the session, from its id."""

from __future__ import annotations

from memory.domain import ids
from memory.orchestrator.storage.split import CONVERSATION
from memory.ports.record import Key


def scope_of(session_id: str) -> str:
    """Return the scope of a conversation.

    It differs from the scope of the session's entries: erasing one leaves the other.
    """
    return f"{CONVERSATION}:{session_id}"


def session_key(tenant: str, session_id: str) -> Key:
    return Key(tenant, ids.derived_id(tenant, scope_of(session_id), "session"))
