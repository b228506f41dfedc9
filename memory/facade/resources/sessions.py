"""`memory.sessions`: sessions as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal

from memory.domain import validation
from memory.domain.corrections import explain_guesses
from memory.domain.entry import check_expiry, check_title
from memory.domain.errors import InvalidInput
from memory.domain.message import SYSTEM, Message, Role
from memory.domain.scope import Scope, is_scope_text
from memory.domain.session import STATUSES, SessionInfo, SessionPage
from memory.domain.task import RunPage
from memory.facade.arguments import Metadata, Moment, flag, moment
from memory.facade.resources.delegation import MOST_DELEGATED, Delegation, delegation
from memory.facade.resources.runs import asked_runs, list_runs
from memory.facade.resources.session import Session
from memory.facade.runtime.access import Access, Scopes
from memory.orchestrator.conversations.sessions import SessionDraft, info_of
from memory.orchestrator.tiering.promotion import PromotionReport

LIST_LIMIT = 50

_UNSET: Any = object()


@explain_guesses
class Sessions:
    """The sessions of a tenant: created, found, listed, ended. What is said in one is a
    `Session`'s affair, which `memory.session("s1")` hands out.

    Entries that belong to one are written with the scope `session:<id>`; a session that
    only has entries needs no creation.
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
        metadata: Metadata | None = None,
        expires_at: Moment | timedelta | None = None,
        shared: bool = False,
    ) -> Session:
        """A new session, under an id of its own where none is given. Raises `Conflict`
        where there is one of that id (B12).

        After `expires_at`, a moment or a `timedelta` from now on, it is hidden; a sweep
        erases what was said in it, `durations.expired_grace` later. Entries of its
        scope have an expiry of their own. A session with `shared=True` can be opened by
        callers that name another user, agent or namespace; without, they get
        `SessionOwnerMismatch`. What such a caller writes notes its user: see
        `Memory.session`.
        """
        draft = draft_of(
            session_id,
            system=system,
            user=user,
            agent=agent,
            namespace=namespace,
            title=title,
            tags=tags,
            metadata=metadata,
            expires_at=expires_at,
            shared=shared,
        )
        return Session._of(
            self._access, await self._access.engine.conversations.create(self._access.tenant, draft)
        )

    async def get(self, session_id: str) -> SessionInfo | None:
        """The session as its record says, with counts that may be some seconds behind;
        None where there is none. `Session.info` is exact.
        """
        record = await self._access.engine.conversations.find(
            self._access.tenant, validation.identifier("session_id", session_id)
        )
        return None if record is None else info_of(record)

    async def delegation(
        self, session_id: str | None, *, scope: Scopes | None = None, limit: int | None = None
    ) -> Delegation:
        """What an agent to which work of a session is given may look up: the session's
        own entries, those with its `conversation_id`, whatever their scope, or of these
        scopes only; 15 at most, the newest first, each with its number, type, title and
        tags, and no content (D126, D128).

        Nothing where no session is named, it has none, or a store or a gate fails,
        which is logged: no work fails for want of it (D127).
        """
        session = None if session_id is None else validation.identifier("session_id", session_id)
        asked = self._access.entry_query(
            scope, limit=limit, unless_told=MOST_DELEGATED, anywhere=scope is None
        )
        return await delegation(self._access, session, asked)

    async def update(
        self,
        session_id: str,
        *,
        system: str = _UNSET,
        title: str | None = _UNSET,
        tags: Sequence[str] = _UNSET,
        metadata: Metadata = _UNSET,
        expires_at: Moment | timedelta | None = _UNSET,
    ) -> SessionInfo:
        """Change what is said of a session: each is replaced as a whole, what is not
        given stays, and None clears title and expiry.

        `system` is the text of its system message. Raises `NotFound` where there is no
        such session, or it was created without one, and `LegalHoldActive` where a system message,
        a title or metadata would be lost that is under legal hold.
        """
        prompt = (
            None
            if system is _UNSET
            else validation.text("system", system, max_bytes=validation.MAX_CONTENT_BYTES)
        )
        said: dict[str, Any] = {} if title is _UNSET else {"title": check_title(title)}
        said |= {} if metadata is _UNSET else {"metadata": validation.json_object("metadata", metadata)}
        told: dict[str, Any] = {} if tags is _UNSET else {"tags": tuple(validation.tags(tags))}
        until = None if expires_at is _UNSET else check_expiry(expires_at)
        conversations = self._access.engine.conversations
        if expires_at is not _UNSET:
            told["hidden_from"] = conversations.moment_of(until)
        opened = await conversations.open(
            self._access.tenant, SessionDraft(validation.identifier("session_id", session_id)), create=False
        )
        if prompt is not None:
            await opened.update(SYSTEM, {"content": prompt})
        return await opened.describe(told, **said)

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
        """A page of sessions, the last used first unless told: those with all the tags
        (B15, B16). `since` and `until`, both included, are compared with the last
        activity, or with `by="created"` with the creation.

        50 unless told, 1,000 at most; the page's `cursor` asks for those behind it. A
        session that another process is writing to may be some seconds behind in it;
        what this one wrote is told first.
        """
        given = {"subject": user, "agent": agent, "namespace": namespace}
        asked = {
            name: validation.identifier(name, value) for name, value in given.items() if value is not None
        }
        if status is not None:
            asked["status"] = validation.one_of("status", status, STATUSES)
        return await self._access.engine.conversations.sessions.list(
            self._access.tenant,
            asked=asked,
            tags=validation.tags(validation.sequence("tags", tags)),
            since=moment("since", since),
            until=moment("until", until),
            order=validation.one_of("by", by, ("updated", "created")),
            descending=validation.one_of("order", order, ("newest", "oldest")) == "newest",
            limit=validation.whole_limit(limit, default=LIST_LIMIT),
            cursor=None if cursor is None else validation.text("cursor", cursor, max_bytes=4096),
        )

    async def runs(
        self,
        *,
        run_id: str | None = None,
        session_id: str | None = None,
        child_id: str | None = None,
        status: str | None = None,
        mode: str | None = None,
        order: Literal["newest", "oldest"] = "oldest",
        limit: int | None = None,
        cursor: str | None = None,
    ) -> RunPage:
        """A page of the runs of all sessions by when they were created: by their id,
        the session that gave them, its child, status and mode (B58).

        100 unless told, 1,000 at most; the page's `cursor` asks for those behind it.
        """
        given = None if run_id is None else validation.identifier("run_id", run_id)
        parent = None if session_id is None else validation.identifier("session_id", session_id)
        asked = asked_runs(
            child_id=child_id, status=status, mode=mode, order=order, limit=limit, cursor=cursor
        )
        return await list_runs(self._access, given, parent, asked)

    async def end(self, session_id: str) -> PromotionReport:
        """End a session: promotion rules for session ends move its entries to later tiers.

        The report says which rule moved which entry, and what stayed; see `Session.end`.

        Where it has a conversation, nothing is appended to that until it is resumed.
        Where it has none, what waits for a store is done by sweeps for the entries that
        there are now.
        """
        validation.identifier("session_id", session_id)
        if await self._access.engine.conversations.find(self._access.tenant, session_id) is not None:
            return await Session(self._access, SessionDraft(session_id), create=False).end()
        return await self._access.engine.end_session(self._access.tenant, Scope.session(session_id), owing=())

    async def delete(self, session_id: str) -> bool:
        """Erase a session with everything said in it, the entries of its scope, and
        those that `on_window_exit` made of it; false where there was none.

        Forks of it stay, with the messages that they began with: delete each, or
        `erase` a message before, which reaches its copies.

        Raises:
            InvalidInput: There is no such session, and the id is the text of a scope, such as
                `"session:s1"`: the id alone, `"s1"`, was meant.
        """
        named = validation.identifier("session_id", session_id)
        deleted = await self._access.engine.conversations.sessions.delete(self._access.tenant, named)
        if not deleted and is_scope_text(named):
            raise InvalidInput(
                "session_id",
                f"there is no session {named[:80]!r}: pass the id alone, {named.partition(':')[2][:80]!r}",
            )
        return deleted


def draft_of(
    session_id: str | None,
    *,
    system: str | None = None,
    user: str | None = None,
    agent: str | None = None,
    namespace: str | None = None,
    title: str | None = None,
    tags: Sequence[str] = (),
    metadata: Metadata | None = None,
    expires_at: Moment | timedelta | None = None,
    shared: bool = False,
) -> SessionDraft:
    """A session as handed in, checked."""
    given = {"user": user, "agent": agent, "namespace": namespace}
    named = {
        name: None if value is None else validation.identifier(name, value) for name, value in given.items()
    }
    said = (
        None
        if system is None
        else Message(
            role=Role.SYSTEM,
            content=validation.text("system", system, max_bytes=validation.MAX_CONTENT_BYTES),
        )
    )
    return SessionDraft(
        id=None if session_id is None else validation.identifier("session_id", session_id),
        system=said,
        user=named["user"],
        agent=named["agent"],
        namespace=named["namespace"],
        title=check_title(title),
        tags=validation.tags(validation.sequence("tags", tags)),
        metadata=validation.json_object("metadata", {} if metadata is None else metadata),
        expires_at=check_expiry(expires_at),
        shared=flag("shared", shared),
    )
