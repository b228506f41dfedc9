"""`session.runs`: work that a session delegated to other sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from memory.domain import validation
from memory.domain.corrections import explain_guesses
from memory.domain.errors import InvalidInput, NotFound
from memory.domain.task import RUN_MODES, RUN_STATUSES, Run, RunPage
from memory.facade.arguments import Metadata
from memory.facade.runtime.access import Access
from memory.facade.runtime.cursors import CursorSeal
from memory.facade.runtime.request_ids import noted_flag, read_flag, request_of_session
from memory.facade.runtime.view_guard import guard_calls
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.tasks.runs import RunDraft
from memory.orchestrator.storage.requests import RequestMark
from memory.orchestrator.storage.session_keys import scope_of
from memory.ports.query import Condition, Eq, Tenant, within
from memory.ports.record import Partition

RUNS_LIMIT = 100


@guard_calls
@explain_guesses
class Runs:
    """The runs of one session. Each is a piece of work in another session, its child.

        await session.runs.save("r1", child_id="s1/search", status="running")
        await session.runs.save(
            "r1", child_id="s1/search", status="completed", message_count=12
        )

    Runs are deleted with the session; their children stay.
    """

    def __init__(
        self, access: Access, conversation: Callable[..., Awaitable[Conversation]], session_id: str
    ) -> None:
        self._access = access
        self._conversation = conversation
        self._session_id = session_id

    async def save(
        self,
        run_id: str,
        *,
        child_id: str,
        status: str = "queued",
        mode: str = "foreground",
        messages: Sequence[Any] = (),
        message_count: int | None = None,
        metadata: Metadata | None = None,
        request_id: str | None = None,
    ) -> Run:
        """Create a run, or replace all of its fields. Its moment of creation stays.

        If several callers save a run at once, the last one wins.

        Args:
            child_id: The session that does the work.
            status: `"queued"`, `"running"`, `"cancelling"`, `"cancelled"`,
                `"completed"` or `"failed"`.
            mode: `"foreground"` or `"background"`.
            messages: The messages of the run. They are counted and never stored.
            message_count: The number of messages. It replaces the count of `messages`.
            request_id: As in `Memory.write`. A repeat saves nothing, and returns the
                run as it is now.

        Raises:
            LegalHoldActive: The session is under legal hold, and metadata of the run
                would be lost.
        """
        count = len(validation.sequence("messages", messages)) if message_count is None else message_count
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < validation.INT64:
            raise InvalidInput("message_count", "must be a whole number from 0 to 2**63 - 1")
        draft = RunDraft(
            id=validation.identifier("run_id", run_id),
            child_id=validation.identifier("child_id", child_id),
            status=validation.one_of("status", status, RUN_STATUSES),
            mode=validation.one_of("mode", mode, RUN_MODES),
            message_count=count,
            metadata=self._access.sign_metadata(
                validation.json_object("metadata", {} if metadata is None else metadata)
            ),
        )
        conversations = self._access.engine.conversations
        tenant, session = self._access.tenant, self._session_id
        request = request_of_session("session.runs.save", tenant, session, request_id, asdict(draft))

        async def save(mark: RequestMark | None) -> Run:
            async with conversations.in_call_order(tenant, session, "run", [draft.id]):
                held = await self._conversation(mark)
                return await conversations.runs.save(held.log, draft, held.user, mark)

        async def read(noted: Any) -> Run:
            if (there := await self.get(draft.id)) is None:
                raise NotFound(draft.id, "run")
            return there

        return await self._access.once(request, save, lambda saved: {"saved": True}, read, self._conversation)

    async def get(self, run_id: str) -> Run | None:
        """Return a run, or None if this session has none with this id."""
        checked = validation.identifier("run_id", run_id)
        return await self._access.engine.conversations.runs.get((await self._conversation()).log, checked)

    async def list(
        self,
        *,
        child_id: str | None = None,
        status: str | None = None,
        mode: str | None = None,
        order: Literal["newest", "oldest"] = "oldest",
        limit: int | None = None,
        cursor: str | None = None,
    ) -> RunPage:
        """Return a page of the session's runs, by their creation; 100 by default.

        `memory.sessions.runs` lists the runs of all sessions.

        Args:
            child_id: Only runs of this child session.
            limit: At most 1,000.
            cursor: The cursor that the previous page returned.
        """
        asked = asked_runs(
            self._access.tenant,
            self._session_id,
            child_id=child_id,
            status=status,
            mode=mode,
            order=order,
            limit=limit,
            cursor=cursor,
        )
        life = (await self._conversation()).log.life
        return await list_runs(self._access, life.session_id, asked)

    async def delete(self, run_id: str, *, request_id: str | None = None) -> bool:
        """Delete a run. Its child stays.

        Args:
            request_id: As in `Memory.write`. A repeat spares a run that was created
                under this id since.

        Returns:
            False if there was no such run, which is no error.

        Raises:
            LegalHoldActive: The session is under legal hold.
        """
        checked = validation.identifier("run_id", run_id)
        conversations = self._access.engine.conversations
        tenant, session = self._access.tenant, self._session_id
        request = request_of_session("session.runs.delete", tenant, session, request_id, {"id": checked})

        async def delete(mark: RequestMark | None) -> bool:
            async with conversations.in_call_order(tenant, session, "run", [checked]):
                held = await self._conversation(mark)
                return await conversations.runs.delete(held.log, checked, mark)

        return await self._access.once(request, delete, noted_flag, read_flag)


@dataclass(frozen=True, slots=True)
class RunQuery:
    """The checked arguments of a list of runs."""

    conditions: list[Condition]
    descending: bool
    limit: int
    seal: CursorSeal
    cursor: str | None


def asked_runs(
    tenant: str,
    session_id: str | None,
    *,
    run_id: str | None = None,
    child_id: str | None,
    status: str | None,
    mode: str | None,
    order: str,
    limit: int | None,
    cursor: str | None,
) -> RunQuery:
    """Check the filters and the paging of a list of runs, of a session or of all."""
    given = {
        "run_id": run_id,
        "child_id": None if child_id is None else validation.identifier("child_id", child_id),
        "status": None if status is None else validation.one_of("status", status, RUN_STATUSES),
        "mode": None if mode is None else validation.one_of("mode", mode, RUN_MODES),
    }
    newest = validation.one_of("order", order, ("oldest", "newest")) == "newest"
    most = validation.whole_limit(limit, default=RUNS_LIMIT)
    conditions: list[Condition] = [Eq(name, value) for name, value in given.items() if value is not None]
    seal = CursorSeal("runs", tenant, session_id, conditions, newest)
    return RunQuery(conditions, newest, most, seal, seal.unseal(cursor))


async def list_runs(access: Access, session_id: str | None, asked: RunQuery) -> RunPage:
    """Return a page of the runs of one session, or of the whole tenant."""
    where = (
        Tenant(access.tenant)
        if session_id is None
        else within(Partition(access.tenant, scope_of(session_id)))
    )
    page = await access.engine.conversations.runs.list(
        where, asked.conditions, descending=asked.descending, limit=asked.limit, cursor=asked.cursor
    )
    return replace(page, cursor=asked.seal.seal(page.cursor))
