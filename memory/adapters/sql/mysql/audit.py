"""The audit of data derived from records.

Each posting of an indexed record is in its segment, once, and no others are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memory.adapters.sql.mysql.connection import Connection
from memory.adapters.sql.mysql.table import DERIVED, NUMBER, PARTITION, MyTable
from memory.adapters.sql.mysql.words import Digests, digests, length_and_counts
from memory.adapters.sql.server.store import AuditPage
from memory.adapters.sql.several import in_list, pad_to_power_of_two, portions
from memory.adapters.sql.table import Columns
from memory.ports.rows import CORRUPT


async def audit_rows(connection: Connection, table: MyTable, after: int | None, repair: bool) -> AuditPage:
    """Audit a page of rows, by number.

    Lengths and sizes must be those of the content. `owing` must say whether a step is
    pending. An indexed record's words must be in its segment. The repair makes a
    differing row wait to be indexed again.

    Only rows with the same checksum are judged: a row that changed since it was read is
    as its writer left it.
    """
    columns = ", ".join([f"`{c}`" for c in (*table.columns, *DERIVED)])
    page = f"SELECT {columns} FROM {table.quoted} WHERE number > ? ORDER BY number LIMIT {table.thresholds.audited_at_once}"  # noqa: S608
    found = await connection.fetch(page, -1 if after is None else after)
    if not found:
        return AuditPage()
    size, at = len(table.columns), len(table.columns) + NUMBER
    wrong: dict[int, Any] = {}
    indexed: dict[tuple[int, int], dict[int, Digests]] = {}
    for row in found:
        derived = table.derived_values(row[:size])
        if derived is None:  # the next read handles it
            continue
        segment = row[-1]
        if derived[:-1] != tuple(row[size:-1]) or (segment is None) != (derived[-1] is None):
            wrong[row[at]] = row
        elif segment:
            indexed.setdefault((segment, row[size + PARTITION]), {})[row[at]] = digests(
                length_and_counts(derived[0])[1]
            )
    rows = {row[at]: row for row in found}
    for (segment, partition), records in indexed.items():
        assert table.words is not None  # noqa: S101 - its collection has texts
        for number in await table.words.find_differing(connection, segment, partition, records):
            wrong[number] = rows[number]
    problems = []
    for _, row in sorted(wrong.items()):
        if await _still_differs(connection, table, row[:size], row[-1], repair):
            problems.append(
                f"{table.name}: the words of {table.codec.key(row).id} are not those of its texts, or what is"
                " counted of it is wrong"
            )
    return AuditPage(len(found), problems, found[-1][at])


async def _still_differs(
    connection: Connection, table: MyTable, columns: Columns, segment: int | None, repair: bool
) -> bool:
    """Whether the row still exists, indexed where it was when it was read.

    With `repair` its derived data is rebuilt.
    """
    await connection.begin()
    found = await connection.fetchrow(
        f"SELECT {table.checksum}, lexemes FROM {table.quoted} WHERE number = ? FOR UPDATE",  # noqa: S608
        columns[NUMBER],
    )
    same = found is not None and tuple(found) == (table.checksum_of(columns), segment)
    if same and repair:
        await table.derive_anew(connection, columns)
    await connection.commit()
    return same


async def audit_words(
    connection: Connection, table: MyTable, after: Sequence[int] | None, repair: bool
) -> AuditPage:
    """Audit a page of the table of words, by place.

    Every posting must be of a live record that names this segment of its partition.
    """
    if table.words is None:
        return AuditPage()
    found = await table.words.page(connection, after or (-1, -1, -1, -1), table.thresholds.audited_at_once)
    if not found:
        return AuditPage()
    numbers = sorted({number for _, held in found for number in held})
    places: dict[int, tuple[int | None, int | None]] = {}
    for some in portions(numbers, table.thresholds.listed):
        wanted = pad_to_power_of_two(some)
        sql = (
            f"SELECT number, partition_no, lexemes FROM {table.quoted} WHERE number IN {in_list(len(wanted))}"  # noqa: S608
        )
        places |= {
            number: (partition, segment)
            for number, partition, segment in await connection.fetch(sql, *wanted)
        }
    strangers: dict[tuple[int, int], set[int]] = {}
    for (partition, _, segment, _), held in found:
        for number in held:
            if places.get(number) != (partition, segment):
                strangers.setdefault((partition, segment), set()).add(number)
    problems: list[str] = []
    for (partition, segment), these in sorted(strangers.items()):
        gone = await _strangers(connection, table, partition, segment, these, repair)
        problems += [
            f"{table.name}: words of row {number}, which is gone or indexed elsewhere, are in segment"
            f" {segment}"
            for number in sorted(gone)
        ]
    return AuditPage(0, problems, found[-1][0])


async def _strangers(
    connection: Connection, table: MyTable, partition: int, segment: int, numbers: set[int], repair: bool
) -> set[int]:
    """Return those of these records whose postings there do not belong there.

    It locks the rows, and then takes the postings out, for good or not.
    """
    assert table.words is not None  # noqa: S101 - its collection has texts
    await connection.begin()
    for some in portions(sorted(numbers), table.thresholds.listed):
        wanted = pad_to_power_of_two(some)
        there = f"number IN {in_list(len(wanted))} AND partition_no = ? AND lexemes = ?"
        rows = await connection.fetch(
            f"SELECT number FROM {table.quoted} WHERE {there} FOR UPDATE",  # noqa: S608
            *wanted,
            partition,
            segment,
        )
        numbers = numbers - {number for (number,) in rows}
    gone = (
        await table.words.take_out_everywhere(connection, segment, partition, numbers) if numbers else set()
    )
    await (connection.commit() if repair else connection.rollback())
    return gone


async def audit_registries(connection: Connection, table: MyTable, repair: bool) -> AuditPage:
    """Check that every partition with records is registered.

    Every quarantined copy must have a row that says so.
    """
    lost = (
        f"SELECT t.partition_no, t.tenant, t.scope, MAX(t.generation) FROM {table.quoted} AS t WHERE t.partition_no IS NOT NULL "  # noqa: S608
        f"AND NOT EXISTS (SELECT 1 FROM `{table.names.partitions}` AS p "
        "WHERE p.number = t.partition_no AND p.tenant = t.tenant AND p.scope = t.scope) "
        "GROUP BY t.partition_no, t.tenant, t.scope"
    )
    alone = (
        f"SELECT q.tenant, q.id FROM `{table.names.quarantine}` AS q LEFT JOIN {table.quoted} AS t "  # noqa: S608
        f"ON t.tenant = q.tenant AND t.id = q.id AND t.row_type = '{CORRUPT}' "
        f"WHERE q.collection = '{table.name}' AND t.number IS NULL"
    )
    missing, copies = await connection.fetch(lost), await connection.fetch(alone)
    problems = [
        f"{table.name}: partition {number} has records and is not registered" for number, *_ in missing
    ]
    if copies:
        problems.append(
            f"{table.name}: {len(copies)} copies of unreadable rows are kept though the rows are gone"
        )
    if repair:
        add = f"INSERT IGNORE INTO `{table.names.partitions}` (number, tenant, scope, generation) VALUES (?, ?, ?, ?)"  # noqa: S608
        drop = f"DELETE FROM `{table.names.quarantine}` WHERE collection = ? AND tenant = ? AND id = ?"  # noqa: S608
        for partition in missing:
            await connection.change(add, *partition)
        for key in copies:
            await connection.change(drop, table.name, *key)
    return AuditPage(0, problems)
