"""Statements made of what a caller asks, prepared once a shape; see `memory.adapters.sql.prepared`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import array
from sqlalchemy.dialects.postgresql.asyncpg import dialect as asyncpg_dialect

from memory.adapters.sql.postgresql.asking import PgConditions
from memory.adapters.sql.postgresql.shelf import Shelf
from memory.adapters.sql.prepared import Statement, compiled, kept
from memory.adapters.sql.shapes import TRUE, Shape, Values, names, scope
from memory.ports.query import Everywhere, Filter, Kind, Query, Search, Where, decode_cursor

_DIALECT: sa.Dialect = asyncpg_dialect()  # type: ignore[no-untyped-call]
_RECORDS = frozenset({Kind.RECORD})

Build = Callable[[Shelf, Shape], sa.Select[Any]]


@dataclass(frozen=True, slots=True)
class Question:
    """A statement and its values."""

    sql: str
    arguments: Values


def _question(shelf: Shelf, build: Build, shape: Shape, values: Values) -> Question:
    statement: Statement = kept(shelf.prepared, (build, shape), lambda: compiled(_DIALECT, build(shelf, shape), len(values)))
    return Question(statement.sql, statement.arguments(values))


def _asked(shelf: Shelf, where: Where, part: Filter | None, partitions: Sequence[int], walking: bool = False) -> tuple[Values, Shape, Shape]:
    """The values, and the shapes of where and what is asked for. `walking` is through a partition in order, whatever the filter."""
    of_filter: Values = []
    chosen = shelf.shaper.filter(part, of_filter)
    values: Values = []
    there = scope(where, partitions, values, tenant=not walking and names(chosen, shelf.keyed))
    return shelf.shaper.texts(values) + of_filter, there, chosen


class _Vector(sa.types.UserDefinedType[bytes]):
    """pgvector's type, wherever the extension is."""

    cache_ok = True
    render_bind_cast = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: Any) -> str:
        return self.name


class _Near(PgConditions):
    """Conditions of a search by meaning."""

    def __init__(self, shelf: Shelf) -> None:
        super().__init__(shelf.table, shelf.keyed)
        self.types = {**PgConditions.types, "v": _Vector(shelf.vector_type)}  # type: ignore[misc]


# -- queries ----------------------------------------------------------------------------------------------------------


def page(shelf: Shelf, query: Query, partitions: Sequence[int], limit: int | None) -> Question:
    """The rows of a page in order, each with whether there are any set aside behind it."""
    values, where, chosen = _asked(shelf, query.where, query.filter, partitions, walking=limit is not None)
    after = TRUE if query.cursor is None else shelf.shaper.after(query.order, decode_cursor(query.cursor, query.order), values)
    if limit is not None:
        values.append(limit)
    return _question(shelf, _page, (where, query.roles, query.kinds, chosen, after, query.order, limit is not None), values)


def _page(shelf: Shelf, shape: Shape) -> sa.Select[Any]:
    where, roles, kinds, chosen, after, order, limited = shape
    conditions = PgConditions(shelf.table, shelf.keyed)
    asked = [conditions.scope(where), conditions.standing(roles, kinds), conditions.filter(chosen)]
    if after != TRUE:
        asked.append(conditions.after(after))
    ordering = conditions.ordering(order, tenants=where == scope(Everywhere(), (), []))
    statement = sa.select(*shelf.row_columns, sa.literal_column(shelf.any_aside)).where(*asked).order_by(*ordering)
    return statement.limit(conditions.value("i")) if limited else statement


def totals(shelf: Shelf, query: Query, partitions: Sequence[int]) -> Question:
    """How many records match, and their bytes."""
    values, where, chosen = _asked(shelf, query.where, query.filter, partitions)
    return _question(shelf, _totals, (where, query.roles, query.kinds, chosen), values)


def _totals(shelf: Shelf, shape: Shape) -> sa.Select[Any]:
    where, roles, kinds, chosen = shape
    conditions = PgConditions(shelf.table, shelf.keyed)
    asked = [conditions.scope(where), conditions.standing(roles, kinds), conditions.filter(chosen)]
    size = sa.cast(sa.func.coalesce(sa.func.sum(shelf.table.c.bytes), sa.literal_column("0")), sa.BigInteger())
    columns: list[sa.ColumnElement[Any]] = [sa.func.count(), size]
    return sa.select(*columns).select_from(shelf.table).where(*asked)


def matches(shelf: Shelf, query: Query, partitions: Sequence[int]) -> Question:
    """Every live row there, locked, each with whether the query matches it."""
    values, where, chosen = _asked(shelf, query.where, query.filter, partitions)
    return _question(shelf, _matches, (where, query.roles, query.kinds, chosen), values)


def _matches(shelf: Shelf, shape: Shape) -> sa.Select[Any]:
    where, roles, kinds, chosen = shape
    conditions = PgConditions(shelf.table, shelf.keyed)
    somewhere = conditions.scope(where)
    wanted = sa.and_(conditions.standing(roles, kinds), conditions.filter(chosen))
    return sa.select(*shelf.row_columns, wanted).where(somewhere, shelf.table.c.partition_no.is_not(None)).with_for_update()


# -- searches ---------------------------------------------------------------------------------------------------------

FEW_STEMS = 16
"""Up to so many words are looked up in each record found; of more, each record's words are gone through."""


