"""What is derived from records, compared with them: each indexed record's postings stand in its segment, once each, and no others do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memory.adapters.sql.mysql.connection import Connection
from memory.adapters.sql.mysql.rows import ID, NUMBER, PARTITION, Row
from memory.adapters.sql.mysql.several import in_list, padded, portions
from memory.adapters.sql.mysql.shelf import MyShelf
from memory.adapters.sql.server.store import Audited
from memory.adapters.sql.values import CORRUPT
from memory.ports.record import Corrupt


async def audit_rows(connection: Connection, shelf: MyShelf, after: int | None, repair: bool) -> Audited:
    """A page of rows, by number: the lengths and sizes are those of the content, `owing` says whether something is owed, and an indexed record's
    words are in its segment. What differs is mended by having the row wait to be indexed again.

    What changed since it was read is as its writer left it: only rows with the same checksum are judged.
    """
    columns = ", ".join([f"`{c}`" for c in (*shelf.layout.columns, "words", "bytes", "owing", "lexemes")])
    page = f"SELECT {columns} FROM `{shelf.name}` WHERE number > ? ORDER BY number LIMIT {shelf.thresholds.audited_at_once}"  # noqa: S608
    found = await connection.fetch(page, -1 if after is None else after)
    if not found:
        return Audited()
    wrong: dict[int, Any] = {}
    indexed: dict[tuple[int, int], dict[int, Mapping[str, int]]] = {}
    for row in found:
        size = len(shelf.layout.columns)
        derived = _derived(shelf, row[:size])
        if derived is None:
            continue
        beside, counts = derived
        segment = row[-1]
        if beside != tuple(row[size:-1]) or (segment is not None) != bool(counts):
            wrong[row[NUMBER]] = row
        elif segment and counts:
            indexed.setdefault((segment, row[PARTITION]), {})[row[NUMBER]] = counts
    rows = {row[NUMBER]: row for row in found}
    for (segment, partition), records in indexed.items():
        assert shelf.words is not None  # noqa: S101 - its collection has texts
        for number in await shelf.words.differing(connection, segment, partition, records):
            wrong[number] = rows[number]
    problems = []
    for _, row in sorted(wrong.items()):
        if await _still_differs(connection, shelf, row, repair):
            problems.append(f"{shelf.name}: the words of {shelf.shown(row[ID])} are not those of its texts, or what is counted of it is wrong")
    return Audited(len(found), problems, found[-1][NUMBER])


def _derived(shelf: MyShelf, row: Row) -> tuple[tuple[int, int, int | None], Mapping[str, int]] | None:
    """What is to stand beside this row, and the counts of its words; None for one that cannot be read, which is its reader's business."""
    stored = shelf.layout.read(row)
    if isinstance(stored, Corrupt) and not shelf.is_aside(row):
        return None
    content = shelf.layout.anew(stored, row)
    words, size, owing, _ = shelf.layout.sealed(content, row[NUMBER], 0)[-4:]
    return (words, size, owing), content.counts


async def _still_differs(connection: Connection, shelf: MyShelf, row: Row, repair: bool) -> bool:
    """Whether the row still stands, indexed where it was when it was read. With `repair` what is derived from it is made anew."""
    await connection.begin()
    found = await connection.fetchrow(f"SELECT {shelf.columns[-1]}, lexemes FROM `{shelf.name}` WHERE number = ? FOR UPDATE", row[NUMBER])  # noqa: S608
    size = len(shelf.layout.columns)
    same = found is not None and tuple(found) == (row[size - 1], row[-1])
    if same and repair:
        await shelf.derive_anew(connection, row[:size])
    await connection.commit()
    return same


async def audit_words(connection: Connection, shelf: MyShelf, after: Sequence[int] | None, repair: bool) -> Audited:
    """Rows of the table of words, by place: every posting is one of a live record that says its words are in this segment of its partition."""
    if shelf.words is None:
        return Audited()
    found = await shelf.words.page(connection, after or (-1, -1, -1, -1), shelf.thresholds.audited_at_once)
    if not found:
        return Audited()
    numbers = sorted({number for _, held in found for number in held})
    places: dict[int, tuple[int | None, int | None]] = {}
    for some in portions(numbers, shelf.thresholds.listed):
        wanted = padded(some)
        sql = f"SELECT number, partition_no, lexemes FROM `{shelf.name}` WHERE number IN {in_list(len(wanted))}"  # noqa: S608
        places |= {number: (partition, segment) for number, partition, segment in await connection.fetch(sql, *wanted)}
    strangers: dict[tuple[int, int], set[int]] = {}
    for (partition, _, segment, _), held in found:
        for number in held:
            if places.get(number) != (partition, segment):
                strangers.setdefault((partition, segment), set()).add(number)
    problems: list[str] = []
    for (partition, segment), these in sorted(strangers.items()):
        gone = await _strangers(connection, shelf, partition, segment, these, repair)
        problems += [f"{shelf.name}: words of row {number}, which is gone or indexed elsewhere, are in segment {segment}" for number in sorted(gone)]
    return Audited(0, problems, found[-1][0])


async def _strangers(connection: Connection, shelf: MyShelf, partition: int, segment: int, numbers: set[int], repair: bool) -> set[int]:
    """Those of these records that have postings there and do not belong there. Rows are locked, then the postings taken out, for good or not."""
    assert shelf.words is not None  # noqa: S101 - its collection has texts
    await connection.begin()
    for some in portions(sorted(numbers), shelf.thresholds.listed):
        wanted = padded(some)
        there = f"number IN {in_list(len(wanted))} AND partition_no = ? AND lexemes = ?"
        rows = await connection.fetch(f"SELECT number FROM `{shelf.name}` WHERE {there} FOR UPDATE", *wanted, partition, segment)  # noqa: S608
        numbers = numbers - {number for (number,) in rows}
    gone = await shelf.words.take_out_everywhere(connection, segment, partition, numbers) if numbers else set()
    await (connection.commit() if repair else connection.rollback())
    return gone


async def audit_registries(connection: Connection, shelf: MyShelf, repair: bool) -> Audited:
    """Every partition with records is registered, and every copy of what could not be read has a row that says so."""
    lost = (
        f"SELECT t.partition_no, t.tenant, t.scope, MAX(t.generation) FROM `{shelf.name}` AS t WHERE t.partition_no IS NOT NULL "  # noqa: S608
        "AND NOT EXISTS (SELECT 1 FROM memory_partitions AS p WHERE p.number = t.partition_no AND p.tenant = t.tenant AND p.scope = t.scope) "
        "GROUP BY t.partition_no, t.tenant, t.scope"
    )
    alone = (
        f"SELECT q.number FROM memory_quarantine AS q LEFT JOIN `{shelf.name}` AS t ON t.number = q.number AND t.record_kind = '{CORRUPT}' "  # noqa: S608
        f"WHERE q.collection = '{shelf.name}' AND t.number IS NULL"
    )
    missing, copies = await connection.fetch(lost), await connection.fetch(alone)
    problems = [f"{shelf.name}: partition {number} has records and is not registered" for number, *_ in missing]
    if copies:
        problems.append(f"{shelf.name}: {len(copies)} copies of unreadable rows are kept though the rows are gone")
    if repair:
        for partition in missing:
            await connection.change("INSERT IGNORE INTO memory_partitions (number, tenant, scope, generation) VALUES (?, ?, ?, ?)", *partition)
        for (number,) in copies:
            await connection.change("DELETE FROM memory_quarantine WHERE collection = ? AND number = ?", shelf.name, number)
    return Audited(0, problems)
