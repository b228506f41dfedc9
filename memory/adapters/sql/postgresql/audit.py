"""Compares derived data with the records: the words of each row, and other tables.

No other stored data could differ: every search counts its statistics, and the server
maintains the indexes.
"""

from __future__ import annotations

from typing import Any

from memory.adapters.sql.postgresql.connection import Connection
from memory.adapters.sql.postgresql.schema import parameter_of
from memory.adapters.sql.postgresql.table import PgTable
from memory.adapters.sql.server.store import AuditPage
from memory.ports import lexical
from memory.ports.rows import CORRUPT, RECORD


async def audit_rows(
    connection: Connection, table: PgTable, after: tuple[str, str] | None, repair: bool
) -> AuditPage:
    """Check a page of rows, by key.

    Each row must have the words, counts and sizes of its content; a row without content
    has none. Only rows that still have the checksum that was read are checked, since a
    writer has changed the others.
    """
    behind = "" if after is None else "WHERE (t.id, t.tenant) > ($2, $3) "
    page = f"SELECT {table.chosen} FROM {table.qualified} AS t {behind}ORDER BY t.id, t.tenant LIMIT $1"  # noqa: S608
    rows = await connection.fetch(page, table.thresholds.audited_at_once, *(after or ()))
    if not rows:
        return AuditPage()
    expected = [(row, derived) for row in rows if (derived := _derived_values(table, row)) is not None]
    names = [name for name in table.derived if name != "partition_no"]
    kinds = {name: parameter_of(table.table.c[name].type) for name in names}
    values = [[derived[name] for _, derived in expected] for name in names]
    arrays = ", ".join([f"${4 + i}::{kinds[name][0]}[]" for i, name in enumerate(names)])
    told = {name: f"r.{name}::{to}" if to else f"r.{name}" for name, (_, to) in kinds.items()}
    source = (
        f"unnest($1::text[], $2::uuid[], $3::bigint[], {arrays}) AS r(tenant, id, checksum,"
        f" {', '.join(names)})"
    )
    different = " OR ".join([f"t.{name} IS DISTINCT FROM {told[name]}" for name in names])
    which = f"t.tenant = r.tenant AND t.id = r.id AND t.{table.checksum} = r.checksum AND ({different})"
    if repair:
        changes = ", ".join([f"{name} = {told[name]}" for name in names])
        sql = f"UPDATE {table.qualified} AS t SET {changes} FROM {source} WHERE {which} RETURNING t.tenant, t.id"  # noqa: S608
    else:
        sql = f"SELECT t.tenant, t.id FROM {table.qualified} AS t JOIN {source} ON {which}"  # noqa: S608
    keys = [[row[name] for row, _ in expected] for name in ("tenant", "id", table.checksum)]
    wrong = await connection.fetch(sql, *keys, *values)
    problems = [
        f"{table.name}: the words of {record_id} are not those of its texts" for _, record_id in wrong
    ]
    return AuditPage(len(rows), problems, (rows[-1]["id"], rows[-1]["tenant"]))


def _derived_values(table: PgTable, columns: Any) -> dict[str, Any] | None:
    """Return the derived values that a row must have, by column.

    Returns None for an unreadable row: the next read of the row handles it.
    """
    row, problem = table.read_row(columns)
    if problem and row.type != CORRUPT:
        return None
    texts = row.type == RECORD and table.collection.texts
    row = row._replace(words=lexical.index(table.collection, row.texts) if texts else None)
    return dict(
        zip(table.derived, table.parameters(row, columns[-1])[len(table.codec.columns) :], strict=False)
    )


async def audit_registries(connection: Connection, table: PgTable, repair: bool) -> AuditPage:
    """Check the tables of partitions and of quarantined rows.

    Every partition with records must be registered, and every copy of an unreadable row
    must have a row that is marked as corrupt.
    """
    partitions, quarantine = table.partitions, table.quarantine_table
    lost = (
        f"SELECT t.partition_no, t.tenant, t.scope, max(t.generation) FROM {table.qualified} AS t WHERE t.partition_no IS NOT NULL "  # noqa: S608
        f"AND NOT EXISTS (SELECT FROM {partitions} AS p WHERE p.number = t.partition_no AND p.tenant ="
        " t.tenant AND p.scope = t.scope) "
        "GROUP BY 1, 2, 3"
    )
    alone = (
        f"FROM {quarantine} AS q WHERE q.collection = '{table.name}' AND NOT EXISTS (SELECT FROM"
        f" {table.qualified} AS t WHERE t.tenant = q.tenant AND t.id = q.id AND t.row_type = '{CORRUPT}')"
    )
    problems = [
        f"{table.name}: partition {number} has records and is not registered"
        for number, *_ in await connection.fetch(lost)
    ]
    if (copies := await connection.fetchval(f"SELECT count(*) {alone}")) > 0:
        problems.append(f"{table.name}: {copies} copies of unreadable rows are kept though the rows are gone")
    if repair and problems:
        await connection.execute(
            f"INSERT INTO {partitions} (number, tenant, scope, generation) {lost} ON CONFLICT DO NOTHING"
        )
        await connection.execute(f"DELETE {alone}")
    return AuditPage(0, problems)
