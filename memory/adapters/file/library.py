"""The folder as a whole: its layout, its lock, and changes by other processes.

store.json              the version of this layout and the note of the format (`memory.ports.formats`)
store.lock              see `lock`
changes.log             see `changes`
staging.d/              see `commits`
quarantine.d/           bad files, under their former path
<tenant>/<scope>/partition.json              see `partitions`
<tenant>/<scope>/<collection>/<id>.json      see `records`; `<id>.json.bak` is the previous version, `<id>.<field>.bytes` a large bytes field
<tenant>/unseen.d/<collection>/<id>.json     see `names`
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from memory.adapters.file.changes import Changes
from memory.adapters.file.codec import DamagedRecord, seal, unseal
from memory.adapters.file.commits import STAGING, Commits, StagedCommit
from memory.adapters.file.config import FileConfig
from memory.adapters.file.disk import Disk, NotRegularFile
from memory.adapters.file.lock import Lock
from memory.adapters.file.names import UNSEEN, Place, Table, encode_name, place_in
from memory.adapters.file.partitions import Partitions
from memory.adapters.file.records import PlaceContent, Records
from memory.adapters.file.tables import Entry, LoadedTable, Tables, outline
from memory.domain.errors import ConfigError, StoreError, StoreUnavailable
from memory.ports.collections import Collection
from memory.ports.formats import FormatNote, current_note
from memory.ports.record import JsonValue, Key, Standing

log = logging.getLogger(__name__)

SCHEMA = 4
TAKEN_OVER = (3,)
"""Earlier layouts that this one only extends.

