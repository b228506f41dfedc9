"""Tasks and runs of a session, as callers see them: copies of your own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memory.domain.shown import Shown

TASK_STATUSES = ("pending", "in_progress", "completed", "failed", "cancelled")
RUN_STATUSES = ("queued", "running", "cancelling", "cancelled", "completed", "failed")
RUN_MODES = ("foreground", "background")


@dataclass(frozen=True, slots=True, repr=False)
class Task(Shown):
    """Something a session has to do (B54, B55). `parent_id` names the task it is a part
    of; None for one that is part of no other.
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
class TaskPage(Shown):
    """Some tasks in order; `cursor` asks for those behind them, None where there are
    none.
    """

    tasks: list[Task]
    cursor: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Run(Shown):
    """A piece of work that a session gave to another, its child (B57, B58). Of what was
    said there only the number of messages is kept here.
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
class RunPage(Shown):
    """Some runs in order; `cursor` asks for those behind them, None where there are
    none.
    """

    runs: list[Run]
    cursor: str | None = None
