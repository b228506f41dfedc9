"""Candidate search that all servers share.

It finds the nearest vectors without an index, and turns rows into columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from memory.adapters.sql.questions import question, values_and_shapes
from memory.adapters.sql.selection import Selection
from memory.adapters.sql.shapes import Shape
from memory.adapters.sql.table import Columns, Table
from memory.ports.candidate_scan import head_fields, measure_heads
from memory.ports.candidates import CandidateColumns, Candidates, Statistics
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import RECORDS
from memory.ports.vector_scan import exact_cosines


async def nearest(
    connection: Any, table: Table[Any], wanted: Candidates, partitions: Sequence[int]
) -> list[str]:
    """Return the ids of the nearest records by scanning all vectors there."""
    assert wanted.near is not None  # noqa: S101 - who asks has looked
    values, where, chosen = values_and_shapes(table, wanted.where, wanted.filter, partitions, walking=True)
    values.append(len(wanted.near))
    asking = question(table, _vectors, (where, wanted.roles, chosen), values)
    rows = await table.read(connection, asking.sql, asking.arguments)
    scored = zip(
        exact_cosines(wanted.near, [vector for _, vector in rows]),
        [table.shaper.field_value("id", i) for i, _ in rows],
        strict=True,
    )
    return [i for _, i in sorted(scored, key=lambda one: (-one[0], one[1]))[: wanted.limit]]


def _vectors(table: Table[Any], shape: Shape) -> sa.Select[Any]:
    where, roles, chosen = shape
    conditions = table.conditions()
    c = table.table.c
    passing = [
        conditions.scope(where),
        conditions.roles_and_types(roles, RECORDS),
        conditions.filter(chosen),
    ]
    return sa.select(c.id, c.vector).where(*passing, sa.func.octet_length(c.vector) == conditions.value("i"))


def selection_for(table: Table[Any], wanted: Candidates) -> Selection:
    """Return the parts to read of each row."""
    return table.selection(head_fields(replace(wanted, around=None)))


async def laid_out(
    table: Table[Any], wanted: Candidates, rows: Sequence[Columns], statistics: Statistics
) -> CandidateColumns:
    """Turn rows of the columns of `selection_for` into the answer."""
    selection = selection_for(table, wanted)
    heads = [
        selection.read(dict(zip(selection.columns, row, strict=True)))
        async for row in iterate_cooperatively(rows)
    ]
    return await measure_heads(wanted, [head for head in heads if head is not None], statistics)
