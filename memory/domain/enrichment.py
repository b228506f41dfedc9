"""Results of enrichment: tags by an advisor, and older entries that were superseded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from pydantic import ConfigDict

from memory.domain.results import ResultMixin
from memory.domain.validation import ValidatedModel

if TYPE_CHECKING:
    from memory.domain.entry import Entry

Pass: TypeAlias = Literal["auto_tag", "auto_supersede"]
PASSES: tuple[Pass, ...] = get_args(Pass)

NOTES = "enrichment"
"""The field in the body of an entry's record that holds the result."""

STILL_PENDING = "still pending"
"""The note of enrichment that is not done yet. A reason may precede it."""


@dataclass(frozen=True, slots=True, repr=False)
class AutoTag(ResultMixin):
    """Tags by an advisor.

    `added` holds the tags that were appended to the caller's. If none were, `note` says
    why.
    """

    model: str | None
    applied: bool = False
    added: tuple[str, ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class AutoSupersede(ResultMixin):
    """Older entries that an advisor compared with a new entry.

    `candidates` has the ids of the entries that it was shown, in the order of their
    numbers. `invalidated` has the ids of entries that were superseded. `note` is the
    advisor's comment, or says why nothing was superseded.
    """

    model: str | None
    applied: bool = False
    candidates: tuple[str, ...] = ()
    invalidated: tuple[str, ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ManuallySuperseded(ResultMixin):
    """Entries that `supersedes=…` named, and those that were superseded."""

    requested: tuple[str, ...]
    invalidated: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class AdviceCost(ResultMixin):
    """The cost of one answer of an advisor, and its purpose `of`.

    Tokens are None unless the advisor reports them (see `Advice`).
    """

    of: Pass
    model: str
    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Enrichment(ResultMixin):
    """The enrichment of an entry; None for each kind that was not asked for.

    `pending` is True until it is done.
    """

    auto_tag: AutoTag | None = None
    supersede: AutoSupersede | None = None
    costs: tuple[AdviceCost, ...] = ()
    pending: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class WriteReport(ResultMixin):
    """A written entry, and what else the write did.

    `entry` includes the tags of an advisor. A field is None if that was not requested.
    `replayed` says that an earlier call had stored the entry, so this one stored
    nothing.
    """

    entry: Entry
    supersedes_manual: ManuallySuperseded | None = None
    supersede: AutoSupersede | None = None
    auto_tag: AutoTag | None = None
    costs: tuple[AdviceCost, ...] = ()
    replayed: bool = False


class _TagNotes(ValidatedModel):
    model: str | None
    added: list[str]
    note: str | None


class _SupersedeNotes(ValidatedModel):
    model: str | None
    candidates: list[str]
    named: list[str]
    note: str | None


class _CostNotes(ValidatedModel):
    model_config = ConfigDict(extra="forbid")

    of: Pass
    model: str
    input_tokens: int | None = None
    output_tokens: int | None = None


class EnrichmentNotes(ValidatedModel):
    """The enrichment in an entry's record, as an import checks it."""

    auto_tag: _TagNotes | None = None
    auto_supersede: _SupersedeNotes | None = None
    costs: tuple[_CostNotes, ...] = ()
