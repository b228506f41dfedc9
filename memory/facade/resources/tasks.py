"""`session.tasks`: the to-do list of a session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

from memory.domain import validation
from memory.domain.corrections import explain_guesses
from memory.domain.errors import InvalidInput, NotFound
from memory.domain.task import TASK_STATUSES, Task, TaskPage
from memory.facade.arguments import UNSET, Metadata
from memory.facade.runtime.access import Access
from memory.facade.runtime.cursors import CursorSeal
from memory.facade.runtime.request_ids import noted_flag, read_flag, request_of_session
from memory.facade.runtime.view_guard import guard_calls
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.tasks.tasks import TaskDraft, part_of_itself
from memory.orchestrator.storage.requests import RequestMark
from memory.ports.query import Condition, Eq, IsNull

TASKS_LIMIT = 100
MOST_TASKS = 500
"""Tasks of one `replace_all`."""
MAX_TITLE_BYTES, MAX_RESULT_BYTES = 4 * 1024, 64 * 1024


@guard_calls
@explain_guesses
class Tasks:
    """The tasks of one session. They are deleted with the session.

        await session.tasks.save("t1", title="Book a table", status="in_progress")
        open_ones = await session.tasks.list(status="in_progress")

    Task ids are unique per tenant; in a restricted view with scopes, per session.
    """

    def __init__(
        self, access: Access, conversation: Callable[..., Awaitable[Conversation]], session_id: str
    ) -> None:
        self._access = access
        self._conversation = conversation
        self._session_id = session_id

    async def save(
        self,
        task_id: str,
        *,
        title: str = "",
        status: str = "pending",
        parent_id: str | None = None,
        result: str | None = None,
        metadata: Metadata | None = None,
        request_id: str | None = None,
    ) -> Task:
        """Create a task, or replace all of its fields. Its moment of creation stays.

        Args:
            status: `"pending"`, `"in_progress"`, `"completed"`, `"failed"` or
                `"cancelled"`.
            parent_id: The task that this one is part of. It need not exist. It must be
                neither this task nor a part of it.
            request_id: As in `Memory.write`. A repeat saves nothing, and returns the
                task as it is now.

        Raises:
            Conflict: Another session of the tenant has a task with this id.
            LegalHoldActive: The session is under legal hold, and a title, a result or
                metadata of the task would be lost.
        """
        draft = self._draft_of(
            id=task_id, title=title, status=status, parent_id=parent_id, result=result, metadata=metadata
        )
        conversations = self._access.engine.conversations
        tenant, session = self._access.tenant, self._session_id
        request = request_of_session("session.tasks.save", tenant, session, request_id, asdict(draft))

        async def save(mark: RequestMark | None) -> Task:
            async with conversations.in_call_order(tenant, session, "task", [draft.id]):
                held = await self._conversation(mark)
                await conversations.tasks.refuse_circle(held.log, draft)
                return await conversations.tasks.save(
                    held.log, draft, held.user, mark, claims=not self._access.hides
                )

        async def read(noted: Any) -> Task:
            if (there := await self.get(draft.id)) is None:
                raise NotFound(draft.id, "task")
            return there

        return await self._access.once(request, save, lambda saved: {"saved": True}, read, self._conversation)

    def _draft_of(self, **given: Any) -> TaskDraft:
        """Check a task, and add the origin of the view to its metadata."""
        draft = _check_task(**given)
        return replace(draft, metadata=self._access.sign_metadata(draft.metadata))

    async def get(self, task_id: str) -> Task | None:
        """Return a task, or None if this session has none with this id."""
        checked = validation.identifier("task_id", task_id)
        return await self._access.engine.conversations.tasks.get((await self._conversation()).log, checked)

    async def list(
        self,
        *,
        status: str | None = None,
        parent_id: str | None = UNSET,
        order: Literal["newest", "oldest"] = "oldest",
        limit: int | None = None,
        cursor: str | None = None,
    ) -> TaskPage:
        """Return a page of the tasks, by their creation; 100 by default.

        Args:
            parent_id: Only parts of this task. None lists the tasks that are part of no
                other.
            limit: At most 1,000.
            cursor: The cursor that the previous page returned.
        """
        asked: list[Condition] = (
            [] if status is None else [Eq("status", validation.one_of("status", status, TASK_STATUSES))]
        )
        if parent_id is not UNSET:
            asked.append(
                IsNull("parent_id")
                if parent_id is None
                else Eq("parent_id", validation.identifier("parent_id", parent_id))
            )
        most = validation.whole_limit(limit, default=TASKS_LIMIT)
        newest = validation.one_of("order", order, ("oldest", "newest")) == "newest"
        seal = CursorSeal("tasks", self._access.tenant, self._session_id, asked, newest)
        behind = seal.unseal(cursor)
        log = (await self._conversation()).log
        page = await self._access.engine.conversations.tasks.list(
            log, asked, descending=newest, limit=most, cursor=behind
        )
        return replace(page, cursor=seal.seal(page.cursor))

    async def delete(self, task_id: str, *, request_id: str | None = None) -> bool:
        """Delete a task. Its parts stay, and its id becomes free.

        Args:
            request_id: As in `Memory.write`. A repeat spares a task that was created
                under this id since.

        Returns:
            False if there was no such task, which is no error.

        Raises:
            LegalHoldActive: The session is under legal hold.
        """
        checked = validation.identifier("task_id", task_id)
        conversations = self._access.engine.conversations
        tenant, session = self._access.tenant, self._session_id
        request = request_of_session("session.tasks.delete", tenant, session, request_id, {"id": checked})

        async def delete(mark: RequestMark | None) -> bool:
            async with conversations.in_call_order(tenant, session, "task", [checked]):
                held = await self._conversation(mark)
                return await conversations.tasks.delete(held.log, checked, mark)

        return await self._access.once(request, delete, noted_flag, read_flag)

    async def replace_all(
        self, tasks: Sequence[Mapping[str, Any]], *, request_id: str | None = None
    ) -> Sequence[Task]:
        """Replace all tasks of the session, and return the new ones, oldest first.

        The given tasks are saved one after the other. Then the other tasks that the
        session had are deleted. A call that failed can be repeated. A task that another
        process saves meanwhile stays.

        Args:
            tasks: At most 500 mappings with the arguments of `save`, and the task's id
                as `id`. An empty list deletes all tasks.
            request_id: As in `Memory.write`. A repeat spares tasks that were created
                or changed since, and returns the saved tasks that are still there.

        Raises:
            LegalHoldActive: The session is under legal hold, and a task would be
                deleted or lose text. Nothing was saved.
        """
        given = validation.sequence("tasks", tasks, at_most=MOST_TASKS)
        drafts: list[TaskDraft] = []
        for number, one in enumerate(given):
            if not isinstance(one, Mapping) or "id" not in one:
                raise InvalidInput(
                    f"tasks[{number}]",
                    "must be a mapping with the task's `id` and the other arguments of `save`",
                )
            with validation.item("tasks", number):
                drafts.append(self._draft_of(**one))
        if twice := [name for name, times in Counter(draft.id for draft in drafts).items() if times > 1]:
            raise InvalidInput("tasks", f"two tasks have the id {twice[0]!r}. Change one of them")
        _refuse_circles(drafts)
        engine, tenant = self._access.engine, self._access.tenant
        asked = {"tasks": [asdict(draft) for draft in drafts]}
        request = request_of_session("session.tasks.replace_all", tenant, self._session_id, request_id, asked)

        async def replace_all(mark: RequestMark | None) -> Sequence[Task]:
            held = await self._conversation(mark)
            return await engine.conversations.tasks.replace_all(
                held.log, drafts, held.user, mark, claims=not self._access.hides
            )

        async def read(noted: Any) -> Sequence[Task]:
            found = [await self.get(draft.id) for draft in drafts]
            saved = [task for task in found if task is not None]
            return sorted(saved, key=lambda task: task.created_at)

        return await self._access.once(
            request, replace_all, lambda saved: {"saved": True}, read, self._conversation
        )


_TAKEN = {"id", "title", "status", "parent_id", "result", "metadata"}


def _check_task(**given: Any) -> TaskDraft:
    """Check the fields of a task, and return them as a draft."""
    for name in given.keys() - _TAKEN:
        raise InvalidInput(name, f"is not a field of a task. Fields: {', '.join(sorted(_TAKEN))}")
    parent, result, metadata = given.get("parent_id"), given.get("result"), given.get("metadata")
    draft = TaskDraft(
        id=validation.identifier("task_id", given["id"]),
        title=validation.text("title", given.get("title", ""), max_bytes=MAX_TITLE_BYTES),
        status=validation.one_of("status", given.get("status", "pending"), TASK_STATUSES),
        parent_id=None if parent is None else validation.identifier("parent_id", parent),
        result=None if result is None else validation.text("result", result, max_bytes=MAX_RESULT_BYTES),
        metadata=validation.json_object("metadata", {} if metadata is None else metadata),
    )
    _refuse_circles([draft])
    return draft


def _refuse_circles(drafts: Sequence[TaskDraft]) -> None:
    """Raise `InvalidInput` if one of these tasks is a part of itself by the others."""
    parents = {draft.id: draft.parent_id for draft in drafts}
    for start in parents:
        above, seen = parents[start], set[str]()
        while above is not None and above not in seen:
            if above == start:
                raise part_of_itself(start)
            seen.add(above)
            above = parents.get(above)
