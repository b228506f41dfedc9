"""Distrust: a source, an agent or a run whose entries are not to be found until
somebody trusts it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias, get_args

from memory.domain.shown import Shown

LaterWrites: TypeAlias = Literal["refused", "kept_back"]
LATER_WRITES: tuple[LaterWrites, ...] = get_args(LaterWrites)


@dataclass(frozen=True, slots=True, repr=False)
class BlockedSource(Shown):
    """What is distrusted: `origin` says the source, the agent or the run
    (`"source:web:example.com"`).

    What it wrote, and what was made of that, is found by nothing and nobody, on any
    tier; with `since`, what was written or changed from then on. What it writes later
    is refused, or kept back: stored, and found once it is trusted again.
    """

    origin: str
    since: datetime | None
    later_writes: LaterWrites
    reason: str
    distrusted_by: str | None
    distrusted_at: datetime
