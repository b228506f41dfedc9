"""In-process indexes of the vectors of recently searched partitions and subtrees.

They serve stores that index words but not vectors. Such a store reads all vectors of a
place for each query. The index of a subtree is one, however many partitions it has.

An index whose reading began at most `LASTS` ago selects candidates instead, under the
filter of the query, and the store scores those. So results always reflect the current
state of the store, and the store's filters apply. Records that this process has written
since are read by their ids before an index selects. So no write is interpreted here,
however it ended. Writes of other processes are found by meaning after the next reading.

Indexes are read in the background, one after the other. Without an index, the store
scans all its vectors, as it always can.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from memory.domain.errors import StoreError
from memory.domain.ids import digest_of, is_id, partition_digest
from memory.orchestrator.storage.collections import MODEL
from memory.orchestrator.storage.partial_answers import BROWSED, AnswerGaps
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.topology import part_of
from memory.policies.visibility import FILTERED
from memory.ports.candidate_scan import measure_heads
from memory.ports.candidates import CandidateColumns, Candidates, concatenate, none_of
from memory.ports.collections import Collection
from memory.ports.concurrency import each_at_once
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import (
    MAX_LIMIT,
    SYSTEM_FIELDS,
    VECTOR,
    Condition,
    Everywhere,
    Head,
    In,
    Order,
    Partitions,
    Query,
    Under,
    Where,
    covers,
    widen,
    within,
)
from memory.ports.record import Partition, Record
from memory.ports.store import Store
from memory.ports.writes import Put, RaiseGeneration, Write

if TYPE_CHECKING:
    from memory.ports.partition_index import PartitionIndex

log = logging.getLogger(__name__)

LASTS = timedelta(minutes=1)
"""How long an index selects candidates after its reading began. In the second half it
is read again when it is used. After a failed write of this process, the partition is
left to the store for the same time, because the write may still be stored.
"""
PAUSE = timedelta(minutes=10)
"""After this time, a partition whose index was too large is tried again."""
WRITTEN = 1_000
"""How many ids of own writes an index can catch up with. It is discarded if it has
missed more.
"""

_Place: TypeAlias = Partition | Under
"""The place of an index."""
_Name: TypeAlias = tuple[Store, str, _Place]
_Slot: TypeAlias = tuple[str, str, int | None]
"""A collection, a tenant, and the partition's digest, which its ids carry. Some writes
name no more of their partition. Subtrees have None: any write of the tenant may be in
one.
"""
_KEPT = frozenset({"created_at", "updated_at", "expires_at", MODEL}) | FILTERED
"""The fields that filters of every search use, and those that every record has."""
_KNOWN = _KEPT | {"id", "scope", "version", "generation", "role", "tier"}
"""The fields of which an index knows the values."""


@dataclass(slots=True, eq=False)
class _View:
    """The state of a place when its reading began.

    `written` has the ids that this process wrote there since, each with the number of
    the write.
    """

    collection: Collection
    place: _Place
    since: datetime
    form: PartitionIndex
    written: dict[str, int] = field(default_factory=dict)

    @property
    def slot(self) -> _Slot:
        return _slot(self.collection, self.place)

    def may_have(self, write: Write) -> bool:
        """Return whether a write may concern a record of the place."""
        if isinstance(write, Put):
            return covers(_where(self.place), write.record.partition)
        return self.slot in _slots_of(write)


class PartitionIndexes:
    """The indexes of all stores.

    The kept indexes and the one being read take at most half of `search_cache_bytes`
    each.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._most = placement.settings.search_cache_bytes // 2
        self._kept: OrderedDict[_Name, _View] = OrderedDict()
        self._wanted: dict[_Name, Collection] = {}
        self._reading: tuple[_Name, _View] | None = None
        self._task: asyncio.Task[None] | None = None
        self._not_before: dict[_Name, datetime] = {}
        """When a partition may be read again after a reading or a failed one."""
        self._broken_off: dict[_Slot, datetime] = {}
        """When a write of this process failed there."""
        self._numbers = itertools.count()
        placement.watchers.append(self)

    @property
    def bytes(self) -> int:
        """The approximate size of the kept indexes."""
        return sum(view.form.bytes for view in self._kept.values())

    async def close(self) -> None:
        """Stop the reading in progress, and discard all indexes."""
        task, self._task = self._task, None
        if task is not None and not _is_of_another_loop(task):
            task.cancel()
            await asyncio.wait([task])
        self._reading = None
        for kept in (self._kept, self._wanted, self._not_before, self._broken_off):
            kept.clear()

    # -- asking ------------------------------------------------------------------------

    async def candidates(self, store: Store, asked: Candidates, lacking: AnswerGaps) -> CandidateColumns:
        """Return the store's candidates.

        In partitions with an index, the index selects the candidates. The store then
        applies only the parts of the filter that the index can apply too. In other
        partitions the store gets the whole question. `lacking` records the age of the
        indexes.
        """
        views = self._views(store, asked)
        if not views:
            return await store.candidates(asked)
        lacking.chose(store, min(view.since for view in views))
        answer, gone = await self._search_views(store, asked, views)
        if gone:  # again, without the records that others deleted or changed
            for view in views:
                view.written |= dict.fromkeys(
                    [i for i in gone if view.form.place_of(i) is not None], next(self._numbers)
                )
            answer, _ = await self._search_views(store, asked, views)
        return answer

    async def _search_views(
        self, store: Store, asked: Candidates, views: Sequence[_View]
    ) -> tuple[CandidateColumns, set[str]]:
        """Return the answer, and the selected ids that are missing in it."""
        from memory.ports.partition_candidates import nearest  # imports numpy: only searches need it

        for view in views:
            await self._bring_up(store, view)
        self._make_room()
        known = asked if asked.filter is None else replace(asked, filter=widen(asked.filter, _is_known))
        chosen, served = nearest(known, [view.form for view in views]), [view.place for view in views]
        others = [place for place in _places(asked) if place not in served]
        parts = [replace(asked, where=_where(*others))] if others else []
        among = tuple(dict.fromkeys([*asked.among, *chosen]))[:MAX_LIMIT]
        by_name = replace(known, where=_where(*served), near=None, dimensions=asked.width, among=among)
        nothing = not (among or asked.text.strip() or asked.statistics)
        parts += [] if nothing else [by_name]
        answers = await each_at_once(store.candidates(part) for part in parts)
        answer = concatenate(
            [*answers, *([await measure_heads(by_name, [], none_of(by_name))] if nothing else [])]
        )
        return answer, set(chosen) & set(among) - set(answer.ids)

    def _views(self, store: Store, asked: Candidates) -> list[_View]:
        """Return the indexes of the queried places that are young enough.

        The others, and those that are soon too old, are queued for reading.
        """
        if asked.near is None or not asked.roles <= BROWSED:
            return []
        now = self._placement.now()
        self._let_go_of_old(now)
        views = list[_View]()
        for place in _places(asked):
            holder = part_of(store, place, asked.collection) if isinstance(place, Partition) else store
            can = holder.capabilities
            if (
                can.semantic or not can.lexical
            ):  # it searches by vector itself, or reads all records for words anyway
                continue
            name = (store, asked.collection.name, place)
            view = self._kept.get(name)
            if view is not None:
                self._kept.move_to_end(name)
                views.append(view)
            if view is None or view.form.is_worn or now - view.since >= LASTS / 2:
                self._want(name, asked.collection, now)
        return views

    async def _bring_up(self, store: Store, view: _View) -> None:
        """Read the records that this process has written since."""
        written = dict(view.written)
        if not written:
            return
        query = replace(_query(view), filter=In("id", tuple(written)), limit=len(written))
        found = {
            head.key.id: head
            async for page in self._placement.pages("forms.written", store, query)
            for head in page.heads
        }
        for record_id, number in written.items():
            if view.written.get(record_id) != number:
                continue  # written again since, or read by another search
            del view.written[record_id]
            if record_id in found:
                view.form.put(_record(found[record_id]), None)
            else:
                view.form.drop(record_id)

    # -- what this process does --------------------------------------------------------

    def on_write(self, writes: Sequence[Write]) -> None:
        """Note the ids of completed writes."""
        views = [view for _, view in self._all()]
        if not views:
            return
        number, by_slot = next(self._numbers), dict[_Slot, list[Write]]()
        for write in writes:
            for slot in _slots_of(write):
                by_slot.setdefault(slot, []).append(write)
        for view in views:
            for write in by_slot.get(view.slot, ()):
                if not isinstance(write, RaiseGeneration) and view.may_have(write):
                    view.written[write.key.id] = number
        self._let_go(name for name, view in self._all() if len(view.written) > WRITTEN)

    def on_write_failure(self, writes: Sequence[Write]) -> None:
        """Discard the indexes of the partitions of failed writes.

        Some of these writes may be stored, now or later.
        """
        slots = {slot for write in writes for slot in _slots_of(write)}
        self._broken_off |= dict.fromkeys(slots, self._placement.now())
        self._let_go(name for name, view in self._all() if view.slot in slots)

    def on_delete(self, query: Query) -> None:
        """Discard the indexes of partitions where records were or will be deleted."""
        self._let_go(
            name
            for name, view in self._all()
            if view.collection is query.collection and _meet(query.where, view.place)
        )

    # -- keeping -----------------------------------------------------------------------

    def _all(self) -> list[tuple[_Name, _View]]:
        return [*self._kept.items(), *([self._reading] if self._reading is not None else [])]

    def _let_go(self, names: Iterable[_Name]) -> None:
        for name in list(names):
            self._kept.pop(name, None)
            if self._reading is not None and self._reading[0] == name:
                self._reading = None

    def _let_go_of_old(self, now: datetime) -> None:
        """Discard old indexes. A clock that was set back makes none young again."""
        old = [name for name, view in self._kept.items() if not timedelta(0) <= now - view.since <= LASTS]
        for name in old:
            del self._kept[name]
        self._not_before = {
            name: moment for name, moment in self._not_before.items() if timedelta(0) < moment - now <= PAUSE
        }
        self._broken_off = {
            slot: moment for slot, moment in self._broken_off.items() if timedelta(0) <= now - moment <= LASTS
        }

    def _make_room(self) -> None:
        """Evict the least recently used indexes until the others fit."""
        while self._kept and self.bytes > self._most:
            self._kept.popitem(last=False)

    # -- reading -----------------------------------------------------------------------

    def _want(self, name: _Name, collection: Collection, now: datetime) -> None:
        if not self._most or name in self._not_before:
            return
        self._not_before[name] = now + LASTS / 2
        self._wanted[name] = collection
        if self._task is None or self._task.done() or _is_of_another_loop(self._task):
            self._task = asyncio.create_task(self._read_wanted(), name="memory-forms")

    async def _read_wanted(self) -> None:
        while self._wanted:
            name, collection = next(iter(self._wanted.items()))
            del self._wanted[name]
            try:
                await self._read(name, collection)
            except Exception as error:  # noqa: BLE001 - the store scans all vectors, and it is tried again
                log.info("the vectors of a partition in store '%s' were not read: %s", name[0].name, error)
            finally:
                self._reading = None

    async def _read(self, name: _Name, collection: Collection) -> None:
        """Read one index, and use it from then on.

        It is dropped if it was discarded during the reading, or is too large.
        """
        from memory.ports.partition_index import PartitionIndex  # imports numpy

        store, now = name[0], self._placement.now()
        view = _View(collection, name[2], now, PartitionIndex(collection))
        if view.slot in self._broken_off:
            return
        self._reading = (name, view)
        query: Query | None = _query(view, self._placement.settings.page)
        while query is not None:
            page = await self._placement.answer(store, self._placement.page("forms.read", store, query))
            if isinstance(page, StoreError):
                raise page
            async for head in iterate_cooperatively(page.heads, 100):
                view.form.put(_record(head), None)
            if self._reading is None:
                return
            if view.form.bytes > self._most:
                self._not_before[name] = now + PAUSE
                return
            query = None if page.cursor is None else replace(query, cursor=page.cursor)
        self._kept[name] = view
        self._kept.move_to_end(name)
        self._make_room()


