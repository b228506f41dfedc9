"""The facts of a record that rules use: its own, and its rank in its scope. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

Measure: TypeAlias = Literal["count", "bytes", "tokens"]
MEASURES: tuple[Measure, ...] = ("count", "bytes", "tokens")
Fields: TypeAlias = Mapping[str, str]
"""The field of a collection for each fact, by the name of the fact.

Stores get no filter on a fact without a field.
"""


@dataclass(frozen=True, slots=True)
class Rank:
    """The place of a record in its scope, counted from the newest record.

    It has the count of the records from the newest to this one, both included, and the
    bytes and tokens of their texts.
    """

    count: int
    bytes: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class RecordFacts:
    """The facts of a record that conditions use.

    `rank` is None if the scope was not measured. Then `ScopeExceeds` is false.
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
