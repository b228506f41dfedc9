"""Conflicts of an entry that is being written, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from memory.domain.corrections import explain_arguments
from memory.domain.results import ResultMixin

if TYPE_CHECKING:
    from memory.domain.entry import Entry

Action: TypeAlias = Literal["keep", "supersede", "merge"]


@explain_arguments
@dataclass(frozen=True, slots=True)
class Resolution:
    """The answer of `resolve`: what to do about conflicting entries.

    `keep` writes the new entry and leaves the others active. `supersede` retires the
    entries of `ids`; None means all that were shown. `merge` retires them too, and the
    new entry is written with `content` in place of its own.
    """

    action: Action = "keep"
    ids: Sequence[str] | None = None
    content: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ConflictReport(ResultMixin):
    """The conflicts that a write found, and what it did about them.

    `found` holds the entries that were shown to `resolve`, the nearest first. `action`
    says what was done, and `superseded` names the retired entries. `note` says why that
    differs from the resolution, or that there was none; else it is None.
    """

    found: tuple[Entry, ...] = ()
    action: Action = "keep"
    superseded: tuple[str, ...] = ()
    note: str | None = None
