"""The entries of a conversation, listed for an agent that gets some of its work."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from memory.domain.delegation import DelegatedEntry, Delegation
from memory.domain.entry import Entry
from memory.domain.search_results import EntryPage
from memory.facade.runtime.access import Access
from memory.policies.entry_query import EntryQuery

log = logging.getLogger(__name__)

MOST_DELEGATED = 15


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
