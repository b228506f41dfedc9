"""In-memory tables for queries and searches.

They hold the records without bodies and separate bytes. A table is read whole when it
is first queried. Later, only files named by `changes.log` are read again. Results never
come from memory: the file itself is read and verified again.
"""

from __future__ import annotations

import logging
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from memory.adapters.file.codec import BlobReference, DamagedRecord, ForeignFile, unseal_record, without
from memory.adapters.file.disk import Disk, NotRegularFile, read_at
from memory.adapters.file.names import BACKUP, SUFFIX, Place, Table, decode_name, is_name, stem_of_bytes
from memory.adapters.file.partitions import Partitions
from memory.adapters.file.records import PlaceContent, Records, check_place, look_of
from memory.ports import lexical
from memory.ports.collections import Collection
from memory.ports.record import Key, Record, Standing

log = logging.getLogger(__name__)

_OWN_SIZE = 1_500
"""Approximate bytes of a record in memory, without its texts and vector."""


@dataclass(slots=True)
class Entry:
    """A record, mark or tombstone for queries.

    `standing` is None if the file cannot be read.
    """

    place: Place
    key: Key
    standing: Standing | None
    bytes: int
    apart: Mapping[str, BlobReference] = field(default_factory=dict)
    """Fields in separate files, which are not kept in memory."""
    _words: tuple[dict[str, float], int] | None = None

    def words(self, collection: Collection) -> tuple[dict[str, float], int]:
        """Return the weighted count of each token, and the number of words.

        Weights depend on the parts of the text. Words are counted on first use and are
        not stored. So a person who edits a file by hand need not edit words.
        """
        if self._words is None:
            packed = lexical.index(
                collection, self.standing.texts if isinstance(self.standing, Record) else {}
            )
            self._words = (lexical.weighted_counts(collection, packed), lexical.length(packed))
        return self._words

    @property
    def size(self) -> int:
        """Approximate bytes in memory, including the words."""
        if not isinstance(self.standing, Record):
            return _OWN_SIZE
        texts, fields = sum(map(len, self.standing.texts.values())), self.standing.fields
        of_bytes = sum([len(value) for value in fields.values() if isinstance(value, bytes)])
        return _OWN_SIZE + 16 * texts + len(self.standing.vector or b"") + of_bytes + sys.getsizeof(fields)


@dataclass(slots=True)
class LoadedTable:
    """A table in memory."""

    collection: Collection
    entries: dict[str, Entry] = field(default_factory=dict)
    size: int = 0

    def put(self, stem: str, entry: Entry | None) -> int:
        """Store an entry, None for nothing, and return the growth of the table."""
        old = self.entries.pop(stem, None)
        grown = -old.size if old else 0
        if entry is not None:
            self.entries[stem] = entry
            grown += entry.size
        self.size += grown
        return grown

    def same_as(self, other: LoadedTable) -> bool:
        """Whether both have the same content.

        Unreadable separate bytes show only where they were queried.
        """
        mine, theirs = self.entries, other.entries
        return mine.keys() == theirs.keys() and all(
            _are_alike(entry, theirs[stem]) for stem, entry in mine.items()
        )


def _are_alike(one: Entry, other: Entry) -> bool:
    if None in (one.standing, other.standing) and (one.apart or other.apart):
        return True
    return (one.standing, one.bytes, one.apart) == (other.standing, other.bytes, other.apart)


