"""Writes: decides them on the stored data and commits them as one.

`memory.ports.batch` decides. Everything here needs the lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from memory.adapters.file.codec import BlobReference, EncodedRecord, seal_record
from memory.adapters.file.commits import StagedCommit
from memory.adapters.file.library import Library
from memory.adapters.file.names import APART, UNSEEN, Place, place_in, place_of
from memory.adapters.file.partitions import State
from memory.adapters.file.records import PlaceContent
from memory.adapters.file.tables import Entry
from memory.ports.batch import NOTHING, Address, ResolvedWrite, StoredRow, WriteResolver, as_skipped
from memory.ports.collections import Collection
from memory.ports.record import Key, Partition, Record, Standing
from memory.ports.rows import Row, row_of, standing_of
from memory.ports.write_decision import tombstone_over
from memory.ports.writes import Outcome, Put, Write

_UNCOUNTED = b""
"""Placeholder for the words of a row that is only decided on.

Files hold texts and no words.
"""


class PlaceUpdate(NamedTuple):
    """A place after a commit: its data, its size, and its separate files.

    `standing` is None if the place is empty.
    """

    place: Place
    standing: Standing | None = None
    size: int = 0
    apart: Mapping[str, BlobReference] = {}


class Batch:
    """The writes of several calls; each write sees the earlier ones.

    Nothing is on disk before `commit`.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._looks: dict[Address, PlaceContent] = {}
        self._changes: dict[Address, ResolvedWrite] = {}
        self._states: dict[Partition, State] = {}
        self._raised: dict[Partition, int] = {}
        self._erasing: set[Address] = set()
        self.begun = False
        """Whether anything on disk may have changed."""

    def call(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        """Decide the writes of one call.

        A call that raises, or fails together, leaves nothing in the batch.
        """
        desk = WriteResolver(dict(enumerate(writes)), self._lay_out)
        reads = desk.reads
        held = {
            (collection.name, key): self._fetch_held(collection, key)
            for collection, keys in reads.keys.items()
            for key in keys
        }
        desk.take(held, {partition: self._generation(partition) for partition in reads.partitions})
        desk.decide_all()
        outcomes = [desk.outcomes[i] for i in range(len(writes))]
        if together and not all(o.applied for o in outcomes):
            return as_skipped(outcomes)
        self._changes |= {change.address: change for change in desk.changes}
        self._raised |= desk.raised
        self._erasing |= {
            (w.collection.name, w.key)
            for w, o in zip(writes, outcomes, strict=True)
            if isinstance(w, Put) and w.erases and o.applied
        }
        return outcomes

    def delete(
        self,
        collection: Collection,
        entries: Sequence[Entry],
        version: int,
        discard_at: datetime | None,
        carry: frozenset[str],
    ) -> int:
        """Replace entries, also unreadable ones, by tombstones; return how many."""
        for entry in entries:
            look = self._looks[(collection.name, entry.key)] = self._library.sound(
                entry.place, collection
            ).outline
            row = row_of(
                collection, tombstone_over(entry.key, look.slot(entry.key), version, discard_at, carry)
            )
            self._changes[(collection.name, entry.key)] = ResolvedWrite(
                collection, entry.key, NOTHING, row, True, self._lay_out(collection, row)
            )
        return len(entries)

    def _lay_out(self, collection: Collection, row: Row) -> EncodedRecord:
        return seal_record(
            collection.name, standing_of(collection, row), self._library.thresholds.bytes_apart
        )

    def _fetch_held(self, collection: Collection, key: Key) -> StoredRow:
        """Return the value under the key, including the batch's own changes."""
        change = self._changes.get((collection.name, key))
        if change is not None:
            return StoredRow(change.row)
        look = self._look(collection, key)
        if look.damage is not None:
            return StoredRow(None, None, look.damage.problem, look.damage.version)
        return NOTHING if look.standing is None else StoredRow(row_of(collection, look.standing, _UNCOUNTED))

    def _look(self, collection: Collection, key: Key) -> PlaceContent:
        address = (collection.name, key)
        look = self._looks.get(address)
        if look is None:
            look = self._looks[address] = self._library.find_locked(collection, key)
        return look

    def _generation(self, partition: Partition) -> int:
        state = self._states.get(partition)
        if state is None:
            state = self._states[partition] = self._library.partitions.state(partition)
        return self._raised.get(partition, state.generation)

    # -- keeping -----------------------------------------------------------------------

    def commit(self) -> None:
        """Write all changes to disk atomically, and wait until they are durable."""
        staged, written = self._stage_all()
        if not staged.steps:
            return
        commits, files = self._library.commits, ["/".join((*s.folder, s.name)) for s in staged.steps]
        commits.prepare(staged)
        try:
            commits.carry_out(staged, lambda: self._library.changes.note(files))
        except BaseException:
            self.begun = staged.begun
            self._library.tables.mark_changed(files)
            raise
        for one in written:
            self._library.tables.note_write(*one)

    def _stage_all(self) -> tuple[StagedCommit, list[PlaceUpdate]]:
        staged = StagedCommit()
        written: list[PlaceUpdate] = []
        filled: set[Partition] = set()
        for address, change in self._changes.items():
            standing = None if change.row is None else standing_of(change.collection, change.row)
            filled |= {standing.partition} if isinstance(standing, Record) else set()
            look = self._looks.get(address) or self._look(change.collection, change.key)
            written += self._stage(staged, look, change, standing)
        counted = self._raised.keys() | {
            p for p, state in self._states.items() if state.must_be_written and p in filled
        }
        for partition in counted:
            state = self._states[partition]
            state.generation = self._raised.get(partition, state.generation)
            state.stage(staged)
            self._library.partitions.note_partition(*state.folder)
        single = len(self._changes) + len(counted) <= 1
        staged.in_any_order = single and all(
            step.staged is not None and APART not in step.name for step in staged.steps
        )
        return staged, written

    def _stage(
        self, staged: StagedCommit, look: PlaceContent, change: ResolvedWrite, standing: Standing | None
    ) -> list[PlaceUpdate]:
        """Stage one change, and return the resulting places."""
        place = self._place(look, change.collection, change.key, standing)
        collection, sealed = change.collection, change.content
        if standing is None:
            self._stage_removal(staged, place, collection)
            return [PlaceUpdate(place)]
        gone: list[PlaceUpdate] = []
        if place == look.place:
            if change.address in self._erasing:
                self._stage_forgetting(staged, place, collection)
            else:
                self._stage_version_before(staged, look, standing, collection)
        elif look.holds:
            if look.damage is not None and isinstance(standing, Record):
                self._library.records.quarantine(look.place, collection, staged)
            self._stage_removal(staged, look.place, collection)
            gone.append(PlaceUpdate(look.place))
        self._stage_bytes(staged, place, collection, sealed, look.apart if place == look.place else {})
        staged.write(place.table.parts, place.file, sealed.text)
        return [*gone, PlaceUpdate(place, standing, sealed.size, sealed.apart)]

    def _stage_bytes(
        self,
        staged: StagedCommit,
        place: Place,
        collection: Collection,
        sealed: EncodedRecord,
        there: Mapping[str, BlobReference],
    ) -> None:
        """Stage the files of separate bytes and remove all others.

        Bytes that are already on disk are not written again.
        """
        for name, content in sealed.contents.items():
            if there.get(name) != sealed.apart[name]:
                staged.write(place.table.parts, place.bytes_of(name), content)
        files = set(map(place.bytes_of, sealed.apart))
        for file in self._library.records.bytes_files(place, collection, place.bytes_of, there):
            if file not in files:
                staged.remove(place.table.parts, file)

    def _place(
        self, look: PlaceContent, collection: Collection, key: Key, standing: Standing | None
    ) -> Place:
        """Return the place of a value; without a scope it stays in its place."""
        belongs = None if standing is None else place_of(collection.name, standing)
        if belongs is not None:
            return belongs
        return look.place if look.holds else place_in(collection.name, key, UNSEEN)

    def _stage_forgetting(self, staged: StagedCommit, place: Place, collection: Collection) -> None:
        """Stage the removal of the previous version and of quarantined copies."""
        self._stage_no_version_before(staged, place, collection)
        self._library.records.forget_quarantined(place, staged)

    def _stage_no_version_before(self, staged: StagedCommit, place: Place, collection: Collection) -> None:
        records = self._library.records
        if records.has_before(place):
            staged.remove(place.table.parts, place.backup)
        for file in records.bytes_files(place, collection, place.bytes_before):
            staged.remove(place.table.parts, file)

    def _stage_removal(self, staged: StagedCommit, place: Place, collection: Collection) -> None:
        self._stage_forgetting(staged, place, collection)
        for file in self._library.records.bytes_files(place, collection, place.bytes_of):
            staged.remove(place.table.parts, file)
        staged.remove(place.table.parts, place.file)

    def _stage_version_before(
        self, staged: StagedCommit, look: PlaceContent, will: Standing, collection: Collection
    ) -> None:
        """Keep the stored value as the previous version, or remove that version.

        It is kept only if a damaged file may be restored from it.
        """
        records, place, was = self._library.records, look.place, look.standing
        if isinstance(will, Record) and isinstance(was, Record) and was.role is will.role:
            if was.version < will.version:
                self._stage_keeping(staged, look, collection)
            if was.version < will.version or was.same_content(will):
                return
        elif isinstance(will, Record) and (
            look.foreign or (look.damage is not None and not records.is_quarantined(place))
        ):
            records.quarantine(place, collection, staged)
        self._stage_no_version_before(staged, place, collection)
        if not isinstance(will, Record):
            records.forget_quarantined(place, staged)

    def _stage_keeping(self, staged: StagedCommit, look: PlaceContent, collection: Collection) -> None:
        """Make the stored value, with its bytes, the previous version."""
        place, folder = look.place, look.place.table.parts
        staged.keep(folder, place.file, folder, place.backup)
        for name in look.apart:
            staged.keep(folder, place.bytes_of(name), folder, place.bytes_before(name))
        kept = set(map(place.bytes_before, look.apart))
        for file in self._library.records.bytes_files(place, collection, place.bytes_before):
            if file not in kept:
                staged.remove(folder, file)
