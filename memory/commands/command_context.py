"""What commands ask of a memory, and are answered. Whoever answers keeps to one tenant,
to what may be read and to where is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from memory.domain.artifact import Artifact
from memory.domain.entry import Entry, EntryType

TYPES = tuple(EntryType)
MOST_ENTRIES = 100
"""That are listed (D112)."""
MOST_HITS = 10
"""That a search shows (D94)."""
LINKS_A_SIDE = 50
"""Of an entry, that are shown (D117)."""
MOST_SUPERSEDED = 32
MOST_BODY_BYTES = 32 * 1024
"""Of what an agent writes or reads at once (D3)."""


def as_typed(named: str) -> str:
    """What names something, as a person writes it."""
    return f"#{named}" if named.isdigit() else named


@dataclass(frozen=True, slots=True)
class Listed:
    """Entries in order; `more` says whether others follow. `notes` tell what the answer
    lacks, here and everywhere below.
    """

    entries: Sequence[Entry]
    more: bool = False
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Hits:
    """What a search found, the best first, and in which other words it looked (D91)."""

    entries: Sequence[Entry]
    also: Sequence[str] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """A relation; of an entry at its end that is retired there is None."""

    label: str
    source_id: str
    target_id: str


@dataclass(frozen=True, slots=True)
class Around:
    """The links of an entry and those at their other ends that may be read, by id; None
    for one that is retired (D113).
    """

    outgoing: Sequence[Link]
    incoming: Sequence[Link]
    others: Mapping[str, Entry | None]
    more: bool = False
    artifact: Artifact | None = None
    """To which the entry points."""


@dataclass(frozen=True, slots=True)
class Reached:
    """What is linked to an entry, itself first; each link once (D117)."""

    entries: Sequence[Entry]
    links: Sequence[Link]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Linked:
    """How closely an entry is linked (D118)."""

    outgoing: int
    incoming: int
    labels: Sequence[str]
    one_step: int
    two_steps: int
    verdict: str
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Noted:
    """What stands in a scratchpad; `exists` once anything was written there (D132)."""

    content: str
    exists: bool


class Reach(Protocol):
    """Every call may raise a `MemoryTiersError`, which is answered as ERR."""

    @property
    def conversation(self) -> str | None:
        """The active one, to which what is added is pinned."""

    @property
    def now(self) -> datetime: ...

    async def find(self, named: Sequence[str]) -> Mapping[str, Entry]:
        """The active entries that may be read, by what names them: digits, or a UUID.
        What names none of these is left out.

        Raises `InvalidInput` where it is an artifact that is named, and may be read.
        """

    async def numbers(
        self, ids: Iterable[str], kind: Literal["entry", "artifact"] = "entry"
    ) -> Mapping[str, int]:
        """The running numbers of entries, or artifacts, of those of which one can be
        told. Never fails.
        """

    async def list_entries(self, types: Sequence[str], tag: str | None, limit: int) -> Listed:
        """The newest entries of these types, with this tag."""

    async def around(self, entry: Entry) -> Around: ...

    async def search(self, query: str, limit: int, *, rerank: bool) -> Hits: ...

    async def expand(self, entry_id: str, depth: int) -> Reached: ...

    async def density(self, entry_id: str) -> Linked: ...

    async def artifact(self, named: str) -> Artifact | None:
        """What is known of an artifact that may be read. Raises `InvalidInput` where it
        is an entry that is named, and may be read.
        """

    async def beginning(self, artifact_id: str, most: int) -> bytes:
        """Of an artifact's bytes the first, at most so many."""

    async def add(
        self, kind: str, title: str, content: str, supersedes: Sequence[str], artifact: str | None
    ) -> tuple[Entry, Sequence[str]]:
        """Write an entry, in the place of others. The entry, and what is to be said
        beside it.
        """

    async def link(self, source_id: str, label: str, target_id: str) -> None: ...

    async def invalidate(self, entry_id: str) -> bool:
        """False where there is no such entry that is active."""

    async def write(self, text: str, *, shared: bool) -> int:
        """Append to the agent's scratchpad, or to that which all share; how many bytes
        stand there then.
        """

    async def scratchpad(self, *, shared: bool) -> Noted: ...

    async def clear(self, *, shared: bool) -> bool:
        """False where it was empty."""
