"""The result of reading a scratchpad."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from memory.domain.results import ResultMixin


@dataclass(frozen=True, slots=True, repr=False)
class Scratchpad(ResultMixin):
    """The content of a scratchpad, oldest first.

    `exists` is true once anything was appended, even after it was cleared. `damaged`
    counts appends that cannot be read, or are missing. `written_by` lists the callers
    of servers that appended parts of the content.
    """

    agent: str | None
    exists: bool
    content: str
    size: int
    updated_at: datetime | None = None
    damaged: int = 0
    written_by: tuple[str, ...] = ()
