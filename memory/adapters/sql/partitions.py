"""Partitions and what is counted for each: its number, its generation, its counters, and the revision of each collection in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from memory.adapters.sql.session import Session
from memory.ports.query import Everywhere, Partitions, Tenant, Where
from memory.ports.record import Partition

_STATE = """SELECT p.number, p.generation, r.revision, r.removals FROM memory_partitions AS p
LEFT JOIN memory_revisions AS r ON r.partition_no = p.number AND r.collection = ? WHERE p.tenant = ? AND p.scope = ?"""
_REVISION = "SELECT revision, removals FROM memory_revisions WHERE partition_no = ? AND collection = ?"
_ADD = "INSERT INTO memory_partitions (tenant, scope, generation) VALUES (?, ?, 0)"
_GENERATION = "SELECT number, generation FROM memory_partitions WHERE tenant = ? AND scope = ?"
_RAISE = "UPDATE memory_partitions SET generation = ? WHERE number = ?"
_FIRST_REVISION = "INSERT INTO memory_revisions (revision, removals, partition_no, collection) VALUES (?, ?, ?, ?)"
_NEXT_REVISION = "UPDATE memory_revisions SET revision = ?, removals = ? WHERE partition_no = ? AND collection = ?"
_COUNTER = "SELECT value FROM memory_counters WHERE partition_no = ? AND name = ?"
_FIRST_COUNT = "INSERT INTO memory_counters (value, partition_no, name) VALUES (?, ?, ?)"
_NEXT_COUNT = "UPDATE memory_counters SET value = ? WHERE partition_no = ? AND name = ?"

_NUMBERS_OF_TENANT = "SELECT number FROM memory_partitions WHERE tenant = ? ORDER BY number"
_ALL_NUMBERS = "SELECT number FROM memory_partitions ORDER BY number"


@dataclass(slots=True)
class Revision:
    """How far a collection has come in a partition: what a write transaction found and will leave."""

    found: bool
    number: int
    removals: int
    touched: bool = False


class Ledger:
    """What one write transaction knows and changes about partitions. `flush` writes it before the commit."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._partitions: dict[Partition, tuple[int, int]] = {}
        self._revisions: dict[tuple[str, int], Revision] = {}

    def place(self, collection: str, partition: Partition) -> tuple[int, int]:
        """The partition's number and generation; the partition is made where there was none."""
        known = self._partitions.get(partition)
        if known is None:
            row = self._session.row(_STATE, (collection, partition.tenant, partition.scope))
            if row is None:
                number, generation, revision, removals = self._session.run(_ADD, (partition.tenant, partition.scope)), 0, None, 0
            else:
                number, generation, revision, removals = row
            known = self._partitions[partition] = (number, generation)
            self._revisions.setdefault((collection, number), Revision(revision is not None, revision or 0, removals or 0))
        return known

    def generation(self, partition: Partition) -> int:
        """The partition's generation; looking makes nothing."""
        known = self._partitions.get(partition)
        if known is not None:
            return known[1]
        row = self._session.row(_GENERATION, (partition.tenant, partition.scope))
        return 0 if row is None else int(row[1])

    def raise_generation(self, partition: Partition, to: int | None) -> int:
        current = self.generation(partition)
        raised = current + 1 if to is None else max(current, to)
        if raised != current:
            number, _ = self.place("", partition)
            self._session.run(_RAISE, (raised, number))
            self._partitions[partition] = (number, raised)
        return raised

    def next_number(self, partition: int, counter: str) -> int:
        row = self._session.row(_COUNTER, (partition, counter))
        number = 1 if row is None else int(row[0]) + 1
        self._session.run(_FIRST_COUNT if row is None else _NEXT_COUNT, (number, partition, counter))
        return number

    def touch(self, collection: str, partition: int, removed: bool = False) -> int:
        """The revision that rows changed by this transaction carry."""
        revision = self._revisions.get((collection, partition))
        if revision is None:
            row = self._session.row(_REVISION, (partition, collection))
            revision = self._revisions[(collection, partition)] = Revision(True, *row) if row else Revision(False, 0, 0)
        if not revision.touched:
            revision.touched = True
            revision.number += 1
        if removed:
            revision.removals += 1
        return revision.number

    def flush(self) -> None:
        for (collection, partition), revision in self._revisions.items():
            if revision.touched:
                sql = _NEXT_REVISION if revision.found else _FIRST_REVISION
                self._session.run(sql, (revision.number, revision.removals, partition, collection))


class Numbers:
    """The numbers of partitions, remembered: a partition keeps its number for good."""

    def __init__(self) -> None:
        self._known: dict[Partition, int] = {}

    def of(self, session: Session, where: Where) -> list[int]:
        """The numbers of the asked partitions that have ever held anything, ascending."""
        if isinstance(where, Tenant):
            return [number for (number,) in session.rows(_NUMBERS_OF_TENANT, (where.tenant,))]
        if isinstance(where, Everywhere):
            return [number for (number,) in session.rows(_ALL_NUMBERS)]
        return sorted({n for n in (self._number(session, p) for p in _distinct(where)) if n is not None})

    def _number(self, session: Session, partition: Partition) -> int | None:
        number = self._known.get(partition)
        if number is None:
            row = session.row(_GENERATION, (partition.tenant, partition.scope))
            if row is None:
                return None
            if len(self._known) > 100_000:
                self._known.clear()
            number = self._known[partition] = int(row[0])
        return number


def _distinct(where: Partitions) -> Iterable[Partition]:
    return dict.fromkeys(where.partitions)
