"""Writes: decided by `memory.ports.deciding` on what stands on disk, then committed as one. Everything here is done with the lock."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime

from memory.adapters.file.commits import Staged
from memory.adapters.file.library import Library
from memory.adapters.file.names import OTHER, Place, place_in, place_of
from memory.adapters.file.partitions import Ledger
from memory.adapters.file.records import Look
from memory.adapters.file.sealing import seal_record, unseal_record
from memory.adapters.file.shelves import Entry
from memory.ports.collections import Collection
from memory.ports.deciding import Slot, decide
from memory.ports.record import Key, Partition, Record, Standing, Tombstone
from memory.ports.writes import Outcome, Put, RaiseGeneration, Status, Write


@dataclass(frozen=True, slots=True)
class Change:
    """What is to stand under a key, as it will be read back, and the text of its file; both None for nothing."""

    collection: Collection
    key: Key
    standing: Standing | None
    text: bytes | None

    @property
    def slot(self) -> Slot:
        return Slot(self.standing, None if self.standing is None else self.standing.version)


_Address = tuple[str, Key]


class Batch:
    """The writes of some calls: each sees those before it. Nothing is on disk until `commit`."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._looks: dict[_Address, Look] = {}
        self._changes: dict[_Address, Change] = {}
        self._ledgers: dict[Partition, Ledger] = {}
        self._counted: set[Partition] = set()
        self.begun = False
        """Whether anything on disk may have changed."""

    def call(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        """Carry out one call. One that raises, or fails together, leaves nothing in the batch."""
        before = (dict(self._changes), deepcopy(self._ledgers), set(self._counted))
        try:
            outcomes = [self._carry_out(write) for write in writes]
        except BaseException:
            self._changes, self._ledgers, self._counted = before
            raise
        if together and not all(o.applied for o in outcomes):
            self._changes, self._ledgers, self._counted = before
            return [Outcome(Status.SKIPPED) if o.applied else o for o in outcomes]
        return outcomes

    def _carry_out(self, write: Write) -> Outcome:
        if isinstance(write, RaiseGeneration):
            return Outcome(Status.APPLIED, number=self._raise_generation(write.partition, write.to))
        partition = write.record.partition if isinstance(write, Put) else None
        generation = self._ledger(partition).generation if partition is not None else 0
        decision = decide(write, self._slot(write.collection, write.key), generation)
        if decision.changes:
            try:
                self._leave(write.collection, write.key, decision.leaves)
            except (TypeError, ValueError, OverflowError) as exc:
                return Outcome(Status.REJECTED, reason=f"record: it cannot be written as JSON ({exc})")
        return decision.outcome

    def bury(self, collection: Collection, entries: Sequence[Entry], version: int, discard_at: datetime | None, keep: Sequence[str]) -> int:
        """Leave tombstones for these, also for what cannot be read. Returns how many."""
        for entry in entries:
            look = self._looks[(collection.name, entry.key)] = self._library.sound(entry.place, collection)
            slot = look.slot(entry.key)
            above = version if slot.version is None else max(slot.version + 1, version)
            kept = slot.stored.fields if isinstance(slot.stored, Record) else {}
            note = {name: kept[name] for name in keep if kept.get(name) is not None}
            self._leave(collection, entry.key, Tombstone(entry.key, above, note=note, discard_at=discard_at))
        return len(entries)

    def _slot(self, collection: Collection, key: Key) -> Slot:
        """What stands under the key, the batch's own changes included."""
        change = self._changes.get((collection.name, key))
        return change.slot if change is not None else self._look(collection, key).slot(key)

    def _leave(self, collection: Collection, key: Key, standing: Standing | None) -> None:
        """Let this stand under the key. What is kept is read from its text: nothing of it is the caller's."""
        text = None if standing is None else seal_record(collection.name, standing)
        kept = None if text is None else unseal_record(text, collection)
        self._changes[(collection.name, key)] = Change(collection, key, kept, text)

    def _look(self, collection: Collection, key: Key) -> Look:
        address = (collection.name, key)
        look = self._looks.get(address)
        if look is None:
            look = self._looks[address] = self._library.find_locked(collection, key)
        return look

    # -- generations --------------------------------------------------------------------------------------------------

    def _ledger(self, partition: Partition) -> Ledger:
        ledger = self._ledgers.get(partition)
        if ledger is None:
            ledger = self._ledgers[partition] = self._library.partitions.ledger(partition)
        return ledger

    def _raise_generation(self, partition: Partition, to: int | None) -> int:
        ledger = self._ledger(partition)
        raised = ledger.generation + 1 if to is None else max(ledger.generation, to)
        if raised != ledger.generation:
            ledger.generation = raised
            self._counted.add(partition)
        return raised

    # -- keeping ------------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Put it all on disk, whole or not at all, and wait until it is kept."""
        staged, written = self._staged()
        if not staged.steps:
            return
        commits, files = self._library.commits, ["/".join((*s.folder, s.name)) for s in staged.steps]
        commits.prepare(staged)
        try:
            commits.carry_out(staged, lambda: self._library.changes.note(files))
        except BaseException:
            self.begun = staged.begun
            self._library.shelves.changed(files)
            raise
        for place, change in written:
            self._library.shelves.became(place, change.standing, len(change.text or b""))

    def _staged(self) -> tuple[Staged, list[tuple[Place, Change]]]:
        staged = Staged()
        written: list[tuple[Place, Change]] = []
        for address, change in self._changes.items():
            written += self._stage(staged, self._looks.get(address) or self._look(change.collection, change.key), change)
        counted = self._counted | {p for p, ledger in self._ledgers.items() if ledger.must_be_written and self._fills(p)}
        for partition in counted:
            ledger = self._ledgers[partition]
            ledger.stage(staged)
            self._library.partitions.noted(*ledger.folder)
        single = len(self._changes) + len(counted) <= 1
        staged.in_any_order = single and all(step.staged is not None for step in staged.steps)
        return staged, written

    def _fills(self, partition: Partition) -> bool:
        """Whether the batch puts a record there."""
        return any(isinstance(c.standing, Record) and c.standing.partition == partition for c in self._changes.values())

    def _stage(self, staged: Staged, look: Look, change: Change) -> list[tuple[Place, Change]]:
        """Stage one change. Returns what will stand where."""
        place = self._place(look, change)
        if change.text is None:
            self._stage_removal(staged, place)
            return [(place, change)]
        gone: list[tuple[Place, Change]] = []
        if place == look.place:
            self._stage_version_before(staged, look, change)
        elif look.holds:
            if look.damage is not None and isinstance(change.standing, Record):
                self._library.records.set_aside(look.place, staged)
            self._stage_removal(staged, look.place)
            gone.append((look.place, Change(change.collection, change.key, None, None)))
        staged.write(place.shelf.parts, place.file, change.text)
        return [*gone, (place, change)]

    def _place(self, look: Look, change: Change) -> Place:
        """Where it belongs; what names no scope stays where it stood."""
        belongs = None if change.standing is None else place_of(change.collection.name, change.standing)
        if belongs is not None:
            return belongs
        return look.place if look.holds else place_in(change.collection.name, change.key, OTHER)

    def _stage_removal(self, staged: Staged, place: Place) -> None:
        records = self._library.records
        if records.has_before(place):
            staged.remove(place.shelf.parts, place.backup)
        records.forget_set_aside(place, staged)
        staged.remove(place.shelf.parts, place.file)

    def _stage_version_before(self, staged: Staged, look: Look, change: Change) -> None:
        """Keep what stands there as the version before, where that may be restored one day; else let it go."""
        records, place, was, will = self._library.records, look.place, look.standing, change.standing
        if isinstance(will, Record) and isinstance(was, Record) and was.role is will.role:
            if was.version < will.version:
                staged.keep(place.shelf.parts, place.file, place.shelf.parts, place.backup)
            if was.version < will.version or was.same_content(will):
                return
        elif isinstance(will, Record) and (look.damage is not None or look.foreign):
            records.set_aside(place, staged)
        if records.has_before(place):
            staged.remove(place.shelf.parts, place.backup)
        if not isinstance(will, Record):
            records.forget_set_aside(place, staged)
