"""Searches on PostgreSQL.

By words, the server finds and counts, and `memory.ports.text` ranks. By meaning, the
server ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import TSQUERY, array

from memory.adapters.sql.conditions import SqlCondition
from memory.adapters.sql.postgresql.codec import any_lexeme, escape, unescape
from memory.adapters.sql.postgresql.connection import Connection
from memory.adapters.sql.postgresql.filters import PgConditions
from memory.adapters.sql.postgresql.partitions import PgDirectory
from memory.adapters.sql.postgresql.table import PgTable
from memory.adapters.sql.questions import Question, question, sum_or_zero, values_and_shapes
from memory.adapters.sql.scoring import Candidates
from memory.adapters.sql.shapes import Shape, Values
from memory.adapters.sql.table import Columns
from memory.ports import lexical
from memory.ports.bm25 import Scores, norms, rarities, term_scores
from memory.ports.collections import Collection
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import RECORDS, Condition, Hit, Near, Search, Tenant, Where, Words
from memory.ports.record import Key, Role
from memory.ports.text import query_words
from memory.ports.vector_scan import exact_cosines

LOOKED_UP_AT_ONCE = 32
"""In how many partitions a word is looked up by one scan of the index."""


async def search(connection: Connection, table: PgTable, directory: PgDirectory, wanted: Search) -> list[Hit]:
    """Return the best hits, best first."""
    numbers = await directory.numbers(connection, wanted.where)
    if not numbers:
        return []
    asked = () if isinstance(wanted.where, Tenant) else numbers
    if isinstance(wanted.by, Near):
        return await _by_meaning(connection, table, wanted, wanted.by, asked) if table.embeds else []
    return await _by_words(connection, table, wanted, wanted.by, numbers, asked)


# -- by words --------------------------------------------------------------------------


async def _by_words(
    connection: Connection,
    table: PgTable,
    search: Search,
    by: Words,
    numbers: Sequence[int],
    asked: Sequence[int],
) -> list[Hit]:
    stems = query_words(by.text)
    if not stems or not table.collection.texts:
        return []
    found = await find(
        connection, table, SearchSpec(search.where, search.roles, search.filter, numbers, asked, stems)
    )
    hits: list[Hit] = []
    seen, step = 0, search.limit
    while len(hits) < search.limit:  # repeats only if records changed in between
        ranked = found.best(table.collection, len(stems), seen + step)
        if len(ranked) == seen:
            break
        some = dict(ranked[seen:])
        rows = await _rows_of(connection, table, search, list(some))
        hits += await _hits(table, search, [(row, some[table.codec.key(row)]) for row in rows])
        seen, step = len(ranked), 4 * step
    hits.sort(key=lambda hit: (-hit.score, hit.head.key.id))
    return hits[: search.limit]


@dataclass(frozen=True, slots=True)
class SearchSpec:
    """The target of one statement: records with these stems in these partitions.

    `asked` are the partitions of the query, and `nearest` is the number of records to
    find by meaning.
    """

    where: Where
    roles: frozenset[Role]
    filter: Condition | None
    numbers: Sequence[int]
    asked: Sequence[int]
    stems: Sequence[str]
    near: bytes | None = None
    nearest: int = 0


@dataclass(frozen=True, slots=True)
class HybridMatches:
    """The number of records and words, the matching words, and the nearest ids.

    Each word in a record has the record's key and length, the word, its packed counts,
    and whether the record passes.
    """

    documents: int
    total: int
    tenants: Sequence[str]
    ids: Sequence[UUID]
    lengths: Sequence[int]
    stems: Sequence[int]
    packed: Sequence[int]
    passes: Sequence[bool]
    nearest: Sequence[UUID]

    def document_frequencies(self, stems: int) -> list[int]:
        """Return how many records have each of the first `stems` stems."""
        held: list[int] = np.bincount(np.array(self.stems, np.int64), minlength=stems).tolist()
        return held

    def best(self, collection: Collection, stems: int, count: int) -> list[tuple[Key, float]]:
        """Return at least `count` passing records, as far as there are, best first.

        They have one of the first `stems` stems; ties go by id. BM25F scores them with
        the statistics of exactly the requested records.
        """
        which = np.array(self.stems, np.int64)
        frequencies: Scores = lexical.weighted_sum(collection, np.array(self.packed, np.int64))
        held = np.flatnonzero((which < stems) & (frequencies > 0))
        held = held[
            np.argsort(which[held], kind="stable")
        ]  # one order of addition: records with the same words get exactly the same score
        which, frequencies = which[held], frequencies[held]
        norm = norms(
            np.array(self.lengths, np.float64)[held], self.total / self.documents if self.documents else 0.0
        )
        rare = rarities(self.documents, np.bincount(which, minlength=stems))
        places: dict[tuple[str, UUID], int] = {}
        records = np.array(
            [places.setdefault((self.tenants[i], self.ids[i]), len(places)) for i in held.tolist()], np.int64
        )
        passes = np.zeros(len(places), np.bool_)
        passes[records] = np.array(self.passes, np.bool_)[held]
        scores: Scores = np.bincount(
            records, term_scores(rare[which], frequencies, norm), len(places)
        ).astype(np.float64)
        best = Candidates(np.flatnonzero(passes), scores[passes]).best(count)
        keys = list(places)
        ranked = [
            (Key(unescape(keys[place][0]), str(keys[place][1])), score)
            for place, score in zip(*best, strict=True)
        ]
        return sorted(ranked, key=lambda one: (-one[1], one[0].id))


async def find(connection: Connection, table: PgTable, sought: SearchSpec) -> HybridMatches:
    if len(sought.stems) * len(sought.numbers) >= table.thresholds.lexemes_flushed:
        await table.flush_lexemes(connection)
    question = postings(table, sought)
    answer = await connection.fetchrow(question.sql, *question.arguments)
    assert answer is not None  # noqa: S101 - an aggregate has a row whatever there is
    (documents, total), *columns = answer
    return HybridMatches(documents, total, *[column or () for column in columns])


async def _rows_of(
    connection: Connection, table: PgTable, search: Search, keys: Sequence[Key]
) -> list[Columns]:
    rows: list[Columns] = []
    by_tenant: dict[str, list[str]] = {}
    for key in keys:
        by_tenant.setdefault(key.tenant, []).append(key.id)
    for tenant, ids in by_tenant.items():
        question = among(table, search, tenant, ids)
        rows += await connection.fetch(question.sql, *question.arguments)
    return rows


# -- by meaning ------------------------------------------------------------------------


async def _by_meaning(
    connection: Connection, table: PgTable, search: Search, by: Near, partitions: Sequence[int]
) -> list[Hit]:
    question = nearest(table, search, partitions, by.vector)
    rows = await connection.fetch(question.sql, *question.arguments)
    if not rows:
        return []
    cosines = exact_cosines(
        by.vector, [row["exactly"] for row in rows]
    )  # the extension ranks in single precision
    hits = await _hits(table, search, list(zip(rows, cosines, strict=True)))
    return sorted(hits, key=lambda hit: (-hit.score, hit.head.key.id))


async def _hits(table: PgTable, search: Search, scored: Sequence[tuple[Columns, float]]) -> list[Hit]:
    """Return the hits of rows and their scores."""
    selection = table.selection(search.select)
    found = [
        (selection.read(dict(zip(selection.columns, row, strict=False))), score)
        async for row, score in iterate_cooperatively(scored)
    ]
    return [Hit(head, score) for head, score in found if head is not None]


# -- statements ------------------------------------------------------------------------


class _Vector(sa.types.UserDefinedType[bytes]):
    """Pgvector's type, in any schema that the extension is in."""

    cache_ok = True
    render_bind_cast = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: Any) -> str:
        return self.name


