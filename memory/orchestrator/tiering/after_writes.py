"""Rules for `write`: they run after a write, for its scope.

They never make a write fail or wait. Scopes with new entries are noted, and each is
evaluated once, regardless of how many writes it had. If a store fails or the process
ends, a sweep does the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from memory.domain.entry import Entry
from memory.domain.errors import MemoryTiersError
from memory.orchestrator.tiering.promotion import Promotion

log = logging.getLogger(__name__)

MOST_SCOPES = 10_000
"""The most scopes that wait; others are left to sweeps."""


class AfterWrites:
    """Notes scopes with new entries, and runs the rules for them."""

    def __init__(self, promotion: Promotion, tiers: frozenset[str]) -> None:
        self._promotion = promotion
        self._tiers = tiers
        self._waiting: dict[tuple[str, str, str], None] = {}
        self.on_waiting: Callable[[], object] | None = None
        """Called when a scope waits. Nothing is noted while it is None."""

    def note(self, tenant: str, entries: Iterable[Entry]) -> None:
        """Note entries that were written."""
        if self.on_waiting is None or not self._tiers:
            return
        for entry in entries:
            if entry.tier in self._tiers and len(self._waiting) < MOST_SCOPES:
                self._waiting[tenant, entry.scope.text, entry.tier] = None
                self.on_waiting()

    async def catch_up(self) -> None:
        """Run the rules for all waiting scopes.

        A failure affects only its own scope.
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
