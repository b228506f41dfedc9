"""Blocked sources: sources, agents and runs whose entries are hidden."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias, get_args

from memory.domain.results import ResultMixin

LaterWrites: TypeAlias = Literal["refused", "kept_back"]
LATER_WRITES: tuple[LaterWrites, ...] = get_args(LaterWrites)


@dataclass(frozen=True, slots=True, repr=False)
class BlockedSource(ResultMixin):
    """A blocked source, agent or run; `origin` names it (`"source:web:example.com"`).

    Reads and searches hide the entries that it wrote, and the entries derived from
    them, on every tier. With `since`, only those written or changed from then on.
    Later writes are refused, or kept back: stored, but hidden until the source is
    unblocked.
    """

    origin: str
    since: datetime | None
    later_writes: LaterWrites
    reason: str
    blocked_by: str | None
    blocked_at: datetime
