"""Reads records, and restores or quarantines damaged files.

`<id>.json` is the current value. `<id>.json.bak` is the previous version, kept only for
a live record that was edited in the same role. A file that is damaged, or missing
without a deletion, is restored from the previous version. The record then is one
version back. A client that read the lost version and writes on its condition gets a
conflict and the present value.

The bad file is kept in `quarantine.d`, a warning is logged, and `check` lists it. A
deletion, a move or a change of role keeps no previous version, so a restoration never
undoes it. If such a file is damaged, the result is `Corrupt`.

`<id>.<field>.bytes` is a large bytes field, and `<id>.<field>.bytes.bak` that of the
previous version. They are written and removed in the same commit as their records. A
missing or changed one makes its record unreadable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from memory.adapters.file.codec import (
    BlobReference,
    DamagedRecord,
    DecodedRecord,
    ForeignFile,
    unseal,
    unseal_record,
    without,
)
from memory.adapters.file.commits import Commits, StagedCommit
from memory.adapters.file.disk import DirectoryOrDevice, Disk, NotRegularFile
from memory.adapters.file.names import APART, BACKUP, SUFFIX, Place, Table, is_id_of_ours, place_in, place_of
from memory.adapters.file.partitions import Partitions
from memory.domain.errors import StoreError
from memory.ports.collections import Collection, FieldType
from memory.ports.query import RowType
from memory.ports.record import Corrupt, Key, Record, Standing
from memory.ports.write_decision import Slot

log = logging.getLogger(__name__)

QUARANTINE = "quarantine.d"


@dataclass(frozen=True, slots=True)
class PlaceContent:
    """Content of a place.

    `standing` and `damage` are both None if it is empty. `before` is the version to
    restore, if there is one. A foreign file counts as empty, and is kept if something
    is written to its place. `apart` describes the bytes in separate files. `bytes` is
    the size of all its files.
    """

    place: Place
    standing: Standing | None = None
    damage: DamagedRecord | None = None
    before: Record | None = None
    foreign: bool = False
    bytes: int = 0
    apart: Mapping[str, BlobReference] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        return self.standing is not None or self.damage is not None or self.before is not None

    @property
    def outline(self) -> PlaceContent:
        """The same without separate bytes."""
        return (
            replace(self, standing=without(self.standing, self.apart))
            if isinstance(self.standing, Record)
            else self
        )

    def slot(self, key: Key) -> Slot:
        """The content as writes are decided on it."""
        if self.damage is not None:
            return Slot(Corrupt(key, self.damage.problem), self.damage.version)
        return Slot(self.standing, None if self.standing is None else self.standing.version)


class Records:
    def __init__(self, disk: Disk, commits: Commits, partitions: Partitions) -> None:
        self._disk, self._commits, self._partitions = disk, commits, partitions

    def look(self, place: Place, collection: Collection, key: Key | None) -> PlaceContent:
        """Read a place, and the previous version if that fails. Changes nothing."""
        foreign = False
        damage: DamagedRecord | None = None
        try:
            text = self._disk.read(place.table.parts, place.file)
            if text is not None:
                found = unseal_record(text, collection)
                check_place(found.standing, place, key)
                return look_of(place, self._whole(place.table, found, place.bytes_of), text)
        except ForeignFile as exc:
            foreign = True
            log.warning("file '%s' is ignored: %s", place, exc)
        except DamagedRecord as exc:
            damage = exc
        except NotRegularFile as exc:
            foreign = isinstance(exc, DirectoryOrDevice) and not is_id_of_ours(place.stem)
            damage = None if foreign else DamagedRecord(str(exc))
        before, corrupt = self._before(place, collection, key)
        if damage is not None and damage.kind in (RowType.MARK, RowType.TOMBSTONE):
            before = None
        if damage is None and before is None and corrupt is not None:
            damage = DamagedRecord(f"the file is missing, and of the previous version {corrupt.problem}")
        return PlaceContent(place, None, damage, before, foreign)

    def _before(
        self, place: Place, collection: Collection, key: Key | None
    ) -> tuple[Record | None, DamagedRecord | None]:
        try:
            text = self._disk.read(place.table.parts, place.backup)
            if text is None:
                return None, None
            found = unseal_record(text, collection)
            check_place(found.standing, place, key)
            standing = self._whole(place.table, found, place.bytes_before).standing
        except (DamagedRecord, ForeignFile) as exc:
            return None, exc if isinstance(exc, DamagedRecord) else None
        except NotRegularFile as exc:
            return None, DamagedRecord(str(exc))
        return (standing, None) if isinstance(standing, Record) else (None, None)

    def _whole(self, table: Table, found: DecodedRecord, file_of: Callable[[str], str]) -> DecodedRecord:
        """Add the bytes of separate files.

        Raises:
            DamagedRecord: A file is missing or its content has changed.
        """
        standing = found.standing
        if not isinstance(standing, Record) or not found.apart:
            return found
        read: dict[str, bytes] = {}
        for name, said in found.apart.items():
            try:
                content = self._disk.read(table.parts, file_of(name))
            except NotRegularFile:
                content = None
            if content is None or BlobReference.of(content) != said:
                problem = (
                    f"'{file_of(name)}', its field '{name}', is"
                    f" {'missing' if content is None else 'not what was written'}"
                )
                raise DamagedRecord(
                    problem,
                    {"id": standing.key.id, "version": standing.version, "kind": RowType.RECORD.value},
                )
            read[name] = content
        return DecodedRecord(replace(standing, fields={**standing.fields, **read}), found.apart)

    # -- with the lock -----------------------------------------------------------------

    def restore_previous(self, look: PlaceContent, collection: Collection, key: Key | None) -> PlaceContent:
        """Restore the previous version and return the result.

        It needs the lock, and its change must be logged.
        """
        before = look.before
        if before is None or not self._may_return(before):
            self._keep_damaged(look, collection)
            gone = DamagedRecord("the file is missing, and its scope was erased after the previous version")
            return look if before is None else PlaceContent(look.place, None, look.damage or gone)
        try:
            self._restore(look, before, collection)
        except OSError as exc:  # a full or read-only disk: returned without restoring it
            log.warning(
                "record '%s' cannot be restored now (%s), and is read from its previous version",
                look.place,
                exc.strerror,
            )
            return PlaceContent(look.place, before)
        return self.look(look.place, collection, key)

    def _may_return(self, before: Record) -> bool:
        """Whether its scope has not been erased since; False if that is unknown."""
        try:
            return (
                before.generation is not None
                and before.generation >= self._partitions.state(before.partition).generation
            )
        except StoreError:
            return False

    def _restore(self, look: PlaceContent, before: Record, collection: Collection) -> None:
        place = look.place
        good = self._disk.read(place.table.parts, place.backup)
        if good is None:
            return
        staged = StagedCommit()
        kept = ""
        if look.damage is not None or look.foreign:
            kept = f" The bad file is kept as '{self.quarantine(place, collection, staged)}'."
        apart = {
            place.bytes_of(name): place.bytes_before(name) for name in unseal_record(good, collection).apart
        }
        for name in self.bytes_files(place, collection, place.bytes_of):
            if name not in apart:
                staged.remove(place.table.parts, name)
        for name, was in apart.items():
            staged.keep(place.table.parts, was, place.table.parts, name)
        staged.write(place.table.parts, place.file, good)
        staged.in_any_order = not any(APART in step.name for step in staged.steps)
        self._commits.prepare(staged)
        self._commits.carry_out(staged, lambda: None)
        lost = (
            "" if look.damage is None or look.damage.version is None else f" (version {look.damage.version})"
        )
        problem = "it was missing" if look.damage is None else look.damage.problem
        log.warning(
            "record '%s' was restored to version %d, the previous one%s: %s.%s",
            place,
            before.version,
            lost,
            problem,
            kept,
        )

    def to_mend(self, look: PlaceContent) -> bool:
        """Whether the place needs restoring or quarantine."""
        return look.before is not None or (look.damage is not None and not self.is_quarantined(look.place))

    def is_quarantined(self, place: Place) -> bool:
        """Whether the bad file is in quarantine unchanged, or is no file to keep."""
        folder, bad = (QUARANTINE, *place.table.parts), self._bad_file(place)
        try:
            content = self._disk.read(place.table.parts, bad)
            copies = [
                self._disk.read(folder, name)
                for name in self._disk.names(folder)
                if name.startswith(f"{bad}.")
            ]
        except NotRegularFile:
            return True
        return content is None or content in copies

    def _bad_file(self, place: Place) -> str:
        """Return the file of an unreadable record, to report it.

        If the record's file is missing, that is the file of its previous version.
        """
        return place.file if self._disk.exists(place.table.parts, place.file) else place.backup

    def _keep_damaged(self, look: PlaceContent, collection: Collection) -> None:
        """Link a damaged file that stays in its place into quarantine.

        It is counted and listed there.
        """
        if look.damage is None or self.is_quarantined(look.place):
            return
        staged = StagedCommit()
        kept = self.quarantine(look.place, collection, staged)
        try:
            self._commits.prepare(staged)
            self._commits.carry_out(staged, lambda: None)
        except OSError as exc:  # a full or read-only disk
            log.warning(
                "record '%s' is damaged (%s) and cannot be moved to quarantine now: %s",
                look.place,
                look.damage.problem,
                exc.strerror,
            )
        else:
            log.warning(
                "record '%s' is damaged: %s. It is not served; a copy is kept as '%s'",
                look.place,
                look.damage.problem,
                kept,
            )

    def quarantine(self, place: Place, collection: Collection, staged: StagedCommit) -> str:
        """Stage copies of the file and its bytes for quarantine; return the path."""
        ending = f".corrupt-{datetime.now(UTC):%Y%m%dt%H%M%S.%fz}"
        folder = (QUARANTINE, *place.table.parts)
        bad = self._bad_file(place)
        for name in (bad, *self.bytes_files(place, collection, place.bytes_of)):
            staged.keep(place.table.parts, name, folder, name + ending)
        return "/".join((*folder, bad + ending))

    def forget_quarantined(self, place: Place, staged: StagedCommit) -> None:
        """Stage the removal of all quarantined copies of this key.

        Deleted data must not stay readable anywhere.
        """
        folder = (QUARANTINE, *place.table.parts)
        for name in self._disk.names(folder):
            if name.startswith(f"{place.stem}."):
                staged.remove(folder, name)

    def bytes_files(
        self, place: Place, collection: Collection, file_of: Callable[[str], str], also: Iterable[str] = ()
    ) -> list[str]:
        """Return existing bytes files of the declared fields and of `also`."""
        names = dict.fromkeys([*(f.name for f in collection.fields if f.type is FieldType.BYTES), *also])
        return [file for file in map(file_of, names) if self._disk.exists(place.table.parts, file)]

    def has_before(self, place: Place) -> bool:
        return self._disk.exists(place.table.parts, place.backup)

    def holds(self, folder: tuple[str, str], *types: RowType) -> bool:
        """Whether a value of these types is in the partition's folder.

        All collections count, and so does an unreadable file that may be one.
        """
        left = {str(kind) for kind in RowType} - {str(kind) for kind in types}
        for collection in self._disk.folders(folder):
            table = (*folder, collection)
            names = set(self._disk.names(table))
            for name in names:
                if not name.endswith((SUFFIX, BACKUP)) or (
                    name.endswith(BACKUP) and name.removesuffix(BACKUP) + SUFFIX in names
                ):
                    continue
                try:
                    found = unseal(self._disk.read(table, name) or b"").get("kind")
                except DirectoryOrDevice:
                    continue
                except (DamagedRecord, NotRegularFile) as exc:
                    found = exc.kind if isinstance(exc, DamagedRecord) else None
                if found not in left:
                    return True
        return False

    # -- for people --------------------------------------------------------------------

    def all_quarantined(self) -> Sequence[str]:
        """Return the paths of all quarantined record files, relative to the folder.

        The bytes of their fields are beside them.
        """
        found = []
        for tenant in self._disk.folders((QUARANTINE,)):
            for scope in self._disk.folders((QUARANTINE, tenant)):
                for collection in self._disk.folders((QUARANTINE, tenant, scope)):
                    table = Table(tenant, scope, collection)
                    names = [
                        name for name in self._disk.names((QUARANTINE, *table.parts)) if APART not in name
                    ]
                    found += ["/".join((QUARANTINE, *table.parts, name)) for name in names]
        return sorted(found)


def look_of(place: Place, found: DecodedRecord, text: bytes) -> PlaceContent:
    """Return the content of a place whose file is readable."""
    return PlaceContent(
        place,
        found.standing,
        bytes=len(text) + sum([one.size for one in found.apart.values()]),
        apart=found.apart,
    )


def check_place(standing: Standing, place: Place, key: Key | None = None) -> None:
    """Raise `ForeignFile` if the file is not in the place of its key and scope."""
    belongs = place_of(place.table.collection, standing) or place_in(
        place.table.collection, standing.key, place.table.scope
    )
    if belongs != place or (key is not None and standing.key != key):
        raise ForeignFile(f"it is the record of '{belongs}'")
