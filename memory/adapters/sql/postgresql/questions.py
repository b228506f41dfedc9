"""Statements of searches on PostgreSQL, prepared once a shape; those of queries are `memory.adapters.sql.server.questions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import array

from memory.adapters.sql.postgresql.asking import PgConditions
from memory.adapters.sql.postgresql.shelf import PgShelf
from memory.adapters.sql.postgresql.values import checked
from memory.adapters.sql.prepared import Statement, kept
from memory.adapters.sql.server.questions import Question, asked, question, summed
from memory.adapters.sql.shapes import Shape, Values
from memory.ports.query import RowType, Search

_RECORDS = frozenset({RowType.RECORD})


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

    def __init__(self, shelf: PgShelf) -> None:
        super().__init__(shelf.table, shelf.keyed)
        self.types = {**PgConditions.types, "v": _Vector(shelf.vector_type)}  # type: ignore[misc]


def found(shelf: PgShelf, search: Search, partitions: Sequence[int], lexemes: str) -> Question:
    """Every record that holds a word: its tenant, id, number of words, packed counts, whether the filter lets it through, and beside each
    how many records there are of the asked roles, and how many words these hold.
    """
    values, where, chosen = asked(shelf, search.where, search.filter, partitions, walking=True)
    order = len(values)
    values.append(lexemes)
    return question(shelf, _found, (where, search.roles, chosen, bool(lexemes), order), values)


def _found(shelf: Any, shape: Shape) -> sa.Select[Any]:
    where, roles, chosen, indexed, _ = shape
    conditions = shelf.conditions()
    c = shelf.table.c
    there = conditions.scope(where)
    somewhere = [there, conditions.standing(roles, _RECORDS)]
    passes = conditions.filter(chosen)
    counted = sa.select(array([sa.func.count(), summed(c.words)])).select_from(shelf.table).where(*somewhere).correlate(None).scalar_subquery()
    sought = sa.func.websearch_to_tsquery(sa.literal_column("'pg_catalog.simple'::regconfig"), conditions.value("s"))
    if indexed:
        # A lexeme names its partition. Asked for plainly, the partition would be looked up by itself, and its rows read one by one, for as long
        # as the server has not counted how many these are.
        somewhere[0] = there.is_(sa.true())
    somewhere.append(c.lexemes.bool_op("@@")(sought) if indexed else c.lexemes.is_not(None))
    return sa.select(c.tenant, c.id, c.words, c.counts, passes.label("passes"), counted.label("asked")).where(*somewhere)


def postings(shelf: PgShelf, search: Search, partitions: Sequence[int], lexemes: str, stems: Sequence[str]) -> Question:
    """One row of arrays: the records found by words, and for each word in each of them its packed counts."""
    inner = found(shelf, search, partitions, lexemes)
    number = len(inner.arguments) + 1
    few = len(stems) <= shelf.thresholds.stems_looked_up
    key = ("postings", inner.sql, few)
    statement = kept(shelf.prepared, shelf.thresholds.statements_kept, key, lambda: Statement(_postings(inner.sql, number, few), (), None))
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


def among(shelf: PgShelf, search: Search, tenant: str, ids: Sequence[str]) -> Question:
    """The live rows of these ids, in the asked roles, that the filter lets through: what their heads take."""
    values: Values = [checked(tenant), [checked(record_id) for record_id in ids]]
    chosen = shelf.shaper.filter(search.filter, values)
    return question(shelf, _among, (shelf.heads(search.select).columns, search.roles, chosen), values)


def _among(shelf: Any, shape: Shape) -> sa.Select[Any]:
    columns, roles, chosen = shape
    conditions = PgConditions(shelf.table)
    c = shelf.table.c
    these = [c.tenant == conditions.value("s"), c.id == sa.any_(conditions.value("a"))]
    return sa.select(*[c[name] for name in columns]).where(*these, conditions.standing(roles, _RECORDS), conditions.filter(chosen))


def nearest(shelf: PgShelf, search: Search, partitions: Sequence[int], unit: bytes) -> Question:
    """The nearest records, each with its vector and distance: every vector of that length there is compared, so that narrow filters lose nothing."""
    values, where, chosen = asked(shelf, search.where, search.filter, partitions, walking=True)
    values += (len(unit), unit, search.limit)
    return question(shelf, _nearest, (where, search.roles, chosen, shelf.heads(search.select).columns), values)


def _nearest(shelf: Any, shape: Shape) -> sa.Select[Any]:
    where, roles, chosen, columns = shape
    conditions = _Near(shelf)
    c = shelf.table.c
    asked = [conditions.scope(where), conditions.standing(roles, _RECORDS), conditions.filter(chosen)]
    asked.append(sa.func.octet_length(c.vector) == conditions.value("i"))
    embedding = sa.literal_column(f'{shelf.qualified}."embedding"', _Vector(shelf.vector_type))
    namespace = shelf.vector_type.rpartition(".")[0]
    distance: sa.ColumnElement[float] = embedding.op(f"OPERATOR({namespace}.<=>)", return_type=sa.Double())(conditions.value("v"))
    asked.append(embedding.is_not(None))
    return (
        sa.select(*[c[name] for name in columns], c.vector.label("exactly"), distance.label("distance"))
        .where(*asked)
        .order_by(sa.literal_column("distance"), c.id)
        .limit(conditions.value("i"))
    )
