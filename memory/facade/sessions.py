"""`memory.sessions`: sessions as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from memory.domain import door
from memory.domain.entry import check_title
from memory.domain.message import Message, Role
from memory.domain.scope import Scope
from memory.domain.session import STATUSES, SessionInfo, SessionPage
from memory.facade.access import Access
from memory.facade.arguments import Moment, moment
from memory.facade.session import Session
from memory.orchestrator.conversations.sessions import SessionDraft, info_of
from memory.orchestrator.promotion import PromotionReport

LIST_LIMIT = 50


class Sessions:
    """The sessions of a tenant: created, found, listed, ended. What is said in one is a `Session`'s affair, which `memory.session("s1")` hands out.

    Entries that belong to one are written with the scope `session:<id>`; a session that only has entries needs no creation.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def create(
        self,
        session_id: str | None = None,
        *,
        system: str | None = None,
        user: str | None = None,
        agent: str | None = None,
        namespace: str | None = None,
        title: str | None = None,
        tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """A new session, under an id of its own where none is given. Raises `Conflict` where there is one of that id (B12)."""
        draft = draft_of(session_id, system=system, user=user, agent=agent, namespace=namespace, title=title, tags=tags, metadata=metadata)
        return Session._of(self._access, await self._access.engine.conversations.create(self._access.tenant, draft))

    async def get(self, session_id: str) -> SessionInfo | None:
        """The session as its record says, with counts that may be some seconds behind; None where there is none. `Session.info` is exact."""
        record = await self._access.engine.conversations.find(self._access.tenant, door.identifier("session_id", session_id))
        return None if record is None else info_of(record)

    async def list(
        self,
        *,
        status: str | None = None,
        user: str | None = None,
        agent: str | None = None,
        namespace: str | None = None,
        tags: Sequence[str] = (),
        since: Moment | None = None,
        until: Moment | None = None,
        by: Literal["updated", "created"] = "updated",
        order: Literal["newest", "oldest"] = "newest",
        limit: int | None = None,
        cursor: str | None = None,
    ) -> SessionPage:
        """A page of sessions, the last used first unless told: those with all the tags, created from `since` to `until`, both included (B15, B16).

        50 unless told, 1,000 at most; the page's `cursor` asks for those behind it. A session that another process is writing to may be some
        seconds behind in it.
        """
        given = {"subject": user, "agent": agent, "namespace": namespace}
        asked = {name: door.identifier(name, value) for name, value in given.items() if value is not None}
        if status is not None:
            asked["status"] = door.one_of("status", status, STATUSES)
        return await self._access.engine.conversations.sessions.list(
            self._access.tenant,
            asked=asked,
            tags=door.tags(door.sequence("tags", tags)),
            since=moment("since", since),
            until=moment("until", until),
            order=door.one_of("by", by, ("updated", "created")),
            descending=door.one_of("order", order, ("newest", "oldest")) == "newest",
            limit=door.whole_limit(limit, default=LIST_LIMIT),
            cursor=None if cursor is None else door.text("cursor", cursor, max_bytes=4096),
        )

    async def end(self, session_id: str) -> PromotionReport:
        """A session is over: the promotion rules for that move its entries onward. Says what moved by which rule, and what stayed.

        Where it has a conversation, nothing is appended to that until it is resumed.
        """
        door.identifier("session_id", session_id)
        if await self._access.engine.conversations.find(self._access.tenant, session_id) is not None:
            return await Session(self._access, SessionDraft(session_id), create=False).end()
        return await self._access.engine.promotion.end_session(self._access.tenant, Scope.session(session_id))

    async def delete(self, session_id: str) -> bool:
        """Erase a session with everything said in it, and the entries of its scope; false where there was none."""
        return await self._access.engine.conversations.sessions.delete(self._access.tenant, door.identifier("session_id", session_id))


def draft_of(
    session_id: str | None,
    *,
    system: str | None = None,
    user: str | None = None,
    agent: str | None = None,
    namespace: str | None = None,
    title: str | None = None,
    tags: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
) -> SessionDraft:
    """A session as handed in, checked."""
    given = {"user": user, "agent": agent, "namespace": namespace}
    said = None if system is None else Message(role=Role.SYSTEM, content=door.text("system", system, max_bytes=door.MAX_CONTENT_BYTES))
    return SessionDraft(
        id=None if session_id is None else door.identifier("session_id", session_id),
        system=said,
        title=check_title(title),
        tags=door.tags(door.sequence("tags", tags)),
        metadata=door.json_object("metadata", {} if metadata is None else metadata),
        **{name: None if value is None else door.identifier(name, value) for name, value in given.items()},
    )
