"""Rules for `write`: asked behind a write, about the scope that was written to. They
never fail a write nor make it wait.

What is written to is noted, and gone through once, however much was written meanwhile.
What is not done, since a store fails or the process ends, is done by a sweep.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from memory.domain.entry import Entry
from memory.domain.errors import MemoryTiersError
from memory.orchestrator.tiering.promotion import Promotion

log = logging.getLogger(__name__)

MOST_SCOPES = 10_000
"""How many scopes wait at most. Those beyond are left to sweeps."""


class AfterWrites:
    """Notes what was written to, and has the rules asked."""

    def __init__(self, promotion: Promotion, tiers: frozenset[str]) -> None:
        self._promotion = promotion
        self._tiers = tiers
        self._waiting: dict[tuple[str, str, str], None] = {}
        self.on_waiting: Callable[[], object] | None = None
        """Called when something waits. Unless somebody listens nothing is noted."""

    def note(self, tenant: str, entries: Iterable[Entry]) -> None:
        """These entries were written."""
        if self.on_waiting is None or not self._tiers:
            return
        for entry in entries:
            if entry.tier in self._tiers and len(self._waiting) < MOST_SCOPES:
                self._waiting[tenant, entry.scope.text, entry.tier] = None
                self.on_waiting()

    async def catch_up(self) -> None:
        """Ask the rules about all scopes that wait. One for which that fails costs no
        other.
        """
        waiting, self._waiting = self._waiting, {}
        for tenant, scope, tier in waiting:
            try:
                report = await self._promotion.after_writing(tenant, scope, tier)
            except MemoryTiersError as error:
                log.warning("rules for writes wait for the next sweep: %s", error)
            else:
                for said in report.waiting:
                    log.warning("rules for writes wait for the next sweep: %s", said)
