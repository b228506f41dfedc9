"""The report of reverting a source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from memory.domain.results import ResultMixin

Done: TypeAlias = Literal["retired", "erased", "restored", "left"]


@dataclass(frozen=True, slots=True, repr=False)
class RevertedEntry(ResultMixin):
    """One entry of a revert: what was done with it, and why.

    `why` is `written` or `changed` by the source, or `derived` from its entries.
    """

    entry_id: str
    scope: str
    why: Literal["written", "changed", "derived"]
    done: Done
    note: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class RevertReport(ResultMixin):
    """The entries of a revert, each with what was done or, with `dry_run`, would be.

    Entries that an earlier revert has handled are not listed again.
    """

    origins: tuple[str, ...]
    dry_run: bool
    entries: Sequence[RevertedEntry] = ()

    def of(self, done: Done) -> list[str]:
        """The ids of the entries with this outcome."""
        return [one.entry_id for one in self.entries if one.done == done]

    @property
    def counts(self) -> dict[str, int]:
        """How many entries were retired, erased, restored and left."""
        return {done: len(self.of(done)) for done in ("retired", "erased", "restored", "left")}
