"""Reports of promotion: which entries moved, were copied, or stayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memory.domain.results import ResultMixin


@dataclass(frozen=True, slots=True, repr=False)
class MovedEntry(ResultMixin):
    entry_id: str
    from_tier: str
    to_tier: str
    rule: str
    because: str


@dataclass(frozen=True, slots=True, repr=False)
class KeptEntry(ResultMixin):
    entry_id: str
    tier: str
    because: str


@dataclass(frozen=True, slots=True, repr=False)
class CopiedEntry(ResultMixin):
    entry_id: str
    copy_id: str
    to_scope: str
    rule: str
    because: str


@dataclass(slots=True, repr=False)
class PromotionReport(ResultMixin):
    """Which entries moved or were copied, by which rule, and which stayed and why.

    `waiting` names stores that did not answer: their entries were not checked, or
    entries could not move to them. At the end of a session `derived` lists the ids of
    the entries that this call made of the session's messages. `waiting` then also says
    why others were not made yet, and names entries with a pending step.
    """

    moved: list[MovedEntry] = field(default_factory=list)
    kept: list[KeptEntry] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    derived: list[str] = field(default_factory=list)
    copied: list[CopiedEntry] = field(default_factory=list)

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> PromotionReport:
        """Return the report from the result of `to_dict`."""
        return cls(
            moved=[MovedEntry(**one) for one in said["moved"]],
            kept=[KeptEntry(**one) for one in said["kept"]],
            waiting=list(said["waiting"]),
            derived=list(said["derived"]),
            copied=[CopiedEntry(**one) for one in said["copied"]],
        )
