"""Finds candidates in two statements: the search, and the rows found and around."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from memory.adapters.sql.columns import column_of
from memory.adapters.sql.postgresql.codec import escape
from memory.adapters.sql.postgresql.connection import Connection
from memory.adapters.sql.postgresql.filters import PgConditions
from memory.adapters.sql.postgresql.partitions import PgDirectory
from memory.adapters.sql.postgresql.schema import indexed_part
from memory.adapters.sql.postgresql.search import SearchSpec, find, live
from memory.adapters.sql.postgresql.table import PgTable
from memory.adapters.sql.questions import Question, question, values_and_shapes
from memory.adapters.sql.server.candidates import laid_out, nearest, selection_for
from memory.adapters.sql.shapes import Shape
from memory.ports.candidates import CandidateColumns, Candidates, Statistics, none_of
from memory.ports.query import Everywhere, Tenant
from memory.ports.text import query_words


async def candidates(
    connection: Connection, table: PgTable, directory: PgDirectory, wanted: Candidates
) -> CandidateColumns:
    numbers = await directory.numbers(connection, wanted.where)
    if not numbers:
        return await laid_out(table, wanted, (), none_of(wanted))
    partitions = () if isinstance(wanted.where, Tenant) else numbers
    sought = query_words(wanted.text) if table.collection.texts else []
    stems = list(dict.fromkeys([*sought, *(wanted.counted if wanted.statistics else ())]))
    ids, statistics = list(wanted.among), none_of(wanted)
    if stems or wanted.near is not None or wanted.statistics:
        near = wanted.near if table.embeds else None
        found = await find(
            connection,
            table,
            SearchSpec(
                wanted.where, wanted.roles, wanted.filter, numbers, partitions, stems, near, wanted.limit
            ),
        )
        ids += [key.id for key, _ in found.best(table.collection, len(sought), wanted.limit)[: wanted.limit]]
        ids += map(str, found.nearest)
        if wanted.statistics:
            holding = dict(zip(stems, found.document_frequencies(len(stems)), strict=True))
            statistics = Statistics(
                found.documents, found.total, {stem: holding[stem] for stem in wanted.counted}
            )
    if wanted.near is not None and table.collection.vector and not table.embeds:
        ids += await nearest(connection, table, wanted, partitions)
    if not ids:
        return await laid_out(table, wanted, (), statistics)
    asking = rows(table, wanted, partitions, list(dict.fromkeys(ids)))
    return await laid_out(table, wanted, await connection.fetch(asking.sql, *asking.arguments), statistics)


def rows(table: PgTable, wanted: Candidates, partitions: Sequence[int], ids: Sequence[str]) -> Question:
    """Return the query for the live rows of these ids and their neighbours.

    The rows have the requested roles and pass the filter.
    """
    assert not isinstance(wanted.where, Everywhere)  # noqa: S101 - a store refuses that
    values, where, chosen = values_and_shapes(table, wanted.where, wanted.filter, partitions, walking=True)
    values += (escape(wanted.where.tenant), ids)
    return question(
        table,
        _rows,
        (selection_for(table, wanted).columns, where, wanted.roles, chosen, wanted.around),
        values,
    )


def _rows(table: Any, shape: Shape) -> sa.Select[Any]:
    columns, where, roles, chosen, around = shape
    conditions = PgConditions(table.table)
    c = table.table.c
    there = conditions.scope(where).is_(
        sa.true()
    )  # a plain condition would make the server use its index, see `search.live`
    passing = [there, live(conditions, roles), conditions.filter(chosen)]
    of_tenant = c.tenant == conditions.value("s")
    these: sa.ColumnElement[Any] = conditions.value("uu")
    if around is not None:
        group, number = c[column_of(around.group)].label("place"), c[column_of(around.number)].label("number")
        found = (
            sa.select(c.id, c.tenant, c.partition_no, group, number)
            .where(of_tenant, c.id == sa.any_(these), *passing)
            .cte("found")
        )
        these = sa.func.array(sa.select(found.c.id).union(_beside(table, found, around)).scalar_subquery())
    return sa.select(*[c[name] for name in columns]).where(of_tenant, c.id == sa.any_(these), *passing)


def _beside(table: Any, found: sa.CTE, around: Any) -> sa.Select[Any]:
    """Return the ids of the rows around those found. Numbers have at most 64 bits."""
    n = table.table.alias("n")
    group, number = n.c[column_of(around.group)], n.c[column_of(around.number)]
    reach: sa.ColumnElement[int] = sa.literal_column(str(around.reach))
    first = sa.func.greatest(found.c.number, sa.literal_column(str(around.reach - 2**63))) - reach
    last = sa.func.least(found.c.number, sa.literal_column(str(2**63 - 1 - around.reach))) + reach
    same = [
        n.c.tenant == found.c.tenant,
        n.c.partition_no == found.c.partition_no,
        indexed_part(group) == indexed_part(found.c.place),
    ]
    return sa.select(n.c.id).where(
        *same, group == found.c.place, found.c.number.is_not(None), number.between(first, last)
    )
