"""What a roll-back of all that a source wrote does, or would do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from memory.domain.shown import Shown

Done: TypeAlias = Literal["retired", "erased", "restored", "left"]


@dataclass(frozen=True, slots=True, repr=False)
class Undone(Shown):
    """What becomes of one entry, and why: `written` by the source, `changed` by it, or
    `derived` of what it wrote.
    """

    entry_id: str
    scope: str
    why: Literal["written", "changed", "derived"]
    done: Done
    note: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class RolledBack(Shown):
    """The entries concerned, each with what was done, or with `dry_run` would be. What
    had been done before is not named again.
    """

    origins: tuple[str, ...]
    dry_run: bool
    entries: Sequence[Undone] = ()

    def of(self, done: Done) -> list[str]:
        """The ids of those of which this was done."""
        return [one.entry_id for one in self.entries if one.done == done]

    @property
    def counts(self) -> dict[str, int]:
        """How many were retired, erased, restored and left."""
        return {done: len(self.of(done)) for done in ("retired", "erased", "restored", "left")}