A folder with such a layout is upgraded when it is opened. Layout 3 has no separate
files for bytes.
"""
_SCHEMA_FILE = "store.json"


class Library:
    """The whole folder. It is used by one thread at a time."""

    def __init__(self, store: str, config: FileConfig) -> None:
        self._store, self.thresholds = store, config.thresholds
        self.disk = Disk(config.path, config.fsync, config.mode == "ro")
        self.lock = Lock(store, config.path)
        self.commits = Commits(store, self.disk, self.thresholds)
        self.changes = Changes(self.disk, self.thresholds.log_bytes)
        self.partitions = Partitions(store, self.disk)
        self.records = Records(self.disk, self.commits, self.partitions)
        self.tables = Tables(self.disk, self.records, self.partitions, config.cache_bytes)
        self._locked = False
        self.noted: str | None = None
        """Note of the format as found or created at open."""

    # -- life --------------------------------------------------------------------------

    def open(self, deadline: float) -> None:
        try:
            if not self.disk.open():
                raise self._nothing_to_read()
            if self.disk.read_only:
                self._open_to_read(deadline)
                return
            with self.lock.hold(deadline):
                found, self.noted = self._checked_schema()
                if found is None:
                    self.noted = current_note()
                self.disk.make_folder(STAGING)
                self.changes.open()
                self._finish_what_was_interrupted()
                if found != SCHEMA:  # only after completing all changes begun under the earlier layout
                    self._say_schema(self.noted)
                self.commits.clean()
        except BaseException:
            self.close()
            raise

    def _open_to_read(self, deadline: float) -> None:
        try:
            with self.lock.hold(deadline, reading=True):
                found, self.noted = self._checked_schema()
                there = found is not None
                self.changes.open()
                self._finish_what_was_interrupted()
        except FileNotFoundError:
            there = False
        if not there:
            raise self._nothing_to_read()
        log.info("store '%s': %s is opened to read only", self._store, self.disk.root)

    def _nothing_to_read(self) -> ConfigError:
        return ConfigError(
            f"store '{self._store}': {self.disk.root} is opened to read only, and contains no store; open it"
            " for writing first"
        )

    def join(self) -> None:
        """Open beside another library of this process that has prepared the folder."""
        self.disk.open()
        self.changes.open()

    def close(self) -> None:
        self.changes.close()
        self.disk.close()
        self.partitions.forget()
        self.tables.forget()

    def schema(self) -> tuple[int | None, str | None]:
        """Return the version of the layout and the note of the format.

        The version is None if there is none yet.
        """
        try:
            text = self.disk.read((), _SCHEMA_FILE)
            found = {} if text is None else unseal(text)
            return (None if text is None else int(found["schema"])), found.get("format")
        except (DamagedRecord, NotRegularFile, KeyError, TypeError, ValueError) as exc:
            raise StoreError(
                self._store,
                f"'{self.disk.root / _SCHEMA_FILE}' cannot be read ({exc}); check that this is the folder of"
                " a file store",
            ) from exc

    def swap_format(self, before: str | None, after: str, deadline: float) -> bool:
        """Replace the note of the format if it equals `before`."""
        with self.hold_lock(deadline):
            if self.schema()[1] != before:
                return False
            self._say_schema(after)
            return True

    def _say_schema(self, noted: str | None) -> None:
        staged = StagedCommit()
        note: dict[str, JsonValue] = {} if noted is None else {"format": noted}
        staged.write((), _SCHEMA_FILE, seal({"store": "memory, one file a record", "schema": SCHEMA, **note}))
        self.commits.prepare(staged)
        self.commits.carry_out(staged, lambda: None)

    def _checked_schema(self) -> tuple[int | None, str | None]:
        """Return `schema()`; raise if this release does not know the layout."""
        found, noted = self.schema()
        FormatNote.parse(self._store, noted)
        if found is None or found == SCHEMA or found in TAKEN_OVER:
            return found, noted
        if found > SCHEMA:
            raise StoreError(
                self._store,
                f"the folder '{self.disk.root}' was made by a newer release (layout {found}, this one"
                f" supports {SCHEMA}); upgrade memory-tiers",
            )
        raise StoreError(
            self._store,
            f"the folder '{self.disk.root}' has layout {found}, and this release writes {SCHEMA}: export its"
            " records with the version that wrote them, and import them into another folder",
        )

    # -- who may write, and what has changed -------------------------------------------

    @contextmanager
    def hold_lock(self, deadline: float) -> Iterator[None]:
        """Hold the lock; may be nested.

        No other process writes meanwhile. Changes of dead processes are completed, and
        every change so far is known.
        """
        if self._locked:
            yield
            return
        self.disk.check_root()
        with self.lock.hold(deadline, self.disk.read_only):
            self._locked = True
            try:
                self._finish_what_was_interrupted()
                self._listen()
                yield
            finally:
                self._locked = False

    def steady(self, deadline: float) -> None:
        """Read the log of changes, then wait for unfinished changes of several files.

        The order matters: such a change is logged after its journal is written. So a
        logged change either still has its journal or is complete.
        """
        self.disk.check_root()
        self._listen()
        if self.commits.is_interrupted():
            with self.hold_lock(deadline):
                return

    def _finish_what_was_interrupted(self) -> None:
        steps = self.commits.unfinished_steps()
        if steps and self.disk.read_only:
            raise StoreUnavailable(
                self._store,
                f"{self.disk.root} is opened to read only, and a process died while it changed several files;"
                " open it for writing once",
            )
        if steps:
            self._listen()  # first, or lines that others logged meanwhile would be skipped
            self.changes.note("/".join((*s.folder, s.name)) for s in steps)
            self.tables.mark_changed("/".join((*s.folder, s.name)) for s in steps)
            self.commits.finish(steps)

    def _listen(self) -> None:
        news = self.changes.news()
        if news is None:
            self.partitions.forget()
            self.tables.forget()
        else:
            self.tables.mark_changed(news)

    # -- looking -----------------------------------------------------------------------

    def look(self, collection: Collection, keys: Sequence[Key], deadline: float) -> list[PlaceContent]:
        """Read the values under the keys, all at one moment.

        It takes the lock only to restore or quarantine, or if others write all the
        time. If there is only something to quarantine and the lock is not free, a later
        call does it, and the other records are returned.
        """
        looks: list[PlaceContent] = []
        for _ in range(self.thresholds.looks):
            self.steady(deadline)
            looks = [self._find(collection, key) for key in keys]
            if any(self.records.to_mend(look) for look in looks):
                break
            alone = (
                len(keys) == 1 and looks[0].standing is not None
            )  # it is complete: its separate bytes are those that its file names
            if alone or not self.changes.any():
                return looks
        try:
            with self.hold_lock(deadline):
                return [self.find_locked(collection, key) for key in keys]
        except StoreUnavailable:
            if not looks or any(look.before is not None for look in looks) or self.changes.any():
                raise
            return looks

    def find_locked(self, collection: Collection, key: Key) -> PlaceContent:
        """Read the value under the key, and restore or quarantine it if needed.

        It needs the lock.
        """
        look = self._find(collection, key)
        return self.sound(look.place, collection, key) if self.records.to_mend(look) else look

    def sound(self, place: Place, collection: Collection, key: Key | None = None) -> PlaceContent:
        """Read a place; restore it if needed and possible, else quarantine it.

        It needs the lock.
        """
        look = self.records.look(place, collection, key)
        if not self.records.to_mend(look):
            return look
        if look.before is not None and not self.disk.read_only:
            self.changes.note([str(place)])
            self.tables.mark_changed([str(place)])
        return self.records.restore_previous(look, collection, key)

    def _find(self, collection: Collection, key: Key) -> PlaceContent:
        stem = encode_name(key.id)
        foreign = None
        for table in self.partitions.tables(collection.name, key):
            look = self.records.look(Place(table, stem), collection, key)
            if look.holds:
                return look
            foreign = look if look.foreign else foreign
        return foreign or PlaceContent(place_in(collection.name, key, UNSEEN))

    def table(self, table: Table, collection: Collection, deadline: float) -> LoadedTable:
        """Return everything in a table as of now. Call `steady` first."""
        loaded = self.tables.find_loaded(table)
        if loaded is None:
            with self.hold_lock(deadline):
                pass  # waits until changes logged before this table was loaded are complete
            self.tables.load(table, collection)
        if self.tables.stale:
            with self.hold_lock(deadline):
                self.tables.read_again(self.sound)
        return self.tables.find_loaded(table) or self.table(table, collection, deadline)

    def fresh(self, entry: Entry, collection: Collection) -> Standing | None:
        """Read the record of a query's match from disk.

        The result is None if it has changed; the cache then knows the change.
        """
        look = self.records.look(entry.place, collection, entry.key)
        found = (
            look.standing or look.before
        )  # the previous version if it could not be restored, because the disk is full or read-only
        if found is not None and outline(found, look.apart) == entry.standing and look.apart == entry.apart:
            return found
        self.tables.mark_changed([str(entry.place)])
        return None


def deadline_in(seconds: float) -> float:
    """Return the time in `seconds` from now on the monotonic clock."""
    return time.monotonic() + seconds