class Tables:
    def __init__(self, disk: Disk, records: Records, partitions: Partitions, limit: int) -> None:
        self._disk, self._records, self._partitions, self._limit = disk, records, partitions, limit
        self._loaded: OrderedDict[Table, LoadedTable] = OrderedDict()
        self._size = 0
        self._stale: set[Place] = set()

    def forget(self) -> None:
        self._loaded.clear()
        self._stale.clear()
        self._size = 0

    # -- staying right -----------------------------------------------------------------

    def mark_changed(self, files: Iterable[str]) -> None:
        """Mark files that may have changed since they were read."""
        for file in files:
            parts = file.split("/")
            if len(parts) >= 3:
                self._partitions.note_partition(parts[0], parts[1])
            if len(parts) == 4 and (table := Table(*parts[:3])) in self._loaded:
                self._stale.add(Place(table, parts[3].partition(".")[0]))

    @property
    def stale(self) -> bool:
        return bool(self._stale)

    def read_again(self, sound: Callable[[Place, Collection], PlaceContent]) -> None:
        """Read changed places again. It needs the lock, so that no change is running.

        `sound` reads a place and restores it if needed.
        """
        for place in list(self._stale):
            if (loaded := self._loaded.get(place.table)) is not None:
                self._put(loaded, place, self._entry(sound(place, loaded.collection)))
            self._stale.discard(place)

    def note_write(
        self, place: Place, standing: Standing | None, size: int, apart: Mapping[str, BlobReference]
    ) -> None:
        """Update the tables after a write of this process."""
        loaded = self._loaded.get(place.table)
        self._partitions.note_partition(place.table.tenant, place.table.scope)
        if loaded is not None:
            self._put(loaded, place, None if standing is None else _entry(place, standing, size, apart))

    def _put(self, loaded: LoadedTable, place: Place, entry: Entry | None) -> None:
        self._size += loaded.put(place.stem, entry)

    # -- asking ------------------------------------------------------------------------

    def find_loaded(self, table: Table) -> LoadedTable | None:
        """Return the table if it is in memory."""
        found = self._loaded.get(table)
        if found is not None:
            self._loaded.move_to_end(table)
        return found

    def read(self, table: Table, collection: Collection, unsound: set[Place] | None = None) -> LoadedTable:
        """Read a whole table from disk.

        Places that need restoring or quarantine are added to `unsound`.
        """
        loaded = LoadedTable(collection)
        for place in self._places(table):
            look = self._look(place, collection)
            if unsound is not None and self._records.to_mend(look):
                unsound.add(place)
            loaded.put(place.stem, self._entry(look))
        return loaded

    def drop(self, table: Table) -> None:
        """Remove the table from memory."""
        dropped = self._loaded.pop(table, None)
        self._size -= dropped.size if dropped is not None else 0

    def load(self, table: Table, collection: Collection) -> None:
        """Load a whole table.

        Places that need restoring or quarantine, and so the lock, are marked to be read
        again.
        """
        loaded = self._loaded[table] = self.read(table, collection, self._stale)
        self._size += loaded.size
        while self._size > self._limit and len(self._loaded) > 1:
            _, dropped = self._loaded.popitem(last=False)
            self._size -= dropped.size

    def _places(self, table: Table) -> list[Place]:
        stems = []
        for name in self._disk.names(table.parts):
            if stem_of_bytes(name) is not None:
                continue
            stem = name.removesuffix(BACKUP) if name.endswith(BACKUP) else name.removesuffix(SUFFIX)
            if stem == name or not is_name(stem):
                log.warning(
                    "file '%s' is ignored: its name is not that of a record", "/".join((*table.parts, name))
                )
            else:
                stems.append(stem)
        return [Place(table, stem) for stem in dict.fromkeys(sorted(stems))]

    def _look(self, place: Place, collection: Collection) -> PlaceContent:
        try:
            with self._disk.folder(place.table.parts) as fd:
                text = read_at(fd, place.file)
            found = unseal_record(text, collection)
            check_place(found.standing, place)
        except (OSError, NotRegularFile, DamagedRecord, ForeignFile):
            return self._records.look(place, collection, None)
        return look_of(place, found, text)

    def _entry(self, look: PlaceContent) -> Entry | None:
        if look.standing is not None:
            return _entry(look.place, look.standing, look.bytes, look.apart)
        if look.damage is None:
            return None
        record_id = decode_name(look.place.stem)
        if record_id is None:
            record_id = look.damage.id or look.place.stem
        key = Key(self._partitions.tenant_named(look.place.table.tenant), record_id)
        return Entry(look.place, key, None, 0)


def _entry(place: Place, standing: Standing, size: int, apart: Mapping[str, BlobReference]) -> Entry:
    return Entry(place, standing.key, outline(standing, apart), size, apart)


def outline(standing: Standing, apart: Mapping[str, BlobReference]) -> Standing:
    """Return the part of a value that is kept in memory."""
    return without(replace(standing, body={}), apart) if isinstance(standing, Record) else standing
