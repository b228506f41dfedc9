"""Partitions and what is counted for each: its number, its generation, and the revision of each collection in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.table import Table
from memory.ports.query import Everywhere, Tenant, Where
from memory.ports.questions import behind_prefix
from memory.ports.record import Partition
from memory.ports.rows import MARK

_ADD = "INSERT INTO memory_partitions (tenant, scope, generation) VALUES (?, ?, 0)"
_GENERATION = "SELECT number, generation FROM memory_partitions WHERE tenant = ? AND scope = ?"
_RAISE = "UPDATE memory_partitions SET generation = ? WHERE number = ?"
_REMOVED = """INSERT INTO memory_revisions (partition_no, collection, revision, removals) VALUES (?, ?, ?, ?)
ON CONFLICT (partition_no, collection) DO UPDATE SET revision = excluded.revision, removals = excluded.removals"""

_NUMBERS_OF_TENANT = "SELECT number FROM memory_partitions WHERE tenant = ? ORDER BY number"
_ALL_NUMBERS = "SELECT number FROM memory_partitions ORDER BY number"


@dataclass(slots=True)
class Revision:
    """How far a collection has come in a partition: what a write transaction found and will leave.

    The revision is the highest that any row there carries, or the one when a row last left: so that storing a row costs nothing more.
    """

    number: int
    removals: int
    touched: bool = False
    removed: bool = False


class Directory:
    """What one write transaction knows and changes about partitions. `flush` writes it before the commit."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._partitions: dict[Partition, tuple[int, int]] = {}
        self._revisions: dict[tuple[str, int], Revision] = {}

    def registered(self, table: Table, partition: Partition) -> tuple[int, int]:
        """The partition's number and generation; the partition is made where there was none."""
        known = self._partitions.get(partition)
        if known is None:
            row = self._session.row(table.state, (partition.tenant, partition.scope))
            number, generation, revision, removals = row or (self._add(partition), 0, 0, 0)
            known = self._partitions[partition] = (number, generation)
            self._revisions.setdefault((table.name, number), Revision(revision, removals))
        return known

    def _add(self, partition: Partition) -> int:
        return self._session.run(_ADD, (partition.tenant, partition.scope))

    def generation(self, partition: Partition) -> int:
        """The partition's generation; looking makes nothing."""
        known = self._partitions.get(partition)
        if known is not None:
            return known[1]
        row = self._session.row(_GENERATION, (partition.tenant, partition.scope))
        return 0 if row is None else int(row[1])

    def raise_to(self, partition: Partition, generation: int) -> None:
        row = self._session.row(_GENERATION, (partition.tenant, partition.scope))
        number = int(row[0]) if row else self._add(partition)
        self._session.run(_RAISE, (generation, number))
        self._partitions[partition] = (number, generation)

    def touch(self, table: Table, partition: int, removed: bool = False) -> int:
        """The revision that rows changed by this transaction carry."""
        revision = self._revisions.get((table.name, partition))
        if revision is None:
            revision = self._revisions[(table.name, partition)] = Revision(*self._session.row(table.revision, (partition,)))
        if not revision.touched:
            revision.touched = True
            revision.number += 1
        if removed:
            revision.removed = True
            revision.removals += 1
        return revision.number

    def flush(self) -> None:
        for (collection, partition), revision in self._revisions.items():
            if revision.removed:
                self._session.run(_REMOVED, (partition, collection, revision.number, revision.removals))


def numbers_of(session: Session, where: Where) -> list[int]:
    """The numbers of the asked partitions that ever held anything and are not forgotten, ascending."""
    if isinstance(where, Tenant):
        return [number for (number,) in session.rows(_NUMBERS_OF_TENANT, (where.tenant,))]
    if isinstance(where, Everywhere):
        return [number for (number,) in session.rows(_ALL_NUMBERS)]
    found = [session.row(_GENERATION, (p.tenant, p.scope)) for p in dict.fromkeys(where.partitions)]
    return sorted({int(row[0]) for row in found if row is not None})


# -- which there are, and forgetting those in which nothing stands ------------------------------------------------------

_COLLECTIONS = "SELECT name FROM memory_collections"


def listed(session: Session, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int) -> list[tuple[Partition, int]]:
    """Those with a generation above 0, or a record of any collection of the file, in quarantine or not."""
    tables = ["memory_quarantine", *[name for (name,) in session.rows(_COLLECTIONS)]]
    holds = " OR ".join(f"EXISTS (SELECT 1 FROM {table} WHERE partition_no = p.number)" for table in tables)  # noqa: S608
    conditions, values = [f"(p.generation > 0 OR {holds})", "p.scope >= ?"], [prefix]
    if isinstance(where, Tenant):
        conditions, values = [*conditions, "p.tenant = ?"], [*values, where.tenant]
    if (end := behind_prefix(prefix)) is not None:
        conditions, values = [*conditions, "p.scope < ?"], [*values, end]
    if after is not None:
        conditions, values = [*conditions, "(p.tenant, p.scope) > (?, ?)"], [*values, after.tenant, after.scope]
    asked = " AND ".join(conditions)
    statement = f"SELECT p.tenant, p.scope, p.generation FROM memory_partitions AS p WHERE {asked} ORDER BY p.tenant, p.scope LIMIT ?"  # noqa: S608
    return [(Partition(tenant, scope), generation) for tenant, scope, generation in session.rows(statement, (*values, limit))]


def idle(session: Session, limit: int) -> list[tuple[Partition, int]]:
    """At most so many, each with its generation. Every collection of the file is asked, also those this store was not opened with."""
    rows = session.rows(f"SELECT p.tenant, p.scope, p.generation FROM memory_partitions AS p WHERE {_nothing_stands(session)} LIMIT ?", (limit,))  # noqa: S608
    return [(Partition(tenant, scope), generation) for tenant, scope, generation in rows]


def forget(session: Session, idle: Sequence[tuple[Partition, int]]) -> int:
    """Forget those in which still nothing stands, at still that generation; how many these were."""
    statement = f"SELECT p.number FROM memory_partitions AS p WHERE p.tenant = ? AND p.scope = ? AND p.generation = ? AND {_nothing_stands(session)}"  # noqa: S608
    forgotten = 0
    for partition, generation in idle:
        row = session.row(statement, (partition.tenant, partition.scope, generation))
        if row is not None:
            session.run("DELETE FROM memory_revisions WHERE partition_no = ?", row)
            session.run("DELETE FROM memory_partitions WHERE number = ?", row)
            forgotten += 1
    return forgotten


def _nothing_stands(session: Session) -> str:
    """No row in quarantine, no record, and no mark. Only what is no record is without a partition: marks are found among these."""
    conditions = ["NOT EXISTS (SELECT 1 FROM memory_quarantine WHERE partition_no = p.number)"]
    for (name,) in session.rows(_COLLECTIONS):
        conditions.append(f"NOT EXISTS (SELECT 1 FROM {name} WHERE partition_no = p.number)")  # noqa: S608
        conditions.append(f"(p.tenant, p.scope) NOT IN (SELECT tenant, scope FROM {name} WHERE partition_no IS NULL AND row_type = '{MARK}')")  # noqa: S608
    return " AND ".join(conditions)