def found(shelf: Shelf, search: Search, partitions: Sequence[int], lexemes: str) -> Question:
    """Every record that holds a word: its tenant, id, number of words, packed counts, whether the filter lets it through, and beside each
    how many records there are of the asked roles, and how many words these hold.
    """
    values, where, chosen = _asked(shelf, search.where, search.filter, partitions, walking=True)
    order = len(values)
    values.append(lexemes)
    return _question(shelf, _found, (where, search.roles, chosen, bool(lexemes), order), values)


def _found(shelf: Shelf, shape: Shape) -> sa.Select[Any]:
    where, roles, chosen, indexed, _ = shape
    conditions = PgConditions(shelf.table, shelf.keyed)
    c = shelf.table.c
    somewhere = [conditions.scope(where), conditions.standing(roles, _RECORDS)]
    passes = conditions.filter(chosen)
    words = sa.cast(sa.func.coalesce(sa.func.sum(c.words), sa.literal_column("0")), sa.BigInteger())
    asked = sa.select(array([sa.func.count(), words])).select_from(shelf.table).where(*somewhere).correlate(None).scalar_subquery()
    sought = sa.func.websearch_to_tsquery(sa.literal_column("'pg_catalog.simple'::regconfig"), conditions.value("s"))
    somewhere.append(c.lexemes.bool_op("@@")(sought) if indexed else c.lexemes.is_not(None))
    return sa.select(c.tenant, c.id, c.words, c.counts, passes.label("passes"), asked.label("asked")).where(*somewhere)


def postings(shelf: Shelf, search: Search, partitions: Sequence[int], lexemes: str, stems: Sequence[str]) -> Question:
    """One row of arrays: the records found by words, and for each word in each of them its packed counts."""
    inner = found(shelf, search, partitions, lexemes)
    number = len(inner.arguments) + 1
    few = len(stems) <= FEW_STEMS
    key = ("postings", inner.sql, few)
    statement = kept(shelf.prepared, key, lambda: Statement(_postings(inner.sql, number, few), (), None))
    return Question(statement.sql, [*inner.arguments, list(stems)])


def _postings(inner: str, number: int, few: bool) -> str:
    words = f"unnest(${number}::text[]) WITH ORDINALITY AS s(stem, stem_no)"
    looked_up = f"(f.counts ->> s.stem)::bigint AS packed FROM found AS f CROSS JOIN {words} WHERE f.counts ? s.stem"
    gone_through = f"e.value::bigint AS packed FROM found AS f CROSS JOIN jsonb_each_text(f.counts) AS e JOIN {words} ON s.stem = e.key"
    counted = f"SELECT f.n, s.stem_no, {looked_up if few else gone_through}"
    return (
        f"WITH found AS MATERIALIZED (SELECT row_number() OVER () AS n, i.* FROM ({inner}) AS i), counted AS MATERIALIZED ({counted}) "  # noqa: S608
        "SELECT array_agg(f.tenant ORDER BY f.n), array_agg(f.id ORDER BY f.n), array_agg(f.words ORDER BY f.n), array_agg(f.passes ORDER BY f.n), "
        "(SELECT array_agg(c.n) FROM counted AS c), (SELECT array_agg(c.stem_no) FROM counted AS c), "
        "(SELECT array_agg(c.packed) FROM counted AS c), max(f.asked) FROM found AS f"
    )


def among(shelf: Shelf, search: Search, tenant: str, ids: Sequence[str]) -> Question:
    """The live rows of these ids, in the asked roles, that the filter lets through: whole, or their headers."""
    values: Values = [tenant, list(ids)]
    chosen = shelf.shaper.filter(search.filter, values)
    return _question(shelf, _among, (search.whole, search.roles, chosen), values)


def _among(shelf: Shelf, shape: Shape) -> sa.Select[Any]:
    whole, roles, chosen = shape
    conditions = PgConditions(shelf.table)
    c = shelf.table.c
    these = [c.tenant == conditions.value("s"), c.id == sa.any_(conditions.value("a"))]
    columns = shelf.row_columns if whole else shelf.header_columns
    return sa.select(*columns).where(*these, conditions.standing(roles, _RECORDS), conditions.filter(chosen))


def nearest(shelf: Shelf, search: Search, partitions: Sequence[int], unit: bytes) -> Question:
    """The nearest records, each with its vector and distance: every vector of that length there is compared, so that narrow filters lose nothing."""
    values, where, chosen = _asked(shelf, search.where, search.filter, partitions, walking=True)
    values += (len(unit), unit, search.limit)
    return _question(shelf, _nearest, (where, search.roles, chosen, search.whole), values)


def _nearest(shelf: Shelf, shape: Shape) -> sa.Select[Any]:
    where, roles, chosen, whole = shape
    conditions = _Near(shelf)
    c = shelf.table.c
    asked = [conditions.scope(where), conditions.standing(roles, _RECORDS), conditions.filter(chosen)]
    asked.append(sa.func.octet_length(c.vector) == conditions.value("i"))
    embedding = sa.literal_column(f'{shelf.qualified}."embedding"', _Vector(shelf.vector_type))
    namespace = shelf.vector_type.rpartition(".")[0]
    distance: sa.ColumnElement[float] = embedding.op(f"OPERATOR({namespace}.<=>)", return_type=sa.Double())(conditions.value("v"))
    asked.append(embedding.is_not(None))
    columns = shelf.row_columns if whole else shelf.header_columns
    return (
        sa.select(*columns, c.vector.label("exactly"), distance.label("distance"))
        .where(*asked)
        .order_by(sa.literal_column("distance"), c.id)
        .limit(conditions.value("i"))
    )
