"""Where a session's records lie, and under which key its own stands: both are told by
its id.
"""

from __future__ import annotations

from memory.domain import ids
from memory.orchestrator.storage.split import CONVERSATION
from memory.ports.record import Key


def scope_of(session_id: str) -> str:
    """The scope of a conversation: apart from that of the session's entries, whose
    erasure leaves the conversation, and the other way round.
    """
    return f"{CONVERSATION}:{session_id}"


def session_key(tenant: str, session_id: str) -> Key:
    return Key(tenant, ids.derived_id(tenant, scope_of(session_id), "session"))