def _query(view: _View, limit: int = 1) -> Query:
    """Return the query for a partition's records.

    They are sorted by age, so that records stored during the reading come last.
    """
    select = (_KEPT & {*SYSTEM_FIELDS, *(one.name for one in view.collection.fields)}) | {VECTOR}
    return Query(
        view.collection,
        _where(view.place),
        order=(Order("created_at"),),
        limit=limit,
        roles=BROWSED,
        select=select,
    )


def _record(head: Head) -> Record:
    """Return the parts of a record that an index keeps."""
    system: dict[str, Any] = {
        name: head.fields.get(name) for name in ("created_at", "updated_at", "expires_at")
    }
    fields = {name: value for name, value in head.fields.items() if name not in SYSTEM_FIELDS}
    return Record(
        head.key,
        head.scope,
        head.version,
        fields=fields,
        vector=head.vector,
        generation=head.generation,
        role=head.role,
        tier=head.tier,
        **system,
    )


def _is_known(part: Condition) -> bool:
    """Return whether an index knows the compared field; it has no bodies."""
    return getattr(part, "field", None) in _KNOWN


def _places(asked: Candidates) -> tuple[_Place, ...]:
    """Return the places of the query that may have an index."""
    match asked.where:
        case Partitions(partitions):
            return partitions
        case Under():
            return (asked.where,)
        case _:
            return ()


