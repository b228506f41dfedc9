"""The entries of a conversation, listed for an agent that gets some of its work."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from memory.commands.escape import one_line
from memory.domain.entry import Entry, EntryType
from memory.domain.results import ResultMixin
from memory.facade.runtime.access import Access
from memory.orchestrator.entries.browsing import EntryPage
from memory.policies.entry_query import EntryQuery

log = logging.getLogger(__name__)

MOST_DELEGATED = 15


@dataclass(frozen=True, slots=True, repr=False)
class DelegatedEntry(ResultMixin):
    """One entry of a delegation: its subject and its ids.

    `number` is None if no short id could be read. Use `id` then.
    """

    id: str
    number: int | None
    type: EntryType
    title: str | None
    tags: tuple[str, ...]

    @property
    def line(self) -> str:
        """The entry as one line: `- #42  [reference]  Where the keys are [home, keys]`.

        It stays one line, even if the title or the tags contain line breaks.
        """
        title = one_line(self.title or "") or "(untitled)"
        tags = f" [{', '.join(map(one_line, self.tags))}]" if self.tags else ""
        return f"- #{self.id if self.number is None else self.number}  [{self.type}]  {title}{tags}"


@dataclass(frozen=True, slots=True, repr=False)
class Delegation(ResultMixin):
    """The entries of a conversation, newest first.

    An empty delegation is false, and its text is empty.
    """

    entries: tuple[DelegatedEntry, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.entries)

    @property
    def text(self) -> str:
        """The delegation for a prompt: a heading, and a line for each entry."""
        return (
            "\n".join(["Remembered in this conversation:", *(one.line for one in self.entries)])
            if self.entries
            else ""
        )

    def to_dict(self) -> dict[str, Any]:
        return {"entries": [one.to_dict() for one in self.entries], "text": self.text}


async def delegation(access: Access, session_id: str | None, asked: EntryQuery) -> Delegation:
    """Return the delegation; see `Sessions.delegation`.

    Every failure is logged, and the result is then empty.
    """
    if session_id is None or (access.hides and not await access.sees_session(session_id)):
        return Delegation()
    try:
        found = await access.browse(
            replace(asked, pinned_to=session_id, limit=min(asked.limit, MOST_DELEGATED))
        )
        failed = "; ".join(found.degraded)
    except Exception as error:  # noqa: BLE001 - the work is given all the same
        found, failed = EntryPage(), str(error)
    if failed:
        log.warning("the memories of session %s are not included in a delegation: %s", session_id, failed)
        return Delegation()
    numbers = await _numbers(access, found)
    return Delegation(tuple(_delegated_entry(entry, numbers.get(entry.id)) for entry in found))


async def _numbers(access: Access, found: Sequence[Entry]) -> dict[str, int]:
    if access.hides:  # a view of some scopes has no short ids
        return {}
    try:
        return await access.engine.short_ids.of(access.tenant, [entry.id for entry in found])
    except Exception as error:  # noqa: BLE001 - the ids name them as well
        log.warning("short ids could not be read, so entries show full ids: %s", error)
        return {}


def _delegated_entry(entry: Entry, number: int | None) -> DelegatedEntry:
    return DelegatedEntry(entry.id, number, entry.type, entry.title, tuple(entry.tags))
