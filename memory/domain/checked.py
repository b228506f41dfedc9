"""What was found near an entry that is being written, and what was decided about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from memory.domain.shown import Shown

if TYPE_CHECKING:
    from memory.domain.entry import Entry

Action: TypeAlias = Literal["keep", "supersede", "merge"]


@dataclass(frozen=True, slots=True)
class Resolution:
    """What becomes of entries that are near one that is being written.

    `keep`: both stand. `supersede`: the new one takes the place of those of `ids`, of
    all that were shown unless told. `merge`: it does, and says `content` instead of its
    own.
    """

    action: Action = "keep"
    ids: Sequence[str] | None = None
    content: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ConflictReport(Shown):
    """What a check found and what came of it.

    `found` are the entries that were shown, the nearest first. `action` is what was
    done, `superseded` the ids that gave way. `note` says why it is not what was
    decided, or that nobody decided; None where there is nothing to say.
    """

    found: tuple[Entry, ...] = ()
    action: Action = "keep"
    superseded: tuple[str, ...] = ()
    note: str | None = None