def _where(*places: _Place) -> Partitions | Under:
    """Return a query's places; a subtree is the only one."""
    partitions = [place for place in places if isinstance(place, Partition)]
    return within(*partitions) if partitions else next(p for p in places if isinstance(p, Under))


def _meet(where: Where, place: _Place) -> bool:
    """Return whether a query may find records in the place of an index."""
    if isinstance(place, Partition):
        return covers(where, place)
    if isinstance(where, Partitions):
        return any(covers(place, partition) for partition in where.partitions)
    return isinstance(where, Everywhere) or where.tenant == place.tenant


def _slot(collection: Collection, place: _Place) -> _Slot:
    digest = partition_digest(place.tenant, place.scope) if isinstance(place, Partition) else None
    return (collection.name, place.tenant, digest)


def _slots_of(write: Write) -> tuple[_Slot, ...]:
    """Return the slots of a write; none if it is not a write of a record."""
    if isinstance(write, RaiseGeneration) or not is_id(write.key.id):
        return ()
    name, tenant = write.collection.name, write.key.tenant
    return ((name, tenant, digest_of(write.key.id)), (name, tenant, None))


def _is_of_another_loop(task: asyncio.Task[None]) -> bool:
    """Return whether the task belongs to another event loop.

    That loop has ended, and the stores are used on the current one now.
    """
    return task.get_loop() is not asyncio.get_running_loop()
