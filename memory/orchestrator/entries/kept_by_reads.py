"""Entries that reads keep: each read moves their expiry to a later moment.

A read is one that counts as an access (see `accesses`): an entry that `get` or `search`
returns in its current state. The entry and its version stay as they are.

The home is written first, because its expiry decides. Copies in later stores follow:
replicas, by which searches find the entry, and copies of a move. If the store of a copy
does not answer, a later read moves the expiry of that copy. If an entry moves to
another tier at the same moment, the read may have no effect.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from memory.domain.entry import Entry
from memory.domain.errors import StoreError
from memory.domain.versions import stored_version
from memory.orchestrator.storage.cache import Cache
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.placement import Placement
from memory.policies.visibility import expiry_after_read
from memory.ports.record import Key
from memory.ports.store import Store
from memory.ports.writes import Annotate

log = logging.getLogger(__name__)


class ExpiryRefresher:
    """Moves the expiry of entries that are read."""

    def __init__(self, placement: Placement, cache: Cache) -> None:
        self._placement = placement
        self._cache = cache

    async def refresh(self, tenant: str, entries: Iterable[Entry]) -> None:
        """Move the expiry of those entries that reads keep, in the stores and in them.

        Entries were read just now. No store gets a call for entries without a lifetime.
        A failure is no failure of the read.
        """
        now = self._placement.now()
        due: dict[Store, dict[Key, Annotate]] = {}
        read: dict[Key, Entry] = {}
        for entry in entries:
            ends = expiry_after_read(entry.expires_at, entry.lifetime, now)
            if ends is None:
                continue
            key, home = Key(tenant, entry.id), self._placement.topology.home(entry.tier)
            version = stored_version(entry.version)
            due.setdefault(home, {})[key] = Annotate(ENTRIES, key, at=version, expires_at=ends)
            read[key] = entry
        for home, writes in due.items():
            moved = await self._move_expiry(home, list(writes.values()))
            for write in moved:
                read[write.key].expires_at = write.expires_at
            if moved:
                for store in self._placement.topology.later(home):
                    await self._move_expiry(store, moved)
                await self._cache.invalidate(ENTRIES, *(write.key for write in moved))

    async def _move_expiry(self, store: Store, writes: Sequence[Annotate]) -> list[Annotate]:
        """Return those of the writes that the store has made."""
        if getattr(store, "reads_only", False):
            return []
        answer = await self._placement.answer(store, self._placement.write("entry.refresh", store, *writes))
        if isinstance(answer, StoreError):
            log.info("the expiry of entries was not moved: %s", answer)
            return []
        return [write for write, outcome in zip(writes, answer, strict=True) if outcome.applied]
