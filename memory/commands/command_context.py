"""The interface through which commands use a memory, and its results.

An implementation keeps to one tenant, to the scopes that may be read, and to the scope
that is written.
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
"""The largest number of entries in a list."""
MOST_HITS = 10
"""The largest number of hits that a search shows."""
LINKS_A_SIDE = 50
"""The largest number of links shown on each side of an entry."""
MOST_SUPERSEDED = 32
MOST_BODY_BYTES = 32 * 1024
"""The largest text, in bytes, that an agent writes or reads at once."""


def as_typed(named: str) -> str:
    """Return a short id or an id as a person writes it."""
    return f"#{named}" if named.isdigit() else named


@dataclass(frozen=True, slots=True)
class EntryList:
    """Entries in order.

    `more` says whether others follow. Here and below, `notes` tell what the answer
    lacks.
    """

    entries: Sequence[Entry]
    more: bool = False
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class SearchHits:
    """The hits of a search, best first; `also` has other queries that were searched."""

    entries: Sequence[Entry]
    also: Sequence[str] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """A relation between two entries. Either may be retired."""

    label: str
    source_id: str
    target_id: str


@dataclass(frozen=True, slots=True)
class EntryLinks:
    """The links of an entry, and by id the readable entries at their other ends.

    `others` has None for an entry that is retired.
    """

    outgoing: Sequence[Link]
    incoming: Sequence[Link]
    others: Mapping[str, Entry | None]
    more: bool = False
    artifact: Artifact | None = None
    """The artifact to which the entry refers."""


@dataclass(frozen=True, slots=True)
class LinkedEntries:
    """The entries linked to an entry, itself first, and each link once."""

    entries: Sequence[Entry]
    links: Sequence[Link]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class LinkDensity:
    """How closely an entry is linked to others."""

    outgoing: int
    incoming: int
    labels: Sequence[str]
    one_step: int
    two_steps: int
    verdict: str
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ScratchpadContent:
    """The content of a scratchpad; `exists` is true once anything was written to it."""

    content: str
    exists: bool


class CommandContext(Protocol):
    """A memory as commands see it.

    Every call may raise a `MemoryTiersError`, which is answered as ERR.
    """

    @property
    def conversation(self) -> str | None:
        """The active conversation; new entries store it as `conversation_id`."""

    @property
    def now(self) -> datetime: ...

    def for_command(self, number: int) -> CommandContext:
        """Return the memory for command `number` of a text; the first is 1.

        With a request id, each command gets an id that derives from it.
        """

    async def find(self, named: Sequence[str]) -> Mapping[str, Entry]:
        """Return the readable, active entries by the digits or UUIDs that name them.

        Names that match no such entry are left out.

        Raises:
            InvalidInput: A name is that of an artifact that may be read.
        """

    async def numbers(
        self, ids: Iterable[str], kind: Literal["entry", "artifact"] = "entry"
    ) -> Mapping[str, int]:
        """Return the short ids of entries or artifacts that have one. Never fails."""

    async def list_entries(self, types: Sequence[str], tag: str | None, limit: int) -> EntryList:
        """List the newest entries of these types, with this tag."""

    async def around(self, entry: Entry) -> EntryLinks: ...

    async def search(self, query: str, limit: int, *, rerank: bool) -> SearchHits: ...

    async def expand(self, entry_id: str, depth: int) -> LinkedEntries: ...

    async def density(self, entry_id: str) -> LinkDensity: ...

    async def artifact(self, named: str) -> Artifact | None:
        """Return the description of an artifact that may be read.

        Raises:
            InvalidInput: The name is that of an entry that may be read.
        """

    async def beginning(self, artifact_id: str, most: int) -> bytes:
        """Return the first bytes of an artifact, at most `most`."""

    async def add(
        self, kind: str, title: str, content: str, supersedes: Sequence[str], artifact: str | None
    ) -> tuple[Entry, Sequence[str]]:
        """Write an entry, which supersedes others.

        Returns the entry, and the notes to show beside it.
        """

    async def link(self, source_id: str, label: str, target_id: str) -> None: ...

    async def invalidate(self, entry_id: str) -> bool:
        """Invalidate an entry. Return False if it does not exist or is not active."""

    async def write(self, text: str, *, shared: bool) -> int:
        """Append to the agent's scratchpad, or to the shared one.

        Returns how many bytes it holds then.
        """

    async def scratchpad(self, *, shared: bool) -> ScratchpadContent: ...

    async def clear(self, *, shared: bool) -> bool:
        """Clear a scratchpad. Return False if it was empty."""
