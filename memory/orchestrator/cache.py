"""Copies in a volatile store, for reading by id: they may mislead a reader for a bounded time, never a writer.

A writer invalidates before it writes home; a reader fills after reading home, on condition that the stamp it saw before is still there.
A copy that is missing, older than `cache_max_age`, or from before the store's last restart is a miss. A cache that fails is a miss too.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from memory.domain.errors import StoreError
from memory.orchestrator.placement import Placement
from memory.orchestrator.steps import step
from memory.ports.collections import Collection
from memory.ports.record import Key, Record, Role, Stored
from memory.ports.writes import Absent, AtVersion, Delete, Newer, Put

log = logging.getLogger(__name__)


class Cache:
    """The volatile short store as a cache; does nothing where there is none."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement

    async def look(self, collection: Collection, key: Key) -> tuple[Record | None, Stored | None]:
        """The copy, if it may be served, and the stamp to fill under."""
        store = self._placement.topology.cache
        if store is None:
            return None, None
        try:
            with step("cache.look"):
                stamp = (await store.get(collection, [key]))[0]
        except StoreError as error:
            log.warning("cache '%s' is left out: %s", store.name, error)
            return None, None
        return (stamp if self._is_fresh(stamp) else None), stamp  # type: ignore[return-value]

    async def fill(self, collection: Collection, record: Record, stamp: Stored | None, read_at: object) -> None:
        """Keep a copy of a record read from home, unless a writer came between."""
        store = self._placement.topology.cache
        if store is None or record.tier != "short":
            return
        when = Absent() if stamp is None else AtVersion(getattr(stamp, "version", 0))
        copy = replace(record, role=Role.CACHED, owed=(), cached_at=read_at, epoch=store.epoch)  # type: ignore[arg-type]
        try:
            await self._placement.write("cache.fill", store, Put(collection, copy, when))
        except StoreError as error:
            log.warning("cache '%s' was not filled: %s", store.name, error)

    async def invalidate(self, collection: Collection, *keys: Key) -> None:
        """Before a write at home: what is cached goes, and fills that began before are refused.

        A cache that cannot be reached keeps its copies; readers outlive them by `cache_max_age`.
        """
        store = self._placement.topology.cache
        if store is None or not keys:
            return
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

    def _is_fresh(self, row: Stored | None) -> bool:
        store = self._placement.topology.cache
        if not isinstance(row, Record) or row.role is not Role.CACHED or store is None or row.cached_at is None:
            return False
        age = self._placement.now() - row.cached_at
        return row.epoch == store.epoch and abs(age) <= self._placement.settings.cache_max_age
