"""What stores note of each other, so that one is noticed which was set back alone:
restored to an earlier moment, or replaced by an empty store.

Every store keeps a note whose version only grows there, and in it the versions that the
notes of the others had come to. One whose own note is older than another's word of it
has lost what it acknowledged in between. Sweeps write the notes, at most every
`NOTED_EVERY`; no other call needs them. That a store was set back is noted in every
store until it has been healed (see `healing`), and meanwhile sweeps forget nothing that
could tell what is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from memory.domain import ids
from memory.domain.errors import StoreError
from memory.domain.results import ResultMixin
from memory.domain.time import moment
from memory.orchestrator.storage.collections import SETTINGS, SETTINGS_SCOPE, SYSTEM_TENANT
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.steps import step
from memory.orchestrator.storage.topology import leaves_of
from memory.ports.record import Key, Record
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Put

log = logging.getLogger(__name__)

NOTED_EVERY = timedelta(minutes=5)
KEY = Key(SYSTEM_TENANT, ids.derived_id(SYSTEM_TENANT, SETTINGS_SCOPE, "seen"))


@dataclass(frozen=True, slots=True, repr=False)
class RolledBackStore(ResultMixin):
    """A store that was set back: the version its own note had when that was found, the
    one that others had seen, and when it was found.

    `to` of 0: there was no note.
    """

    store: str
    to: int
    seen: int
    found: int

    def __str__(self) -> str:
        said = (
            f"to its state at {_minute(self.to)} or soon after"
            if self.to
            else "to a state before its first note, or replaced by an empty store"
        )
        return f"store '{self.store}' was restored {said}; at {_minute(self.seen)} it held later data"


@dataclass(slots=True)
class _Note:
    """What one store notes. `id` is its own, whatever a configuration calls it; what is
    restored has the same, an empty store a new one.
    """

    id: str
    version: int = 0
    seen: Mapping[str, Any] = field(default_factory=dict)
    set_back: Mapping[str, Any] = field(default_factory=dict)
    healed: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _MergedNotes:
    """What all notes together say, by the ids of stores."""

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
        """Take in that a store was set back; one that is so already was set back
        further.
        """
        if (before := self.set_back.get(store_id)) is not None and self.is_open(store_id):
            earliest, latest = min(before.to, found.to), max(before.seen, found.seen)
            found = RolledBackStore(found.store, earliest, latest, max(before.found, found.found))
        self.set_back[store_id] = found

    def is_open(self, store_id: str) -> bool:
        found = self.set_back.get(store_id)
        return found is not None and found.found > self.healed.get(store_id, 0)

    def seen_of(self, store_id: str, name: str, *, empty: bool) -> int:
        """The highest version of a store's note that any other has seen; of one without
        a note, of those that had its name.
        """
        same = [other for other, called in self.names.items() if called == name] if empty else []
        return max((self.seen.get(other, 0) for other in (store_id, *same)), default=0)

    def note(self, store_id: str) -> dict[str, Any]:
        """What a store notes of it all."""
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
        """The stores that were set back and are not healed, by name, as this process
        knew when it looked last.
        """

    async def look(self, absent: Collection[str] = ()) -> Mapping[str, RolledBackStore]:
        """What the notes say now; nothing is written. The stores in `absent` are not
        there, and not asked. One that does not answer says nothing.
        """
        notes = await self._read(absent)
        self.known = self._open(self._merge_notes(notes), notes)
        return self.known

    async def note(self) -> Mapping[str, RolledBackStore]:
        """The same, and write the notes where it is time.

        The first store is written once more in the end, so that of every store another
        has the newest note. A note is put over the one that was read: where somebody
        else is at it too, or a store is set back meanwhile, this ends, and nothing is
        written over that would tell of it.
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
        """Note that stores have been healed of this, unless they were set back again
        since.
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
        """How far a store was set back, of one with parts the furthest of them; None
        where it was not set back.
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
        """The stores that note something: those that keep what they acknowledge, where
        there are several.
        """
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
        """The note of each store that answers. One is read after the other, and another
        process may write in between: where a store seems to be behind what another's
        note has seen of it, all are read once more.
        """
        notes = await self._read_once(absent)
        return await self._read_once(absent) if _behind(notes, _said_by(notes)) else notes

    async def _read_once(self, absent: Collection[str]) -> dict[Store, _Note]:
        """The note of each store that answers, an empty one of a store that has none.
        One that cannot be read says nothing.
        """
        found: dict[Store, _Note] = {}
        for store in self._stores:
            if store.name in absent:
                found[store] = _Note(self._placement.nonce())
                continue
            try:
                with step("setback.look"):
                    row = (await store.get(SETTINGS, [KEY]))[0]
            except StoreError as error:
                log.debug("the note of what store '%s' has stored was not written: %s", store.name, error)
                continue
            if isinstance(row, Record):
                body: Any = row.body
                found[store] = _Note(body["id"], row.version, body["seen"], body["set_back"], body["healed"])
            elif row is None:
                found[store] = _Note(self._placement.nonce())
        return found

    def _merge_notes(self, notes: Mapping[Store, _Note]) -> _MergedNotes:
        """What the notes say, with what follows from them: which stores are behind what
        others have seen of them.
        """
        known, now = _said_by(notes), self._placement.next_version()
        for store, seen in _behind(notes, known).items():
            known.find(notes[store].id, RolledBackStore(store.name, notes[store].version, seen, now))
        return known

    def _open(self, known: _MergedNotes, notes: Mapping[Store, _Note]) -> dict[str, RolledBackStore]:
        """Of the stores in use, those that are set back, each under the name it has
        now.
        """
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
                log.debug("store '%s' notes nothing: %s", store.name, error)
                continue
            if not outcome.applied:
                return
            own.version, known.seen[own.id] = version, version


def _said_by(notes: Mapping[Store, _Note]) -> _MergedNotes:
    """What the notes say."""
    known = _MergedNotes({note.id: store.name for store, note in notes.items()})
    for note in notes.values():
        known.learn(note)
    return known


def _behind(notes: Mapping[Store, _Note], known: _MergedNotes) -> dict[Store, int]:
    """The stores whose own note is behind what others have seen of it, and what they
    have.
    """
    seen = {
        store: known.seen_of(note.id, store.name, empty=not note.version) for store, note in notes.items()
    }
    return {store: version for store, version in seen.items() if notes[store].version < version}


def _minute(version: int) -> str:
    return f"{moment(version):%Y-%m-%d %H:%M} UTC"
