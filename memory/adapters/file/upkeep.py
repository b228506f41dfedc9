"""Maintenance: audits, idle partitions, and files of dead processes.

Each step takes the lock for one table or partition, so that other calls run in between.
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
    """One run of upkeep. `deadline` returns until when a step may wait for the lock."""

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
        """Compare the cached list of partitions with the disk."""
        with self._library.hold_lock(self._deadline()):
            forgotten = self._library.partitions.unknown()
            if forgotten and repair:
                self._library.partitions.forget()
        return [
            f"'{'/'.join(folder)}' is on disk, but not in this process's list of partitions"
            for folder in forgotten
        ]

    def _state(self, partition: Partition, repair: bool) -> list[str]:
        """Check that both copies of a partition's generation are equal and readable."""
        with self._library.hold_lock(self._deadline()):
            copies, unreadable = self._library.partitions.copies(partition)
            if not unreadable and (not copies or (len(copies) == 2 and copies[0] == copies[1])):
                return []
            if repair and copies:
                newest = copies[0]
                newest.generation = max(copy.generation for copy in copies)  # it never decreases
                staged = StagedCommit()
                newest.stage(staged)
                self._commit(staged)
        folder = f"{encode_name(partition.tenant)}/{encode_name(partition.scope)}"
        return [
            f"'{folder}': one of the two copies of its generation is missing or unreadable, or they differ"
        ]

    def _table(self, table: Table, collection: Collection, repair: bool) -> tuple[LoadedTable, list[str]]:
        """Compare a table in memory with the disk, and find left-over files."""
        problems, tables = [], self._library.tables
        if tables.stale:
            tables.read_again(self._library.sound)
        fresh, kept = tables.read(table, collection), tables.find_loaded(table)
        if kept is not None and not kept.same_as(fresh):
            problems.append(f"'{'/'.join(table.parts)}': its data in memory differs from the disk")
            if repair:
                tables.drop(table)
        staged = StagedCommit()
        self._stage_left_over(table, fresh, staged)
        if staged.steps:
            problems.append(
                f"'{'/'.join(table.parts)}': {len(staged.steps)} files remain of records that were deleted or"
                " moved"
            )
            if repair:
                self._commit(staged)
        return fresh, problems

    def _stage_left_over(self, table: Table, fresh: LoadedTable, staged: StagedCommit) -> None:
        """Stage the removal of old versions and quarantined files without a record.

        An old version is the previous one. Those of damaged records stay, as they may
        be needed.
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
        """Return partitions with a generation or a record, with their generations.

        A file that may be a record counts.
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
        """Return idle partitions, at most `limit`, with their generations.

        Tombstones have no scope and keep no partition.
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
        """Remove the folders of partitions that still are idle at these generations.

        Returns:
            The number of removed partitions.
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
        """Stage moving a partition's tombstones to the folder without a scope."""
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
        """Return the generation of an idle partition, else None. Needs the lock."""
        folder = (encode_name(partition.tenant), encode_name(partition.scope))
        disk = self._library.disk
        if not disk.exists(folder[:1], folder[1]) or self._library.records.holds(
            folder, RowType.RECORD, RowType.MARK
        ):
            return None
        try:
            return self._library.partitions.state(partition).generation
        except StoreError:  # an unreadable partition may not be forgotten
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
        """Remove files that dead processes left, and return their size in bytes."""
        with self._library.hold_lock(self._deadline()):
            size = sum(self._library.commits.left_behind().values())
            self._library.commits.clean()
        return size

    # -- where to look -----------------------------------------------------------------

    def _partitions(self) -> Iterator[Partition]:
        """Yield partitions with a folder whose name or content identifies them."""
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
    """Whether no record refers to this bytes file.

    The current value and the previous version are checked, as far as they are readable.
    """
    if name.endswith(APART_BACKUP):
        return stem + BACKUP not in names
    entry = fresh.entries.get(stem)
    if entry is None:
        return stem + SUFFIX not in names
    return entry.standing is not None and name not in map(entry.place.bytes_of, entry.apart)
