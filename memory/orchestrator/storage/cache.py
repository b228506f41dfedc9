"""Copies in a volatile store, for reads by id.

A stale copy can mislead a reader for a bounded time, and never a writer.

A writer or mover invalidates the copy before it writes home, and again after. A reader
fills the cache after it has read home. The fill is conditional: the stamp that the
reader saw before it read home must still be there. The first invalidation clears the
copy. The second refuses fills by readers that saw the first and still read the old
home.

A copy is a miss if it is missing, older than `cache_max_age`, or from before the
store's last restart. A cache that fails is a miss too.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from memory.domain.errors import StoreError
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.steps import step
from memory.ports.collections import Collection
from memory.ports.record import Key, Record, Role, Stored
from memory.ports.writes import Absent, AtVersion, Delete, Newer, Put

log = logging.getLogger(__name__)

MISSED = 10_000
"""How many copies that could not be invalidated are remembered one by one."""


@dataclass(frozen=True, slots=True)
class CacheLookup:
    """The state of the cache that a reader saw before it read home.

    `record` is the copy, if it may be served. Otherwise `stamp` and `epoch` (the
    store's run) are the conditions of the fill.
    """

    record: Record | None
    stamp: Stored | None
    epoch: str
    at: datetime


class Cache:
    """The volatile short store as a cache. Does nothing if there is no such store."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._missed: dict[tuple[str, Key], datetime] = {}
        self._closed_until: datetime | None = None

    async def look(self, collection: Collection, key: Key) -> CacheLookup:
        """Return the copy, if it may be served, and the conditions of a fill."""
        store, now = self._placement.topology.cache, self._placement.now()
        if store is None:
            return CacheLookup(None, None, "", now)
        epoch = store.epoch
        try:
            stamp = await self._placement.read_one("cache.look", store, collection, key)
        except StoreError as error:
            log.warning("cache '%s' is bypassed: %s", store.name, error)
            return CacheLookup(None, None, "", now)
        copy = (
            stamp
            if isinstance(stamp, Record) and self._is_fresh(stamp) and self._serves(collection, key)
            else None
        )
        return CacheLookup(copy, stamp, epoch, now)

    async def fill(self, collection: Collection, record: Record, seen: CacheLookup) -> None:
        """Store a copy of a record that was read from home.

        Does nothing if a writer came between, or if the store has restarted since.
        """
        store = self._placement.topology.cache
        if store is None or record.tier != "short" or seen.epoch != store.epoch:
            return
        when = Absent() if seen.stamp is None else AtVersion(getattr(seen.stamp, "version", 0))
        copy = replace(record, role=Role.CACHED, owed=(), cached_at=seen.at, epoch=seen.epoch)
        try:
            outcome = await self._placement.write_one("cache.fill", store, Put(collection, copy, when))
            if outcome.applied:
                self._missed.pop((collection.name, record.key), None)
        except StoreError as error:
            log.warning("cache '%s' was not filled: %s", store.name, error)

    async def invalidate(self, collection: Collection, *keys: Key) -> bool:
        """Remove copies before and after a write to the home, and refuse earlier fills.

        A cache that cannot be reached keeps its copies. This process then serves none
        of them until it has invalidated them. Other processes serve them until
        `cache_max_age` is over, or until maintenance has invalidated the deleted ones.

        Returns:
            False if the cache did not answer.
        """
        store = self._placement.topology.cache
        if store is None or not keys:
            return True
        try:
            with step("cache.invalidate"):
                rows = await store.get(collection, keys)
                stamps = [
                    Delete(
                        collection,
                        key,
                        version=self._placement.next_version(getattr(row, "version", 0)),
                        when=Newer(),
                        discard_at=self._placement.now() + 2 * self._placement.settings.cache_max_age,
                    )
                    for key, row in zip(keys, rows, strict=True)
                ]
                await store.apply(stamps)
        except StoreError as error:
            log.warning("cache '%s' was not invalidated: %s", store.name, error)
            self._remember(collection, keys)
            return False
        for key in keys:
            self._missed.pop((collection.name, key), None)
        return True

    def _remember(self, collection: Collection, keys: Sequence[Key]) -> None:
        """Remember copies that this process must not serve.

        If there are too many to remember, the process serves no copy until all of them
        are too old to be served.
        """
        now = self._placement.now()
        self._missed = (
            {missed: until for missed, until in self._missed.items() if until > now}
            if len(self._missed) >= MISSED
            else self._missed
        )
        until = now + self._placement.settings.cache_max_age
        for key in keys:
            self._missed[collection.name, key] = until
        if len(self._missed) > MISSED:
            self._missed.clear()
            self._closed_until = until

    def _serves(self, collection: Collection, key: Key) -> bool:
        now = self._placement.now()
        if self._closed_until is not None and now < self._closed_until:
            return False
        until = self._missed.get((collection.name, key)) if self._missed else None
        return until is None or until <= now

    def _is_fresh(self, row: Record) -> bool:
        store = self._placement.topology.cache
        if row.role is not Role.CACHED or store is None or row.cached_at is None:
            return False
        age = self._placement.now() - row.cached_at
        return row.epoch == store.epoch and abs(age) <= self._placement.settings.cache_max_age
