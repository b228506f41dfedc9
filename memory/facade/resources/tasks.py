"""`session.tasks`: what a session has to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

from memory.domain import validation
from memory.domain.corrections import explain_guesses
from memory.domain.errors import InvalidInput
from memory.domain.task import TASK_STATUSES, Task, TaskPage
from memory.facade.arguments import Metadata
from memory.facade.runtime.access import Access
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.tasks.tasks import TaskDraft
from memory.ports.query import Condition, Eq, IsNull

TASKS_LIMIT = 100
MOST_TASKS = 500
"""Tasks of one `replace_all`."""
MAX_TITLE_BYTES, MAX_RESULT_BYTES = 4 * 1024, 64 * 1024

_UNSET: Any = object()


@explain_guesses
class Tasks:
    """The tasks of one session: saved, read, listed, deleted. They go with the session.

    await session.tasks.save("t1", title="Book a table", status="in_progress")
    open_ones = await session.tasks.list(status="in_progress")
    """

    def __init__(
        self, access: Access, conversation: Callable[[], Awaitable[Conversation]], session_id: str
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
    ) -> Task:
        """Let the task be as told here, all of it; when it was created stays (B54).

        `status` is pending, in_progress, completed, failed or cancelled (B55);
        `parent_id` names the task that it is a part of, which need not exist. Raises
        `Conflict` where another session of the tenant has a task of this id, and `LegalHoldActive`
        where the session is under legal hold and a title, a result or metadata of the
        task would be overwritten or left out.
        """
        draft = _check_task(
            id=task_id, title=title, status=status, parent_id=parent_id, result=result, metadata=metadata
        )
        conversations = self._access.engine.conversations
        async with conversations.in_call_order(self._access.tenant, self._session_id, "task", [draft.id]):
            return await conversations.tasks.save((held := await self._conversation()).log, draft, held.user)

    async def get(self, task_id: str) -> Task | None:
        """The task; None where this session has none of the id."""
        checked = validation.identifier("task_id", task_id)
        return await self._access.engine.conversations.tasks.get((await self._conversation()).log, checked)

    async def list(
        self,
        *,
        status: str | None = None,
        parent_id: str | None = _UNSET,
        order: Literal["newest", "oldest"] = "oldest",
        limit: int | None = None,
        cursor: str | None = None,
    ) -> TaskPage:
        """A page of the tasks by when they were created: those of a status, the parts
        of one task, or with `parent_id=None` those that are part of none (B55). 100
        unless told, 1,000 at most; the page's `cursor` asks for those behind it.
        """
        asked: list[Condition] = (
            [] if status is None else [Eq("status", validation.one_of("status", status, TASK_STATUSES))]
        )
        if parent_id is not _UNSET:
            asked.append(
                IsNull("parent_id")
                if parent_id is None
                else Eq("parent_id", validation.identifier("parent_id", parent_id))
            )
        most = validation.whole_limit(limit, default=TASKS_LIMIT)
        behind = None if cursor is None else validation.text("cursor", cursor, max_bytes=4096)
        newest = validation.one_of("order", order, ("oldest", "newest")) == "newest"
        log = (await self._conversation()).log
        return await self._access.engine.conversations.tasks.list(
            log, asked, descending=newest, limit=most, cursor=behind
        )

    async def delete(self, task_id: str) -> bool:
        """Delete the task and let its id go free; its parts stay. False where there was
        none, which is no error (B56). Raises `LegalHoldActive` where the session is under legal
        hold.
        """
        checked = validation.identifier("task_id", task_id)
        conversations = self._access.engine.conversations
        async with conversations.in_call_order(self._access.tenant, self._session_id, "task", [checked]):
            return await conversations.tasks.delete((await self._conversation()).log, checked)

    async def replace_all(self, tasks: Sequence[Mapping[str, Any]]) -> Sequence[Task]:
        """Let the session have these tasks, given as `save` takes them with their id as
        `id`, and no other; returned oldest first (B63).

        They are saved one after the other, and then those deleted that the session had
        and that are not among them: a call that failed can be repeated, and a task that
        another process saves meanwhile stays. No tasks delete all. At most 500. Raises
        `LegalHoldActive` before anything is saved where one would have to go, or would lose what
        it says, and the session is under legal hold.
        """
        given = validation.sequence("tasks", tasks, at_most=MOST_TASKS)
        for one in given:
            if not isinstance(one, Mapping) or "id" not in one:
                raise InvalidInput("tasks", "each must be a mapping with an id and other arguments of `save`")
        drafts = [_check_task(**one) for one in given]
        if len({draft.id for draft in drafts}) < len(drafts):
            raise InvalidInput("tasks", "two tasks have the same id. Change one of them")
        held = await self._conversation()
        return await self._access.engine.conversations.tasks.replace_all(held.log, drafts, held.user)


_TAKEN = {"id", "title", "status", "parent_id", "result", "metadata"}


def _check_task(**given: Any) -> TaskDraft:
    """A task as handed in, checked."""
    for name in given.keys() - _TAKEN:
        raise InvalidInput(name, f"is not a field of a task. Fields: {', '.join(sorted(_TAKEN))}")
    parent, result, metadata = given.get("parent_id"), given.get("result"), given.get("metadata")
    return TaskDraft(
        id=validation.identifier("task_id", given["id"]),
        title=validation.text("title", given.get("title", ""), max_bytes=MAX_TITLE_BYTES),
        status=validation.one_of("status", given.get("status", "pending"), TASK_STATUSES),
        parent_id=None if parent is None else validation.identifier("parent_id", parent),
        result=None if result is None else validation.text("result", result, max_bytes=MAX_RESULT_BYTES),
        metadata=validation.json_object("metadata", {} if metadata is None else metadata),
    )
