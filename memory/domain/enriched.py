"""What became of an entry's enrichment: tags that an advisor gave it, and older entries
that it takes the place of (D109).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from pydantic import ConfigDict

from memory.domain.shown import Shown
from memory.domain.validation import Checked

if TYPE_CHECKING:
    from memory.domain.entry import Entry

Pass: TypeAlias = Literal["auto_tag", "auto_supersede"]
PASSES: tuple[Pass, ...] = get_args(Pass)

NOTES = "enrichment"
"""In the body of an entry's record: what came of it."""

STILL_PENDING = "still pending"
"""The note of enrichment that is not done yet; a reason may stand before it."""


@dataclass(frozen=True, slots=True, repr=False)
class AutoTag(Shown):
    """Tags by an advisor. `added` are those that were put behind the caller's; where
    none were, `note` says why.
    """

    model: str | None
    applied: bool = False
    added: tuple[str, ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class AutoSupersede(Shown):
    """Older entries that an advisor was shown, as `candidates`, by their ids in the
    order of their numbers, and those that gave way, `invalidated`. `note` is what the
    advisor said of it, or why nothing gave way.
    """

    model: str | None
    applied: bool = False
    candidates: tuple[str, ...] = ()
    invalidated: tuple[str, ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ManuallySuperseded(Shown):
    """Entries that the caller named (`supersedes=…`), and those that gave way."""

    requested: tuple[str, ...]
    invalidated: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class AdviceCost(Shown):
    """What one answer of an advisor cost, and for what it was asked; tokens where the
    advisor says how many (see `Advice`).
    """

    of: Pass
    model: str
    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Enrichment(Shown):
    """The enrichment of an entry; None for each kind that was not asked for.

    `pending` is True until it is done.
    """

    auto_tag: AutoTag | None = None
    supersede: AutoSupersede | None = None
    costs: tuple[AdviceCost, ...] = ()
    pending: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class WriteReport(Shown):
    """An entry that was written, and what the write did besides (D109).

    `entry` has the tags that it was given. A field is None where nothing was asked for.
    """

    entry: Entry
    supersedes_manual: ManuallySuperseded | None = None
    supersede: AutoSupersede | None = None
    auto_tag: AutoTag | None = None
    costs: tuple[AdviceCost, ...] = ()


class _TagNotes(Checked):
    model: str | None
    added: list[str]
    note: str | None


class _SupersedeNotes(Checked):
    model: str | None
    candidates: list[str]
    named: list[str]
    note: str | None


class _CostNotes(Checked):
    model_config = ConfigDict(extra="forbid")

    of: Pass
    model: str
    input_tokens: int | None = None
    output_tokens: int | None = None


class EnrichmentNotes(Checked):
    """What an entry's record has of its enrichment, as it is checked where it comes out
    of a file.
    """

    auto_tag: _TagNotes | None = None
    auto_supersede: _SupersedeNotes | None = None
    costs: tuple[_CostNotes, ...] = ()
