"""What is derived from records, compared with them: the words of every row as its texts tell them, and the tables beside those of records.

Nothing else is kept that could differ: statistics are counted by every search, and indexes are the server's own.
"""

from __future__ import annotations

from typing import Any

from memory.adapters.sql.postgresql.connection import Connection
from memory.adapters.sql.postgresql.rows import GENERATION, ID, PARTITION, TENANT, Content
from memory.adapters.sql.postgresql.shelf import PgShelf
from memory.adapters.sql.server.store import Audited
from memory.adapters.sql.values import CORRUPT
from memory.ports.record import Corrupt, Key, Mark, Record, Stored


async def audit_rows(connection: Connection, shelf: PgShelf, after: tuple[str, str] | None, repair: bool) -> Audited:
    """A page of rows, by key: each has the words, counts and sizes that its content tells, and a row without content has none.

    What changed since it was read is as its writer left it: only rows with the same checksum are judged.
    """
    columns = ", ".join([f't."{name}"' for name in shelf.layout.columns])
    behind = "" if after is None else "WHERE (t.id, t.tenant) > ($2, $3) "
    page = f"SELECT {columns} FROM {shelf.qualified} AS t {behind}ORDER BY t.id, t.tenant LIMIT $1"  # noqa: S608
    rows = await connection.fetch(page, shelf.thresholds.audited_at_once, *(after or ()))
    if not rows:
        return Audited()
    expected = [(row, shelf.layout.sealed(content)) for row in rows if (content := _content(shelf, row)) is not None]
    names = [name for name in ("words", "bytes", "counts", "lexemes") if name in shelf.table.c]
    kinds = {"counts": ("text", "::jsonb"), "lexemes": ("text", "::tsvector")}
    at = len(shelf.layout.columns)
    values = [[derived[at + i] for _, derived in expected] for i in range(len(names))]
    arrays = ", ".join([f"${4 + i}::{kinds.get(name, ('bigint', ''))[0]}[]" for i, name in enumerate(names)])
    told = {name: f"r.{name}{kinds.get(name, ('', ''))[1]}" for name in names}
    source = f"unnest($1::text[], $2::text[], $3::bigint[], {arrays}) AS r(tenant, id, checksum, {', '.join(names)})"
    different = " OR ".join([f"t.{name} IS DISTINCT FROM {told[name]}" for name in names])
    which = f"t.tenant = r.tenant AND t.id = r.id AND t.{shelf.columns[-1]} = r.checksum AND ({different})"
    if repair:
        changes = ", ".join([f"{name} = {told[name]}" for name in names])
        sql = f"UPDATE {shelf.qualified} AS t SET {changes} FROM {source} WHERE {which} RETURNING t.tenant, t.id"  # noqa: S608
    else:
        sql = f"SELECT t.tenant, t.id FROM {shelf.qualified} AS t JOIN {source} ON {which}"  # noqa: S608
    keys = [[row[TENANT] for row, _ in expected], [row[ID] for row, _ in expected], [row[-1] for row, _ in expected]]
    wrong = await connection.fetch(sql, *keys, *values)
    problems = [f"{shelf.name}: the words of {shelf.shown(record_id)} are not those of its texts" for _, record_id in wrong]
    return Audited(len(rows), problems, (rows[-1][ID], rows[-1][TENANT]))


def _content(shelf: PgShelf, row: Any) -> Content | None:
    """The row as it is to be stored; None for one that cannot be read, which is its reader's business."""
    stored: Stored = shelf.layout.read(row)
    if isinstance(stored, Record):
        return shelf.layout.record(stored, row[PARTITION], row[GENERATION])
    if isinstance(stored, Corrupt):
        key = Key(stored.key.tenant, stored.key.id)
        return shelf.layout.corrupt(key, shelf.version(row)) if shelf.is_aside(row) else None
    return shelf.layout.mark(stored) if isinstance(stored, Mark) else shelf.layout.tombstone(stored)


async def audit_registries(connection: Connection, shelf: PgShelf, repair: bool) -> Audited:
    """Every partition with records is registered, and every copy of what could not be read has a row that says so."""
    partitions, quarantine = (f'"{shelf.schema}".{name}' for name in ("memory_partitions", "memory_quarantine"))
    lost = (
        f"SELECT t.partition_no, t.tenant, t.scope, max(t.generation) FROM {shelf.qualified} AS t WHERE t.partition_no IS NOT NULL "  # noqa: S608
        f"AND NOT EXISTS (SELECT FROM {partitions} AS p WHERE p.number = t.partition_no AND p.tenant = t.tenant AND p.scope = t.scope) "
        "GROUP BY 1, 2, 3"
    )
    alone = (
        f"FROM {quarantine} AS q WHERE q.collection = '{shelf.name}' AND NOT EXISTS (SELECT FROM {shelf.qualified} AS t "
        f"WHERE t.tenant = q.tenant AND t.id = q.id AND t.record_kind = '{CORRUPT}')"
    )
    problems = [f"{shelf.name}: partition {number} has records and is not registered" for number, *_ in await connection.fetch(lost)]
    if (copies := await connection.fetchval(f"SELECT count(*) {alone}")) > 0:
        problems.append(f"{shelf.name}: {copies} copies of unreadable rows are kept though the rows are gone")
    if repair and problems:
        await connection.execute(
            f"INSERT INTO {partitions} (number, tenant, scope, generation) OVERRIDING SYSTEM VALUE {lost} ON CONFLICT DO NOTHING"
        )
        await connection.execute(f"DELETE {alone}")
    return Audited(0, problems)
