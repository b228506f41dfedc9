"""Upkeep: whether what is kept beside the records is what they say, partitions in which
nothing stands any more, and what dead processes left.

Each step takes the lock for itself, one table or partition at a time: other calls go on
in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from memory.adapters.file.commits import StagedCommit
from memory.adapters.file.library import Library
from memory.adapters.file.names import APART_BACKUP, BACKUP, SUFFIX, UNSEEN, Table, encode_name, stem_of_bytes
from memory.adapters.file.records import QUARANTINE
from memory.adapters.file.tables import LoadedTable
from memory.domain.errors import StoreError
from memory.ports.collections import Collection
from memory.ports.query import RowType
from memory.ports.record import Partition, Record
from memory.ports.store import Audit


class Upkeep:
    """One call. `deadline` says until when a step that begins now waits for the lock."""

    def __init__(self, library: Library, deadline: Callable[[], float]) -> None:
        self._library, self._deadline = library, deadline

    # -- audit -------------------------------------------------------------------------

    def audit(self, collections: Sequence[Collection], repair: bool) -> Audit:
        checked = 0
        problems = self._audit_staging(repair) + self._folders(repair)
        for partition in self._partitions():
            problems += self._state(partition, repair)
        for collection in collections:
            for table in self._tables(collection):
                with self._library.hold_lock(self._deadline()):
                    loaded, found = self._table(table, collection, repair)
                checked += len(loaded.entries)
                problems += found
        return Audit(checked, tuple(problems))

    def _audit_staging(self, repair: bool) -> list[str]:
        with self._library.hold_lock(self._deadline()):
            left = self._library.commits.left_behind()
            if left and repair:
                self._library.commits.clean()
        return [f"the staging folder holds {len(left)} files of processes that died"] if left else []

    def _folders(self, repair: bool) -> list[str]:
        """What is remembered of which partitions there are."""
        with self._library.hold_lock(self._deadline()):
            forgotten = self._library.partitions.unknown()
            if forgotten and repair:
                self._library.partitions.forget()
        return [
            f"'{'/'.join(folder)}' is on disk, and not among the partitions this process knows"
            for folder in forgotten
        ]

    def _state(self, partition: Partition, repair: bool) -> list[str]:
        """Both copies of what is counted for a partition are the current one."""
        with self._library.hold_lock(self._deadline()):
            copies, unreadable = self._library.partitions.copies(partition)
            if not unreadable and (not copies or (len(copies) == 2 and copies[0] == copies[1])):
                return []
            if repair and copies:
                newest = copies[0]
                newest.generation = max(copy.generation for copy in copies)  # it never goes back
                staged = StagedCommit()
                newest.stage(staged)
                self._commit(staged)
        folder = f"{encode_name(partition.tenant)}/{encode_name(partition.scope)}"
        return [
            f"'{folder}': of the two copies of what is counted there, one is missing, cannot be read or is another than the other"
        ]

    def _table(self, table: Table, collection: Collection, repair: bool) -> tuple[LoadedTable, list[str]]:
        """What is kept in memory of a table, and files of what was deleted or moved."""
        problems, tables = [], self._library.tables
        if tables.stale:
            tables.read_again(self._library.sound)
        fresh, kept = tables.read(table, collection), tables.find_loaded(table)
        if kept is not None and not kept.same_as(fresh):
            problems.append(f"'{'/'.join(table.parts)}': what is kept of it in memory is not what is on disk")
            if repair:
                tables.drop(table)
        staged = StagedCommit()
        self._stage_left_over(table, fresh, staged)
        if staged.steps:
            problems.append(
                f"'{'/'.join(table.parts)}': {len(staged.steps)} files are left of what was deleted or moved"
            )
            if repair:
                self._commit(staged)
        return fresh, problems

    def _stage_left_over(self, table: Table, fresh: LoadedTable, staged: StagedCommit) -> None:
        """Versions before, and bad files in quarantine, of what is no live record any
        more. What is damaged may still need them.
        """
        disk = self._library.disk
        gone = {
            stem
            for stem, entry in fresh.entries.items()
            if entry.standing is not None and not isinstance(entry.standing, Record)
        }
        names = set(disk.names(table.parts))
        for name in sorted(names):
            is_before, stem = name.endswith(BACKUP) and name.removesuffix(BACKUP) in gone, stem_of_bytes(name)
            if is_before or (stem is not None and (stem in gone or _is_left_over(name, stem, names, fresh))):
                staged.remove(table.parts, name)
        for name in disk.names((QUARANTINE, *table.parts)):
            if name.partition(".")[0] in gone:
                staged.remove((QUARANTINE, *table.parts), name)

    def _commit(self, staged: StagedCommit) -> None:
        staged.in_any_order = all(step.staged is None for step in staged.steps)
        files = ["/".join((*step.folder, step.name)) for step in staged.steps]
        self._library.commits.prepare(staged)
        self._library.commits.carry_out(staged, lambda: self._library.changes.note(files))
        self._library.tables.mark_changed(files)

    # -- partitions --------------------------------------------------------------------

    def partitions(self) -> list[tuple[Partition, int]]:
        """Those with a generation, or a record that stands there or may, with their
        generations.
        """
        with self._library.hold_lock(self._deadline()):
            states = [
                self._library.partitions.state(partition) for partition in self._library.partitions.on_disk()
            ]
            return [
                (s.partition, s.generation)
                for s in states
                if s.generation or self._library.records.holds(s.folder, RowType.RECORD)
            ]

    # -- partitions in which nothing stands --------------------------------------------

    def idle(self, limit: int) -> list[tuple[Partition, int]]:
        """At most so many, each with its generation. Tombstones name no scope: they
        hold no partition back.
        """
        found: list[tuple[Partition, int]] = []
        for partition in self._partitions():
            if len(found) == limit:
                break
            with self._library.hold_lock(self._deadline()):
                generation = self._idle_at(partition)
            if generation is not None:
                found.append((partition, generation))
        return found

    def forget(self, idle: Sequence[tuple[Partition, int]]) -> int:
        """Remove the folders of those in which still nothing stands, at still that
        generation; how many these were.
        """
        forgotten = 0
        for partition, generation in dict.fromkeys(idle):
            with self._library.hold_lock(self._deadline()):
                if self._idle_at(partition) == generation:
                    staged = StagedCommit()
                    self._stage_tombstones(partition, staged)
                    self._library.partitions.state(partition).stage_removal(staged)
                    self._commit(staged)
                    self._remove_folder(partition)
                    forgotten += 1
        return forgotten

    def _stage_tombstones(self, partition: Partition, staged: StagedCommit) -> None:
        """Those of the partition go to the tenant's others that name no scope."""
        disk, (tenant, scope) = (
            self._library.disk,
            (encode_name(partition.tenant), encode_name(partition.scope)),
        )
        for collection in disk.folders((tenant, scope)):
            table = (tenant, scope, collection)
            for name in disk.names(table):
                if name.endswith(SUFFIX):
                    staged.keep(table, name, (tenant, UNSEEN, collection), name)
                staged.remove(table, name)

    def _idle_at(self, partition: Partition) -> int | None:
        """The partition's generation where something is kept of it and nothing stands
        in it, else None. With the lock.
        """
        folder = (encode_name(partition.tenant), encode_name(partition.scope))
        disk = self._library.disk
        if not disk.exists(folder[:1], folder[1]) or self._library.records.holds(
            folder, RowType.RECORD, RowType.MARK
        ):
            return None
        try:
            return self._library.partitions.state(partition).generation
        except StoreError:  # of what cannot be read nobody knows that it may be forgotten
            return None

    def _remove_folder(self, partition: Partition) -> None:
        disk, (tenant, scope) = (
            self._library.disk,
            (encode_name(partition.tenant), encode_name(partition.scope)),
        )
        for place in ((tenant, scope), (QUARANTINE, tenant, scope)):
            for collection in disk.folders(place):
                disk.remove_folder((*place, collection))
            disk.remove_folder(place)
        for collection in disk.folders((tenant, UNSEEN)):
            disk.remove_folder((tenant, UNSEEN, collection))
        for above in ((tenant, UNSEEN), (tenant,), (QUARANTINE, tenant)):
            disk.remove_folder(above)
        self._library.partitions.forget()

    # -- room --------------------------------------------------------------------------

    def vacuum(self) -> int:
        """Remove what dead processes staged and never used; how many bytes that was."""
        with self._library.hold_lock(self._deadline()):
            size = sum(self._library.commits.left_behind().values())
            self._library.commits.clean()
        return size

    # -- where to look -----------------------------------------------------------------

    def _partitions(self) -> Iterator[Partition]:
        """Those that have a folder whose name, or what is counted in it, tells which
        they are.
        """
        with self._library.hold_lock(self._deadline()):
            found = self._library.partitions.on_disk()
        yield from found

    def _tables(self, collection: Collection) -> list[Table]:
        partitions = self._library.partitions
        return [
            Table(tenant, scope, collection.name)
            for tenant in partitions.tenants()
            for scope in partitions.scopes(tenant)
        ]


def _is_left_over(name: str, stem: str, names: set[str], fresh: LoadedTable) -> bool:
    """Whether no record says that it has the bytes in this file: neither what stands
    there nor the version before, as far as these can be read.
    """
    if name.endswith(APART_BACKUP):
        return stem + BACKUP not in names
    entry = fresh.entries.get(stem)
    if entry is None:
        return stem + SUFFIX not in names
    return entry.standing is not None and name not in map(entry.place.bytes_of, entry.apart)