class _Near(PgConditions):
    """Conditions of a search by meaning."""

    def __init__(self, table: PgTable) -> None:
        super().__init__(table.table, table.keyed)
        self.types = {**PgConditions.types, "v": _Vector(table.vector_type)}  # type: ignore[misc]


def postings(table: PgTable, sought: SearchSpec) -> Question:
    """Select one row with the statistics, the words found, and the nearest ids.

    The statistics are the number of records in the requested roles, and of their words.
    The words are arrays, for each word in each record: tenant, id, number of words,
    which word, packed counts, and whether the filter lets it through.
    """
    values, where, chosen = values_and_shapes(table, sought.where, sought.filter, sought.asked, walking=True)
    tokens, way = [lexical.token(stem) for stem in sought.stems], ""
    if tokens and table.collection.texts:
        way = (
            "indexed"
            if len(tokens) * len(sought.numbers) <= table.thresholds.lexemes_asked
            else "gone through"
        )
        parts: Sequence[Sequence[int]] = ((),)
        if way == "indexed":
            parts = [
                sought.numbers[at : at + LOOKED_UP_AT_ONCE]
                for at in range(0, len(sought.numbers), LOOKED_UP_AT_ONCE)
            ]
        pairs = [(numbers, stem) for stem in range(len(tokens)) for numbers in parts]
        values += ([stem for _, stem in pairs], [tokens[stem] for _, stem in pairs])
        values += (
            ([any_lexeme(numbers, sought.stems[stem]) for numbers, stem in pairs],)
            if way == "indexed"
            else ()
        )
    if sought.near is not None:
        values += (len(sought.near), sought.near, sought.nearest)
    return question(table, _postings, (where, sought.roles, chosen, way, sought.near is not None), values)


