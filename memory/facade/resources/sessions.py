"""`memory.sessions`: create, find, list, update, end and delete sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any, Literal, Unpack

from memory.domain import validation
from memory.domain.corrections import explain_guesses
from memory.domain.delegation import Delegation
from memory.domain.entry import check_expiry, check_title
from memory.domain.errors import Forbidden, InvalidInput
from memory.domain.message import Message
from memory.domain.promotion_report import PromotionReport
from memory.domain.scope import Scope, is_scope_text
from memory.domain.session import STATUSES, SessionInfo, SessionPage
from memory.domain.task import RunPage
from memory.facade.arguments import UNSET, Metadata, Moment, expected_version_of, moment
from memory.facade.resources.delegation import MOST_DELEGATED, delegation
from memory.facade.resources.runs import asked_runs, list_runs
from memory.facade.resources.session import Session, delete_once, end_once
from memory.facade.runtime.access import Access, Scopes
from memory.facade.runtime.cursors import CursorSeal
from memory.facade.runtime.request_ids import request_of, session_partition
from memory.facade.runtime.view_guard import guard_calls
from memory.facade.session_options import SessionOptions, draft_of
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.sessions import OWNER, SessionDraft, info_of, requested_id
from memory.orchestrator.storage.requests import RequestMark

LIST_LIMIT = 50


@guard_calls
@explain_guesses
class Sessions:
    """The sessions of a tenant: create, find, list, update, end and delete them.

    `memory.session("s1")` returns the conversation of one session. Entries of a session
    are written with the scope `session:<id>`. A session that only has entries needs no
    creation.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def create(
        self,
        session_id: str | None = None,
        *,
        request_id: str | None = None,
        **options: Unpack[SessionOptions],
    ) -> Session:
        """Create a session, and return a handle to its conversation.

        Args:
            session_id: The id of the session; a new id by default.
            system: The text of the system message.
            expires_at: A moment, or a `timedelta` from now on. The session is hidden
                from then on, and a sweep erases its messages after
                `durations.expired_grace`. Entries of its scope have their own expiry.
            shared: Let callers that name another user, agent or namespace open the
                session. Otherwise they get `SessionOwnerMismatch`. Their messages note
                their own user; see `Memory.session`.
            request_id: As in `Memory.write`. A repeat returns a handle to the session
                that the first call created.

        Raises:
            Conflict: A session with this id exists. Or `request_id` was used for
                another request.
        """
        draft = draft_of(session_id, options)
        self._access.check_new_session(draft)
        engine, tenant = self._access.engine, self._access.tenant
        system_text = None if draft.system is None else draft.system.text
        asked = {**asdict(replace(draft, system=None)), "system": system_text}
        request = self._access.own_request(request_of("sessions.create", request_id, asked))
        if request is not None:
            named = draft.id or requested_id(tenant, request.mark)
            request = replace(request, about=(session_partition(tenant, named),))

        async def read(noted: Any) -> Conversation:
            owned = replace(draft, id=noted["session"])
            return await self._access.open_session(owned, create=False)

        created = await self._access.once(
            request,
            lambda mark: engine.conversations.create(tenant, self._access.sign_session(draft), mark),
            lambda made: {"session": made.id},
            read,
        )
        return Session._of(self._access, created)

    async def get(self, session_id: str) -> SessionInfo | None:
        """Return a session, or None if there is none.

        If another process writes to the session, its counts may be some seconds old.
        The writes of this process are included. `Session.info` returns exact counts.
        """
        named = validation.identifier("session_id", session_id)
        if not await self._access.sees_session(named):
            return None
        sessions = self._access.engine.conversations.sessions
        record = await sessions.find_current(self._access.tenant, named)
        return None if record is None else info_of(record)

    async def delegation(
        self, session_id: str | None, *, scope: Scopes | None = None, limit: int | None = None
    ) -> Delegation:
        """List the entries of a session for an agent that gets some of its work.

        The agent may look these entries up. They have the session as their
        `conversation_id` and come newest first. Each has its number, type, title and
        tags, and no content.

        Args:
            session_id: The session; with None the result is empty.
            scope: Only entries of these scopes; of any scope by default.
            limit: At most 15.

        Returns:
            The entries. The result is empty if the session has none, or if a store or a
            gate fails. Such a failure is logged and not raised, so that the work can go
            on.
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
        system: str = UNSET,
        title: str | None = UNSET,
        tags: Sequence[str] = UNSET,
        metadata: Metadata = UNSET,
        expires_at: Moment | timedelta | None = UNSET,
        expected_version: str | None = None,
        request_id: str | None = None,
    ) -> SessionInfo:
        """Change attributes of a session. Arguments that are left out change nothing.

        Each given value replaces the stored one as a whole. If the session has all of
        them already, its `attributes_version` stays.

        Args:
            system: The text of the system message. The session must have one.
            title: None clears it.
            expires_at: A moment, a `timedelta` from now on, or None, which clears it.
            expected_version: Change the attributes only if this is still the
                `attributes_version` of the session. Messages do not change it.
            request_id: As in `Memory.write`. A repeat changes nothing, and returns the
                session as it is now.

        Raises:
            VersionConflict: The attributes have another version than the expected one.
            NotFound: There is no such session, or `system` is given and it was created
                without a system message.
            LegalHoldActive: The session is under legal hold, and a system message, a
                title or metadata would be lost.
        """
        prompt = (
            None
            if system is UNSET
            else validation.text("system", system, max_bytes=validation.MAX_CONTENT_BYTES)
        )
        said: dict[str, Any] = {} if title is UNSET else {"title": check_title(title)}
        said |= {} if metadata is UNSET else {"metadata": validation.json_object("metadata", metadata)}
        told: dict[str, Any] = {} if tags is UNSET else {"tags": tuple(validation.tags(tags))}
        until = None if expires_at is UNSET else check_expiry(expires_at)
        expected = expected_version_of(expected_version)
        conversations = self._access.engine.conversations
        named, tenant = validation.identifier("session_id", session_id), self._access.tenant
        asked = {**said, **told, "system": prompt, "until": until, "expected": expected, "session": named}
        given = [
            name for name, value in (("system", system), ("expires_at", expires_at)) if value is not UNSET
        ]
        request = request_of(
            "sessions.update", request_id, {**asked, "given": given}, [session_partition(tenant, named)]
        )
        if expires_at is not UNSET:
            told["hidden_from"] = conversations.moment_of(until)

        def change_system(there: Message) -> Message:
            return self._access.sign_change(there, {"content": prompt})

        async def update(mark: RequestMark | None) -> SessionInfo:
            opened = await self._access.open_session(SessionDraft(named), create=False)
            change = None if prompt is None else change_system
            return await opened.describe(told, expected=expected, system=change, request=mark, **said)

        async def read(noted: Any) -> SessionInfo:
            return await (await self._access.open_session(SessionDraft(named), create=False)).info()

        return await self._access.once(request, update, lambda info: {"session": named}, read)

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
        """Return a page of sessions, the last used first; 50 by default.

        A session that another process writes to may be listed with values that are some
        seconds old. The writes of this process are always included.

        Args:
            tags: The session has all of these tags.
            since: The last activity was at or after this moment.
            until: The last activity was at or before this moment.
            by: `"created"` orders by the creation, and compares `since` and `until`
                with it.
            limit: At most 1,000.
            cursor: The cursor that the previous page returned.
        """
        given = {"user": user, "agent": agent, "namespace": namespace}
        asked = {
            OWNER[name]: validation.identifier(name, value)
            for name, value in given.items()
            if value is not None
        }
        if status is not None:
            asked["status"] = validation.one_of("status", status, STATUSES)
        having = validation.tags(validation.sequence("tags", tags))
        first, last = moment("since", since), moment("until", until)
        along = validation.one_of("by", by, ("updated", "created"))
        is_descending = validation.one_of("order", order, ("newest", "oldest")) == "newest"
        most = validation.whole_limit(limit, default=LIST_LIMIT)
        tenant = self._access.tenant
        seal = CursorSeal("sessions", tenant, asked, having, first, last, along, is_descending)
        place = seal.unseal(cursor)
        page = await self._access.engine.conversations.sessions.list(
            tenant,
            asked=asked,
            tags=having,
            since=first,
            until=last,
            order=along,
            descending=is_descending,
            limit=most,
            cursor=place,
            within=self._access.of_visible_sessions,
        )
        return replace(page, cursor=seal.seal(page.cursor))

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
        """Return a page of the runs of all sessions, by their creation; 100 by default.

        Args:
            session_id: Only runs that this session started.
            child_id: Only runs of this child session.
            limit: At most 1,000.
            cursor: The cursor that the previous page returned.
        """
        given = None if run_id is None else validation.identifier("run_id", run_id)
        parent = None if session_id is None else validation.identifier("session_id", session_id)
        if parent is None and self._access.hides:
            raise Forbidden(
                "session_id", "is needed: a view of some scopes lists the runs of one session at a time"
            )
        asked = asked_runs(
            self._access.tenant,
            parent,
            run_id=given,
            child_id=child_id,
            status=status,
            mode=mode,
            order=order,
            limit=limit,
            cursor=cursor,
        )
        if parent is not None and not await self._access.sees_session(parent):
            return RunPage([], None)
        return await list_runs(self._access, parent, asked)

    async def end(self, session_id: str, *, request_id: str | None = None) -> PromotionReport:
        """End a session.

        The promotion rules for session ends move its entries to later tiers.

        If it has a conversation, nothing can be appended until it is resumed. If it has
        none, sweeps do the work that waits for a store, for the entries that exist now.

        Args:
            request_id: As in `Session.end`.

        Returns:
            The report says which rule moved which entry, and which entries stayed; see
            `Session.end`.
        """
        validation.identifier("session_id", session_id)
        engine, tenant = self._access.engine, self._access.tenant

        async def end(mark: RequestMark | None) -> PromotionReport:
            if not await self._access.sees_session(session_id):
                return PromotionReport()
            if await engine.conversations.find(tenant, session_id) is not None:
                return await Session(self._access, SessionDraft(session_id), create=False)._end(mark)
            return await engine.end_session(tenant, Scope.session(session_id), owing=())

        return await end_once(self._access, session_id, request_id, end)

    async def delete(self, session_id: str, *, request_id: str | None = None) -> bool:
        """Erase a session with its messages, and the entries of its scope.

        Entries that `on_window_exit` made of it are erased too. Forks of it stay, with
        the messages that they began with: delete each fork. Or `erase` a message
        before, which erases its copies too.

        Args:
            request_id: As in `Session.delete`.

        Returns:
            False if there was no such session. Of several calls at once, one returns
            True.

        Raises:
            InvalidInput: There is no such session, and the id is the text of a scope,
                such as `"session:s1"`. Pass the id alone, `"s1"`.
        """
        named = validation.identifier("session_id", session_id)
        deleted = await delete_once(self._access, named, request_id)
        if not deleted and is_scope_text(named):
            raise InvalidInput(
                "session_id",
                f"there is no session {named[:80]!r}: pass the id alone, {named.partition(':')[2][:80]!r}",
            )
        return deleted
