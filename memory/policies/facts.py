"""What rules may look at of a record: facts of its own, and its place in its scope.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

Measure: TypeAlias = Literal["count", "bytes", "tokens"]
MEASURES: tuple[Measure, ...] = ("count", "bytes", "tokens")
Fields: TypeAlias = Mapping[str, str]
"""The field of a collection that says a fact, by the fact's name. What no field says is
not asked of stores.
"""


@dataclass(frozen=True, slots=True)
class Rank:
    """The records of a scope from its newest to one record, that one included: how many
    they are, and the bytes and tokens of what they say.
    """

    count: int
    bytes: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class RecordFacts:
    """What conditions may look at of a record. `rank` is None where its scope was not
    gone through; then it lies beyond nothing.
    """

    tier: str
    type: str
    tags: tuple[str, ...]
    confidence: float | None
    created_at: datetime
    updated_at: datetime
    accesses: int = 0
    tenant: str = ""
    scope_kind: str = ""
    rank: Rank | None = None
