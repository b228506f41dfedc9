"""Access counts of entries, for rules.

Accesses are counted in the process and written to the stores in batches, so that
readers never wait.

An access is an entry that `get` or `search` returns in its current state. Lists and
reads of the past do not count. Counts are written by sweeps, at the end of a session
before its rules run, and at close. A count is lost if the process dies before, or if
the entry is edited meanwhile. Counts are never too high.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime

from memory.domain.errors import StoreError
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.placement import Placement
from memory.ports.record import Key, Role
from memory.ports.store import Store
from memory.ports.writes import Annotate

log = logging.getLogger(__name__)

MOST_ENTRIES = 10_000
MOST_OF_ONE = 100
"""How many accesses of one entry are written at once. More accesses between two writes
count as this many.
"""


class Accesses:
    """Counts accesses and writes the counts to the stores."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._untold: dict[Key, list[datetime]] = {}

    def note(self, tenant: str, entry_ids: Iterable[str]) -> None:
        """Count an access of these entries.

        Between two writes, at most `MOST_ENTRIES` entries are counted.
        """
        now = self._placement.now()
        for entry_id in entry_ids:
            key = Key(tenant, entry_id)
            times = self._untold.get(key)
            if times is None and len(self._untold) < MOST_ENTRIES:
                self._untold[key] = [now]
            elif times is not None and len(times) < MOST_OF_ONE:
                times.append(now)

    async def tell(self) -> int:
        """Write the counts to the homes of the entries. Returns how many were written.

        Counts that cannot be written are lost. Stores that are opened read-only get
        none.
        """
        untold, self._untold = self._untold, {}
        keys, told, size = list(untold), 0, self._placement.settings.batch
        for start in range(0, len(keys), size):
            located = await self._placement.locate_many(ENTRIES, keys[start : start + size], partial=True)
            by_store: dict[Store, list[Annotate]] = {}
            for at in located:
                if at.record is not None and at.store is not None and at.record.role is Role.HOME:
                    times = untold[at.key]
                    version = at.record.version
                    by_store.setdefault(at.store, []).extend(
                        Annotate(ENTRIES, at.key, at=version, role_is=Role.HOME, accessed_at=time)
                        for time in times
                    )
            for store, notes in by_store.items():
                if getattr(store, "reads_only", False):
                    continue
                try:
                    outcomes = await self._placement.write("access.note", store, *notes)
                    told += sum(outcome.applied for outcome in outcomes)
                except StoreError as error:
                    log.warning("%d accesses are not counted: %s", len(notes), error)
        return told
