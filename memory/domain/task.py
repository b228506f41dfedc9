"""Tasks and runs of a session, as callers see them. All are copies."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memory.domain.results import Page, ResultMixin

TASK_STATUSES = ("pending", "in_progress", "completed", "failed", "cancelled")
RUN_STATUSES = ("queued", "running", "cancelling", "cancelled", "completed", "failed")
RUN_MODES = ("foreground", "background")


@dataclass(frozen=True, slots=True, repr=False)
class Task(ResultMixin):
    """A task of a session.

    `parent_id` names the task that it is a part of. None means that it is not a part of
    another task.
    """

    id: str
    session_id: str
    title: str
    status: str
    parent_id: str | None
    result: str | None
    metadata: dict[str, Any]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, repr=False)
class TaskPage(Page[Task]):
    """A page of tasks in order. `cursor` gets the next page; None on the last one."""

    tasks: list[Task]
    cursor: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Run(ResultMixin):
    """Work that a session delegated to another session, its child.

    The run holds only the number of the child's messages, not the messages.
    """

    id: str
    session_id: str
    child_id: str
    status: str
    mode: str
    message_count: int
    metadata: dict[str, Any]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, repr=False)
class RunPage(Page[Run]):
    """A page of runs in order. `cursor` gets the next page; None on the last one."""

    runs: list[Run]
    cursor: str | None = None