def live(conditions: Any, roles: frozenset[Role]) -> SqlCondition:
    """Whether a row, found by another condition, is a record of these roles.

    A plain condition would make the server use the partial index of nearly all rows. It
    would scan that index for each word, until the server has counted the table.
    """
    standing: SqlCondition = conditions.roles_and_types(roles, RECORDS).is_(sa.true())
    return standing


def _postings(table: Any, shape: Shape) -> sa.Select[Any]:
    where, roles, chosen, way, near = shape
    conditions = _Near(table) if near else table.conditions()
    c = table.table.c
    there, standing, passes = conditions.scope(where), live(conditions, roles), conditions.filter(chosen)
    words = sum_or_zero(c.length) if table.collection.texts else sa.literal_column("0", sa.BigInteger())
    counted = sa.select(array([sa.func.count(), words])).select_from(table.table).where(there, standing)
    of_words: list[sa.ColumnElement[Any]] = [sa.null()] * 6
    if way:
        held = (
            _postings_by_word(table, conditions, there, standing, passes)
            if way == "indexed"
            else _gone_through(table, conditions, there, standing, passes)
        )
        of_words = [
            sa.func.array_agg(held.c[name]) for name in ("tenant", "id", "length", "stem", "packed", "passes")
        ]
    nearest: sa.ColumnElement[Any] = sa.null()
    if near:
        in_order = _in_order(table, conditions, [there, standing, passes], ("id",)).subquery("in_order")
        nearest = sa.func.array(sa.select(in_order.c.id).scalar_subquery())
    return sa.select(
        *[column.label(f"c{n}") for n, column in enumerate((counted.scalar_subquery(), *of_words, nearest))]
    )


