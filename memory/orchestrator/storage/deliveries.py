"""Deliveries after a write: pending steps run in batches, after the acknowledgement.

A write is acknowledged when the home store has the record with its pending steps. This
queue adds nothing to that guarantee: if the process dies, a sweep finds the steps. So
queued records may be dropped, and are dropped if a store does not answer. The queue
holds only the newest version of each record. An earlier version needs no replica any
more, and the newer version carries its other pending steps.

Steps that must be complete everywhere when the call returns do not pass through here:
deletions, erasures, and removed sources.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence, Set
from contextvars import Context, copy_context
from dataclasses import dataclass, replace
from math import inf
from typing import Literal, Protocol, TypeAlias

from memory.orchestrator.storage.outbox import KEPT_VERSION, REPLICA, Outbox, OutboxRecord, pending_versions
from memory.orchestrator.storage.placement import Placement
from memory.ports.collections import Collection
from memory.ports.query import Where, covers
from memory.ports.record import Key, PendingStep, Record

log = logging.getLogger(__name__)

Consistency: TypeAlias = Literal["acknowledged", "replicated"]
"""When a write returns: `acknowledged` once its home store has it. `replicated` waits
for its replicas too, as far as their stores answer.
"""
CONSISTENCIES: tuple[Consistency, ...] = ("acknowledged", "replicated")

BEHIND = frozenset({REPLICA, KEPT_VERSION})
"""The steps that are queued here. Reads of the past also look at pending versions, and
searches also look at the queue.
"""
LEFT_ALONE = 1.0
"""Seconds for which a store that did not answer is not asked again while new records
keep coming.
"""

About: TypeAlias = tuple[str, Key]


@dataclass(frozen=True, slots=True)
class QueuedDelivery:
    """A queued record.

    `place` is its position in the order of arrival, `since` the time when it was
    queued, and `size` its bytes.
    """

    pending: OutboxRecord
    place: int
    since: float
    size: int
    tiers: frozenset[str]
    """The tiers to which it is delivered."""


class Watcher(Protocol):
    """Receives how far behind deliveries are. See `Telemetry`."""

    def on_queue_change(self, tier: str, by: int) -> None:
        """Called when the number of records that wait for this tier changes by `by`."""
        ...

    def on_deliver(self, tier: str, seconds: float) -> None:
        """Called when a record was delivered.

        `seconds` is the time since its write was acknowledged.
        """
        ...


@dataclass(frozen=True, slots=True)
class DeliveryLag:
    """How far behind this process is.

    `records` counts those that wait or are being delivered. `seconds` is the age of the
    oldest.
    """

    records: int = 0
    seconds: float = 0.0


class Deliveries:
    """The delivery queue of one engine, and the task that empties it.

    The task lives as long as something is queued.
    """

    def __init__(self, placement: Placement, outbox: Outbox) -> None:
        self._placement = placement
        self._outbox = outbox
        self._taking = False
        self._time: Callable[[], float] = lambda: 0.0
        self._context = Context()
        self.watcher: Watcher | None = None
        self.beside: dict[str, Callable[[OutboxRecord], object]] = {}
        """Handlers by step name. A handler receives the records with that pending step,
        must not block, and carries the step out itself, in the background.
        """
        self._forget()

    def _forget(self) -> None:
        self._queued: dict[About, QueuedDelivery] = {}
        self._under_way: dict[About, QueuedDelivery] = {}
        self._size = 0
        self._came = 0
        self._task: asyncio.Task[None] | None = None
        self._enough, self._moved, self._door = asyncio.Event(), asyncio.Event(), asyncio.Lock()
        self._away, self._away_since = set[str](), -inf

    # -- life --------------------------------------------------------------------------

    def open(self) -> None:
        """Accept deliveries on the running event loop.

        Spans of deliveries belong to the context that called `open`, and to no write.
        """
        self._leave_queued()
        self._forget()
        self._taking, self._time, self._context = True, asyncio.get_running_loop().time, copy_context()

    async def close(self) -> None:
        """Deliver the queued records, and accept no more: later steps stay pending.

        If it is cancelled, the rest of the queue stays pending.
        """
        self._taking = False
        try:
            await self.flush()
        finally:
            if (task := self._task) is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            self._leave_queued()
            self._moved.set()

    # -- giving ------------------------------------------------------------------------

    async def deliver(self, pending: Sequence[OutboxRecord], consistency: Consistency | None = None) -> None:
        """Carry out the pending steps of these records.

        Steps that may run in the background are queued, unless `consistency` says
        otherwise. While the queue is full, the caller waits for room.
        """
        owing = [left for one in pending if (left := self._left_to_do(one)).owner.owed]
        waits = self._taking and (consistency or self._placement.settings.consistency) == "acknowledged"
        now: list[OutboxRecord] = []
        for one in owing:
            if waits and all(owed.step in BEHIND for owed in one.owner.owed):
                await self._queue(one)
            else:
                now.append(one)
        if now:
            await self._outbox.finish_all(now)

    def _left_to_do(self, one: OutboxRecord) -> OutboxRecord:
        """Return the record without the steps that other handlers carry out."""
        others = [self.beside[owed.step] for owed in one.owner.owed if owed.step in self.beside]
        for hears in others:
            hears(one)
        owed = tuple(owed for owed in one.owner.owed if owed.step not in self.beside)
        return replace(one, owner=replace(one.owner, owed=owed)) if others else one

    async def _queue(self, one: OutboxRecord) -> None:
        about, size = (one.collection.name, one.owner.key), _size(one)
        if self._door.locked() or not self._has_room(size):
            await self._room(size)
        if not self._taking:
            return  # the step stays pending
        there, tiers = self._queued.get(about), frozenset(str(owed.data["to"]) for owed in one.owner.owed)
        if there is None:
            self._came += 1
            self._queued[about] = QueuedDelivery(one, self._came, self._time(), size, tiers)
        elif there.pending.owner.version <= one.owner.version:
            self._queued[about] = QueuedDelivery(one, there.place, there.since, size, tiers)
            self._note_removal(there)
        else:
            return
        self._size += size
        self._tell(tiers, 1)
        if len(self._queued) >= self._placement.settings.batch:
            self._enough.set()
        self._start()

    async def _room(self, size: int) -> None:
        """Wait for room, in turn."""
        async with self._door:
            while self._taking and not self._has_room(size):
                self._enough.set()
                await self._moved.wait()

    def _has_room(self, size: int) -> bool:
        settings, records = self._placement.settings, len(self._queued) + len(self._under_way)
        return not records or (
            records < settings.queued_records and self._size + size <= settings.queued_bytes
        )

    # -- what is behind ----------------------------------------------------------------

    async def flush(self) -> None:
        """Wait until all records that are queued now are delivered.

        Records whose store does not answer are left to maintenance.
        """
        last = self._came
        while any(waits.place <= last for waits in self._all()):
            self._start()
            self._enough.set()
            await self._moved.wait()

    def behind(self, tier: str, tenant: str | None = None) -> DeliveryLag:
        """Return how far behind deliveries to a tier are, for one tenant or for all."""
        waiting = [
            waits.since
            for waits in self._all()
            if tier in waits.tiers and tenant in (None, waits.pending.owner.key.tenant)
        ]
        return DeliveryLag(len(waiting), self._time() - min(waiting)) if waiting else DeliveryLag()

    def records(self, collection: Collection, places: Sequence[Where]) -> list[Record]:
        """Return the newest versions of records that are queued or being delivered.

        Only records in the given places are returned.
        """
        found = {
            about: waits.pending.owner
            for about, waits in (self._under_way | self._queued).items()
            if about[0] == collection.name
        }
        return [
            owner
            for owner in found.values()
            if isinstance(owner, Record) and any(covers(place, owner.partition) for place in places)
        ]

    def _note_removal(self, waits: QueuedDelivery) -> None:
        self._size -= waits.size
        self._tell(waits.tiers, -1)

    def _leave_queued(self) -> None:
        while self._queued:
            self._note_removal(self._queued.popitem()[1])

    def _tell(self, tiers: Set[str], by: int) -> None:
        if self.watcher is not None:
            for tier in tiers:
                self.watcher.on_queue_change(tier, by)

    def _all(self) -> Iterator[QueuedDelivery]:
        yield from self._under_way.values()
        yield from self._queued.values()

    # -- the task ----------------------------------------------------------------------

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="memory-deliveries", context=self._context)

    async def _run(self) -> None:
        self._away_since = -inf
        try:
            while self._queued:
                await self._linger()
                await self._deliver_some()
        finally:
            if self._task is asyncio.current_task():
                self._task = None

    async def _linger(self) -> None:
        """Wait for a full batch, a waiting caller, or the end of the linger time."""
        oldest = next(iter(self._queued.values())).since
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(oldest + self._placement.settings.linger.total_seconds()):
                await self._enough.wait()

    def _tell_delivered(self, left: Sequence[Sequence[PendingStep]]) -> None:
        if (watcher := self.watcher) is not None:
            for waits in [
                waits for waits, owed in zip(self._under_way.values(), left, strict=True) if not owed
            ]:
                for tier in waits.tiers:
                    watcher.on_deliver(tier, self._time() - waits.since)

    async def _deliver_some(self) -> None:
        """Deliver the oldest batch.

        If it takes longer than the deadline, the whole queue is left to maintenance.
        """
        settings = self._placement.settings
        self._under_way = {about: self._queued.pop(about) for about in list(self._queued)[: settings.batch]}
        if len(self._queued) < settings.batch:
            self._enough.clear()
        if self._time() - self._away_since > LEFT_ALONE:
            self._away, self._away_since = set(), self._time()
        try:
            async with asyncio.timeout(settings.deadline.total_seconds()):
                left = await self._outbox.finish_all(
                    [waits.pending for waits in self._under_way.values()], self._away
                )
            self._tell_delivered(left)
        except TimeoutError:
            log.warning(
                "%d deliveries took longer than %s: they are left to maintenance",
                len(self._under_way) + len(self._queued),
                settings.deadline,
            )
            self._leave_queued()
        except Exception:
            log.exception("deliveries are left to maintenance")
        finally:
            for waits in self._under_way.values():
                self._note_removal(waits)
            self._under_way = {}
            self._moved.set()
            self._moved = asyncio.Event()


def _size(pending: OutboxRecord) -> int:
    """Return the approximate size of a record in bytes, with its pending versions."""
    owner = pending.owner
    if not isinstance(owner, Record):
        return 0
    said = [owner.texts, *(version["texts"] for version in pending_versions(owner))]
    return (
        sum(len(text) for texts in said for text in texts.values())
        + len(owner.vector or b"")
        + len(str(owner.body))
    )
