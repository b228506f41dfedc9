"""How often entries were read, for rules that ask: counted in the process, told to the
stores in batches, never in a reader's way.

An access is an entry handed out by `get` or found by `search`, as it is now; lists and
the past do not count. Counts are told by sweeps, at the end of a session before its
rules are asked, and at close. What a process had not told when it died is not counted,
nor what meets an edit on its way: never more is counted than was read.
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
"""How many accesses of one entry are told at once; more between two tellings count as
these.
"""


class Accesses:
    """Counts accesses and tells them."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._untold: dict[Key, list[datetime]] = {}

    def note(self, tenant: str, entry_ids: Iterable[str]) -> None:
        """These entries were read now. Of more entries than are remembered between two
        tellings, the later ones are not counted.
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
        """Let the homes of what was read know; how many accesses were counted. What
        could not be told is not counted, and stores that are opened to read only are
        not told.
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
