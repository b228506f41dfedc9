"""Partitions: those there are, those of which something is kept though nothing stands in them, and forgetting these."""

from __future__ import annotations

from collections.abc import Sequence

from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.values import MARK
from memory.ports.query import Everywhere, Tenant
from memory.ports.questions import behind_prefix
from memory.ports.record import Partition

_COLLECTIONS = "SELECT name FROM memory_collections"


def partitions(session: Session, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int) -> list[tuple[Partition, int]]:
    """Those with a generation above 0, or a record of any collection of the file, set aside or not."""
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
    """No row set aside, no record, and no mark. Only what is no record is without a partition: marks are found among these."""
    conditions = ["NOT EXISTS (SELECT 1 FROM memory_quarantine WHERE partition_no = p.number)"]
    for (name,) in session.rows(_COLLECTIONS):
        conditions.append(f"NOT EXISTS (SELECT 1 FROM {name} WHERE partition_no = p.number)")  # noqa: S608
        conditions.append(f"(p.tenant, p.scope) NOT IN (SELECT tenant, scope FROM {name} WHERE partition_no IS NULL AND record_kind = '{MARK}')")  # noqa: S608
    return " AND ".join(conditions)