def _postings_by_word(
    table: Any, conditions: Any, there: SqlCondition, standing: SqlCondition, passes: SqlCondition
) -> sa.Subquery:
    """Select a row for each word in each record, looked up word by word.

    `OFFSET 0` keeps that order. A lexeme names its partition. A plain query would look
    up the partition separately and read its rows one by one, until the server has
    counted how many these are.
    """
    c = table.table.c
    w: Any = (
        sa.func.unnest(*map(conditions.value, ("ii", "ss", "ss")))
        .table_valued("stem", "token", "lexeme")
        .render_derived("w")
    )
    packed = sa.cast(c.counts.op("->>")(w.c.token), sa.BigInteger()).label("packed")
    there, asked = there.is_(sa.true()), c.lexemes.bool_op("@@")(sa.cast(w.c.lexeme, TSQUERY()))
    e: Any = sa.select(c.tenant, c.id, c.length, packed, passes.label("passes")).where(there, standing, asked)
    e = e.offset(sa.literal_column("0")).lateral("e")
    return (
        sa.select(w.c.stem, *e.c)
        .select_from(w.join(e, sa.true()))
        .where(e.c.packed.is_not(None))
        .subquery("held")
    )


def _gone_through(
    table: Any, conditions: Any, there: SqlCondition, standing: SqlCondition, passes: SqlCondition
) -> sa.Subquery:
    """Select the same rows from the words of every record there."""
    c = table.table.c
    w: Any = (
        sa.func.unnest(*map(conditions.value, ("ii", "ss"))).table_valued("stem", "token").render_derived("w")
    )
    j: Any = sa.func.jsonb_each_text(c.counts).table_valued("key", "value").render_derived("j").lateral()
    packed = sa.cast(j.c.value, sa.BigInteger()).label("packed")
    each = sa.select(w.c.stem, c.tenant, c.id, c.length, packed, passes.label("passes"))
    each = each.select_from(table.table.join(j, sa.true()).join(w, w.c.token == j.c.key))
    return each.where(there, standing, c.lexemes.is_not(None)).subquery("held")


def among(table: PgTable, search: Search, tenant: str, ids: Sequence[str]) -> Question:
    """Select the heads of live rows with these ids that pass the search's filter."""
    values: Values = [escape(tenant), list(ids)]
    chosen = table.shaper.filter(search.filter, values)
    return question(table, _among, (table.selection(search.select).columns, search.roles, chosen), values)


def _among(table: Any, shape: Shape) -> sa.Select[Any]:
    columns, roles, chosen = shape
    conditions = PgConditions(table.table)
    c = table.table.c
    these = [c.tenant == conditions.value("s"), c.id == sa.any_(conditions.value("uu"))]
    return sa.select(*[c[name] for name in columns]).where(
        *these, live(conditions, roles), conditions.filter(chosen)
    )


def nearest(table: PgTable, search: Search, partitions: Sequence[int], unit: bytes) -> Question:
    """Select the nearest records, each with its vector and distance.

    It compares every vector of that length, so that narrow filters lose nothing.
    """
    values, where, chosen = values_and_shapes(table, search.where, search.filter, partitions, walking=True)
    values += (len(unit), unit, search.limit)
    return question(
        table, _nearest, (where, search.roles, chosen, table.selection(search.select).columns), values
    )


def _nearest(table: Any, shape: Shape) -> sa.Select[Any]:
    where, roles, chosen, columns = shape
    conditions = _Near(table)
    passing = [conditions.scope(where), live(conditions, roles), conditions.filter(chosen)]
    return _in_order(table, conditions, passing, columns)


def _in_order(
    table: Any, conditions: Any, passing: Sequence[SqlCondition], columns: Sequence[str]
) -> sa.Select[Any]:
    c = table.table.c
    comparable = sa.func.octet_length(c.vector) == conditions.value("i")
    embedding = sa.literal_column(f'{table.qualified}."embedding"', _Vector(table.vector_type))
    namespace = table.vector_type.rpartition(".")[0]
    distance: sa.ColumnElement[float] = embedding.op(f"OPERATOR({namespace}.<=>)", return_type=sa.Double())(
        conditions.value("v")
    )
    return (
        sa.select(*[c[name] for name in columns], c.vector.label("exactly"), distance.label("distance"))
        .where(*passing, comparable, embedding.is_not(None))
        .order_by(sa.literal_column("distance"), c.id)
        .limit(conditions.value("i"))
    )
