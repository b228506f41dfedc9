"""The scope of a session's records, the session's key, and the sessions of scopes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from memory.domain import ids
from memory.domain.scope import Scope, ScopeKind, Subtree
from memory.orchestrator.storage.split import CONVERSATION
from memory.ports.query import And, Condition, In, IsNull, Or
from memory.ports.record import Key


def scope_of(session_id: str) -> str:
    """Return the scope of a conversation.

    It differs from the scope of the session's entries: erasing one leaves the other.
    """
    return f"{CONVERSATION}:{session_id}"


def session_of(scope: str) -> str:
    """Return the id of the session that a scope names."""
    return scope.partition(":")[2]


def session_key(tenant: str, session_id: str) -> Key:
    return Key(tenant, ids.derived_id(tenant, scope_of(session_id), "session"))


def sessions_of(scopes: Iterable[Scope | Subtree]) -> Condition:
    """Return the condition of the sessions of these scopes and of their users."""
    exact = [scope for scope in scopes if isinstance(scope, Scope)]
    users = tuple(scope.id for scope in exact if scope.kind is ScopeKind.USER)
    conversations = tuple(scope_of(scope.id) for scope in exact if scope.kind is ScopeKind.SESSION)
    return Or((In("subject", users), In("scope", conversations)))


def message_time(compared: Callable[[str, datetime], Condition], moment: datetime) -> Condition:
    """Return the condition on when messages were said.

    That is a message's own time, as imported messages have one, or when it was written.
    """
    return Or((compared("at", moment), And((IsNull("at"), compared("created_at", moment)))))
