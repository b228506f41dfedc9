"""Detection of a store that was rolled back alone.

Such a store was restored to an earlier moment, or replaced by an empty store.

Every store keeps a note. The version of a note only grows in its store. It holds the
versions that the notes of the other stores had reached. A store has lost acknowledged
writes if its own note is older than a version that another store's note names.

Sweeps write the notes, at most every `NOTED_EVERY`; no other call needs them. Until a
rolled-back store has been repaired (see `repair`), every store notes the rollback.
Meanwhile sweeps delete no record that shows which data is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from memory.domain import ids
from memory.domain.errors import StoreError
from memory.domain.maintenance_reports import RolledBackStore
from memory.domain.time import moment
from memory.domain.validation import SYSTEM_TENANT
from memory.orchestrator.storage.collections import SETTINGS, SETTINGS_SCOPE
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.topology import leaves_of
from memory.ports.record import Key, Record
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Put

log = logging.getLogger(__name__)

NOTED_EVERY = timedelta(minutes=5)
KEY = Key(SYSTEM_TENANT, ids.derived_id(SYSTEM_TENANT, SETTINGS_SCOPE, "seen"))


@dataclass(slots=True)
class _Note:
    """The note of one store.

    `id` belongs to the store and does not depend on its name in the configuration. A
    restored store has the same id, an empty store a new one.
    """

    id: str
    version: int = 0
    seen: Mapping[str, Any] = field(default_factory=dict)
    set_back: Mapping[str, Any] = field(default_factory=dict)
    healed: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _MergedNotes:
    """The facts of all notes together, by the ids of stores."""

    names: dict[str, str] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    set_back: dict[str, RolledBackStore] = field(default_factory=dict)
    healed: dict[str, int] = field(default_factory=dict)

    def learn(self, note: _Note) -> None:
        """Take in one note."""
        for store_id, (name, version) in note.seen.items():
            self.names.setdefault(store_id, name)
            self.seen[store_id] = max(version, self.seen.get(store_id, 0))
        for store_id, found in note.healed.items():
            self.healed[store_id] = max(found, self.healed.get(store_id, 0))
        for store_id, said in note.set_back.items():
            self.find(store_id, RolledBackStore(**said))

    def find(self, store_id: str, found: RolledBackStore) -> None:
        """Take in that a store was rolled back.

        If an earlier rollback of it is still open, the two are merged into one.
        """
        if (before := self.set_back.get(store_id)) is not None and self.is_open(store_id):
            earliest, latest = min(before.to, found.to), max(before.seen, found.seen)
            found = RolledBackStore(found.store, earliest, latest, max(before.found, found.found))
        self.set_back[store_id] = found

    def is_open(self, store_id: str) -> bool:
        found = self.set_back.get(store_id)
        return found is not None and found.found > self.healed.get(store_id, 0)

    def seen_of(self, store_id: str, name: str, *, empty: bool) -> int:
        """Return the highest version of a store's note that any other store has seen.

        A store without a note is identified by its name.
        """
        same = [other for other, called in self.names.items() if called == name] if empty else []
        return max((self.seen.get(other, 0) for other in (store_id, *same)), default=0)

    def note(self, store_id: str) -> dict[str, Any]:
        """Return the note that a store is to keep."""
        open_ = {
            other: {name: getattr(one, name) for name in ("store", "to", "seen", "found")}
            for other, one in self.set_back.items()
        }
        return {
            "id": store_id,
            "seen": {other: [self.names[other], version] for other, version in self.seen.items()},
            "set_back": {other: said for other, said in open_.items() if self.is_open(other)},
            "healed": dict(self.healed),
        }


class RollbackDetector:
    """Writes and compares the notes."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self.known: Mapping[str, RolledBackStore] = {}
        """The stores that were rolled back and are not repaired, by name, as of this
        process's last look.
        """

    async def look(self, absent: Collection[str] = ()) -> Mapping[str, RolledBackStore]:
        """Return the rolled-back stores according to the notes. Nothing is written.

        The stores in `absent` do not exist, and are not asked. A store that does not
        answer contributes no note.
        """
        notes = await self._read(absent)
        self.known = self._open(self._merge_notes(notes), notes)
        return self.known

    async def note(self) -> Mapping[str, RolledBackStore]:
        """Return the rolled-back stores, and write the notes if they are due.

        The first store is written a second time at the end, so that another store has
        the newest note of every store. A note replaces only the note that was read. If
        another process writes too, or a store is rolled back meanwhile, the writing
        stops, so that no evidence is overwritten.
        """
        notes = await self._read()
        known = self._merge_notes(notes)
        open_ = self._open(known, notes)
        if open_.keys() - self.known.keys():
            log.warning("%s", "; ".join(str(one) for one in open_.values()))
        self.known = open_
        if any(self._is_old(note) for note in notes.values()):
            await self._write(notes, known)
        return self.known

    async def note_healed(self, done: Iterable[RolledBackStore]) -> None:
        """Note that these rollbacks are repaired.

        A store that was rolled back again since stays noted.
        """
        notes = await self._read()
        known = self._merge_notes(notes)
        for one in done:
            for store_id, found in known.set_back.items():
                if (found.store, found.to, found.seen) == (one.store, one.to, one.seen):
                    known.healed[store_id] = found.found
        await self._write(notes, known)
        self.known = self._open(known, notes)

    async def of(self, store: Store) -> RolledBackStore | None:
        """Return how far a store was rolled back; None if it was not.

        For a store with parts, return the furthest rollback of its parts.
        """
        open_ = await self.look()
        parts = [open_[leaf.name] for leaf in leaves_of(store) if leaf.name in open_]
        return (
            replace(parts[0], to=min(one.to for one in parts), seen=max(one.seen for one in parts))
            if parts
            else None
        )

    @property
    def _stores(self) -> tuple[Store, ...]:
        """The stores that keep notes: the durable ones, if there are several."""
        found = tuple(
            dict.fromkeys(
                leaf
                for home in self._placement.topology.homes
                for leaf in leaves_of(home)
                if leaf.capabilities.durable
            )
        )
        return found if len(found) > 1 else ()

    def _is_old(self, note: _Note) -> bool:
        return not note.version or abs(self._placement.now() - moment(note.version)) >= NOTED_EVERY

    async def _read(self, absent: Collection[str] = ()) -> dict[Store, _Note]:
        """Return the note of each store that answers.

        The notes are read one after the other, and another process may write in
        between. If a store seems to be behind another store's note, all are read once
        more.
        """
        notes = await self._read_once(absent)
        return await self._read_once(absent) if _behind(notes, _said_by(notes)) else notes

    async def _read_once(self, absent: Collection[str]) -> dict[Store, _Note]:
        """Return the note of each store that answers, or a new note if it has none.

        A note that cannot be read is left out.
        """
        found: dict[Store, _Note] = {}
        for store in self._stores:
            if store.name in absent:
                found[store] = _Note(self._placement.nonce())
                continue
            try:
                row = await self._placement.read_one("setback.look", store, SETTINGS, KEY)
            except StoreError as error:
                log.debug("the rollback note of store '%s' was not read: %s", store.name, error)
                continue
            if isinstance(row, Record):
                body: Any = row.body
                found[store] = _Note(body["id"], row.version, body["seen"], body["set_back"], body["healed"])
            elif row is None:
                found[store] = _Note(self._placement.nonce())
        return found

    def _merge_notes(self, notes: Mapping[Store, _Note]) -> _MergedNotes:
        """Merge the notes, and add the stores that are behind the notes of others."""
        known, now = _said_by(notes), self._placement.next_version()
        for store, seen in _behind(notes, known).items():
            known.find(notes[store].id, RolledBackStore(store.name, notes[store].version, seen, now))
        return known

    def _open(self, known: _MergedNotes, notes: Mapping[Store, _Note]) -> dict[str, RolledBackStore]:
        """Return the stores in use that are rolled back, by their current names."""
        names = {note.id: store.name for store, note in notes.items()}
        silent = {store.name for store in self._stores if store not in notes}
        found = {store_id: one for store_id, one in known.set_back.items() if known.is_open(store_id)}
        unseen = {one.store: one for one in found.values() if one.store in silent}
        return unseen | {
            names[store_id]: replace(one, store=names[store_id])
            for store_id, one in found.items()
            if store_id in names
        }

    async def _write(self, notes: Mapping[Store, _Note], known: _MergedNotes) -> None:
        now, there = self._placement.now(), list(notes)
        for store in (*there, *there[:1]):
            own = notes[store]
            seen = known.seen_of(own.id, store.name, empty=not own.version)
            version = self._placement.next_version(max(own.version, seen))
            note = Record(KEY, SETTINGS_SCOPE, version, now, now, body=known.note(own.id), tier="mid")
            put = Put(SETTINGS, note, AtVersion(own.version) if own.version else Absent())
            try:
                outcome = await self._placement.write_one("setback.note", store, put)
            except StoreError as error:
                log.debug("the rollback note of store '%s' was not written: %s", store.name, error)
                continue
            if not outcome.applied:
                return
            own.version, known.seen[own.id] = version, version


def _said_by(notes: Mapping[Store, _Note]) -> _MergedNotes:
    """Merge the notes."""
    known = _MergedNotes({note.id: store.name for store, note in notes.items()})
    for note in notes.values():
        known.learn(note)
    return known


def _behind(notes: Mapping[Store, _Note], known: _MergedNotes) -> dict[Store, int]:
    """Return the stores whose own note is behind the notes of others.

    The values are the versions that the others have seen.
    """
    seen = {
        store: known.seen_of(note.id, store.name, empty=not note.version) for store, note in notes.items()
    }
    return {store: version for store, version in seen.items() if notes[store].version < version}
