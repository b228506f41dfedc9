"""Finds candidates in three statements: postings, best rows, and rows around them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from memory.adapters.sql.columns import column_of
from memory.adapters.sql.mysql.connection import Connection
from memory.adapters.sql.mysql.partitions import MyDirectory
from memory.adapters.sql.mysql.search import RowReader, best_of, find
from memory.adapters.sql.mysql.table import MyTable
from memory.adapters.sql.questions import question
from memory.adapters.sql.selection import Selection
from memory.adapters.sql.server.candidates import nearest
from memory.adapters.sql.several import portions
from memory.adapters.sql.shapes import Shape, Values
from memory.ports import lexical
from memory.ports.candidate_scan import head_fields, measure_heads, neighbours, place_of
from memory.ports.candidates import CandidateColumns, Candidates, Neighbourhood, Statistics, none_of
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import RECORDS, Head, Tenant
from memory.ports.text import query_words

LONG_PLACE = 512
"""The most characters of a group that the servers look up by an index."""


async def candidates(
    connection: Connection, table: MyTable, directory: MyDirectory, wanted: Candidates, most_waiting: int
) -> CandidateColumns:
    """Find candidates.

    Raises:
        IndexBacklog: More than `most_waiting` records are not indexed yet.
    """
    numbers = await directory.numbers(connection, wanted.where)
    if not numbers:
        return await measure_heads(wanted, (), none_of(wanted))
    sought = [lexical.token(stem) for stem in query_words(wanted.text)] if table.collection.texts else []
    counted = {stem: lexical.token(stem) for stem in wanted.counted} if wanted.statistics else {}
    there, selection = (
        RowReader(connection, table, wanted, frozenset(numbers)),
        table.selection(head_fields(wanted)),
    )
    statistics, named = none_of(wanted), list(wanted.among)
    if wanted.near is not None and table.collection.vector:
        named += await nearest(connection, table, wanted, () if isinstance(wanted.where, Tenant) else numbers)
    found = await find(
        connection,
        table,
        numbers if sought or wanted.statistics else (),
        [*{*sought, *counted.values()}],
        wanted.roles,
        most_waiting,
    )
    if wanted.statistics:
        statistics = Statistics(
            found.documents,
            found.total,
            {stem: found.document_frequency(token) for stem, token in counted.items()},
        )
    best, those = await best_of(
        there,
        await found.score(table.collection, sought),
        wanted.limit,
        selection,
        list(dict.fromkeys(named)),
    )
    heads = {head.key.id: head for head in [*[head for head, _ in best], *those]}
    if wanted.around is not None:
        heads |= {
            head.key.id: head for head in await _beside(there, heads.values(), wanted.around, selection)
        }
    return await measure_heads(wanted, list(heads.values()), statistics)


async def _beside(
    there: RowReader, heads: Iterable[Head], around: Neighbourhood, selection: Selection
) -> list[Head]:
    """Return the rows next to these rows, and not these themselves."""
    wanted = neighbours(heads, around)
    places = sorted({(group, str(number)) for _, group, number in wanted})
    read: list[Head | None] = []
    for some in portions(places, there.table.thresholds.listed):
        values: Values = [json.dumps(some, separators=(",", ":")), there.tenant]
        chosen = there.table.shaper.filter(there.asked.filter, values)
        long = max([len(group) for group, _ in some]) > LONG_PLACE
        asking = question(
            there.table,
            _places,
            (selection.columns, around.group, around.number, long, there.asked.roles, chosen),
            values,
        )
        rows = await there.connection.fetch(asking.sql, *asking.arguments)
        read += [
            selection.read(dict(zip(selection.columns, row[1:], strict=True)))
            async for row in iterate_cooperatively(rows)
            if row[0] in there.partitions
        ]
    return [
        head for head in read if head is not None and place_of(head, around) in wanted
    ]  # several scopes may have the same place


def _places(table: Any, shape: Shape) -> sa.Select[Any]:
    columns, group, number, long, roles, chosen = shape
    conditions = table.conditions()
    c, wanted = table.table.c, conditions.value("s")
    text = (
        f"{'LONGTEXT' if long else f'VARCHAR({LONG_PLACE})'} CHARACTER SET utf8mb4 COLLATE"
        f" {c.body.type.collation}"
    )
    places = (
        f"JSON_TABLE(:{wanted.key}, '$[*]' COLUMNS (place {text} PATH '$[0]', number VARCHAR(24) PATH"
        " '$[1]')) AS wanted"
    )
    here = [c.tenant == conditions.value("s"), c[column_of(group)] == sa.literal_column("wanted.place")]
    here.append(c[column_of(number)] == sa.literal_column("CAST(wanted.number AS SIGNED)"))
    asked = [*here, conditions.roles_and_types(roles, RECORDS), conditions.filter(chosen)]
    chosen_columns = [c.partition_no.label("row_partition"), *[c[name] for name in columns]]
    statement = sa.select(*chosen_columns).select_from(sa.text(places).bindparams(wanted)).where(*asked)
    return statement.prefix_with("STRAIGHT_JOIN")  # place by place
