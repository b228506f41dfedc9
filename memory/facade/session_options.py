"""The options of a new session, as callers pass them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TypedDict

from memory.domain import validation
from memory.domain.entry import check_expiry, check_title
from memory.domain.message import Message, Role
from memory.facade.arguments import Metadata, Moment, flag
from memory.orchestrator.conversations.sessions import SessionDraft


class SessionOptions(TypedDict, total=False):
    """The arguments that describe a session; see `Memory.session`."""

    system: str | None
    user: str | None
    agent: str | None
    namespace: str | None
    title: str | None
    tags: Sequence[str]
    metadata: Metadata | None
    expires_at: Moment | timedelta | None
    shared: bool


def draft_of(session_id: str | None, options: SessionOptions) -> SessionDraft:
    """Check the arguments that describe a session, and return them as a draft."""

    def identifier(name: str, value: str | None) -> str | None:
        return None if value is None else validation.identifier(name, value)

    user, agent = identifier("user", options.get("user")), identifier("agent", options.get("agent"))
    namespace, system = identifier("namespace", options.get("namespace")), None
    if (text := options.get("system")) is not None:
        checked = validation.text("system", text, max_bytes=validation.MAX_CONTENT_BYTES)
        system = Message(role=Role.SYSTEM, content=checked)
    metadata = options.get("metadata")
    return SessionDraft(
        id=identifier("session_id", session_id),
        system=system,
        user=user,
        agent=agent,
        namespace=namespace,
        title=check_title(options.get("title")),
        tags=validation.tags(validation.sequence("tags", options.get("tags", ()))),
        metadata=validation.json_object("metadata", {} if metadata is None else metadata),
        expires_at=check_expiry(options.get("expires_at")),
        shared=flag("shared", options.get("shared", False)),
    )
