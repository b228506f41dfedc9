"""Searches: by words the server finds and counts, and the arithmetic of `memory.ports.text` ranks; by meaning the server ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import array

from memory.adapters.sql.postgresql.codec import escape, lexeme, unescape
from memory.adapters.sql.postgresql.connection import Connection
from memory.adapters.sql.postgresql.filters import PgConditions
from memory.adapters.sql.postgresql.partitions import PgDirectory
from memory.adapters.sql.postgresql.table import PgTable
from memory.adapters.sql.prepared import Statement, kept
from memory.adapters.sql.questions import Question, asked, question, summed
from memory.adapters.sql.scoring import Scores, gained, norms, rarities
from memory.adapters.sql.shapes import Shape, Values
from memory.adapters.sql.table import Columns
from memory.ports import lexical
from memory.ports.collections import Collection
from memory.ports.nearness import exact_cosines
from memory.ports.pace import paced
from memory.ports.query import Hit, Near, Partitions, RowType, Search, Words
from memory.ports.record import Key
from memory.ports.text import query_words

_RECORDS = frozenset({RowType.RECORD})


async def search(connection: Connection, table: PgTable, directory: PgDirectory, wanted: Search) -> list[Hit]:
    """The best hits, best first."""
    numbers = await directory.numbers(connection, wanted.where)
    if not numbers:
        return []
    asked = numbers if isinstance(wanted.where, Partitions) else ()
    if isinstance(wanted.by, Near):
        return await _by_meaning(connection, table, wanted, wanted.by, asked) if table.embeds else []
    return await _by_words(connection, table, wanted, wanted.by, numbers, asked)


# -- by words ---------------------------------------------------------------------------------------------------------


async def _by_words(connection: Connection, table: PgTable, search: Search, by: Words, numbers: Sequence[int], asked: Sequence[int]) -> list[Hit]:
    stems = query_words(by.text)
    if not stems or not table.collection.texts:
        return []
    lexemes = ""
    if len(stems) * len(numbers) <= table.thresholds.lexemes_asked:
        lexemes = " or ".join([lexeme(number, stem) for number in numbers for stem in stems])
    question = postings(table, search, asked, lexemes, [lexical.token(stem) for stem in stems])
    answer = await connection.fetchrow(question.sql, *question.arguments)
    if answer is None or answer[0] is None or answer[4] is None:
        return []
    scores = _scored(_Postings(*answer), table.collection, len(stems))
    ranked = sorted(scores, key=lambda score: (-score[1], score[0].id))
    hits: list[Hit] = []
    start, step = 0, search.limit
    while start < len(ranked) and len(hits) < search.limit:  # more than once only where records changed in between
        some = dict(ranked[start : start + step])
        rows = await _rows_of(connection, table, search, list(some))
        hits += await _hits(table, search, [(row, some[table.codec.key(row)]) for row in rows])
        start, step = start + step, 4 * step
    hits.sort(key=lambda hit: (-hit.score, hit.head.key.id))
    return hits[: search.limit]


@dataclass(frozen=True, slots=True)
class _Postings:
    """What the server found: of each record its key, its number of words and whether it passes; of each word in a record its counts."""

    tenants: list[str]
    ids: list[UUID]
    lengths: list[int]
    passes: list[bool]
    records: list[int]
    stems: list[int]
    packed: list[int]
    asked: tuple[int, int]


def _scored(found: _Postings, collection: Collection, stems: int) -> list[tuple[Key, float]]:
    """BM25F with the statistics of exactly the asked records; those that the filter lets through."""
    documents, total = found.asked
    norm = norms(np.array(found.lengths, np.float64), total / documents if documents else 0.0)
    by_stem = np.argsort(found.stems, kind="stable")  # added up in one order, what holds the same words has the same score to the last bit
    frequencies: Scores = lexical.weighed(collection, np.array(found.packed, np.int64)[by_stem])
    by_stem, frequencies = by_stem[frequencies > 0], frequencies[frequencies > 0]
    records, which = np.array(found.records, np.int64)[by_stem] - 1, np.array(found.stems, np.int64)[by_stem] - 1
    rare = rarities(documents, np.bincount(which, minlength=stems))
    scores = np.bincount(records, gained(rare[which], frequencies, norm[records]), len(found.ids))
    held = np.bincount(records, minlength=len(found.ids)) > 0
    best = np.flatnonzero(held & np.array(found.passes, np.bool_)).tolist()
    return [(Key(unescape(found.tenants[i]), str(found.ids[i])), float(scores[i])) for i in best]


async def _rows_of(connection: Connection, table: PgTable, search: Search, keys: Sequence[Key]) -> list[Columns]:
    rows: list[Columns] = []
    by_tenant: dict[str, list[str]] = {}
    for key in keys:
        by_tenant.setdefault(key.tenant, []).append(key.id)
    for tenant, ids in by_tenant.items():
        question = among(table, search, tenant, ids)
        rows += await connection.fetch(question.sql, *question.arguments)
    return rows


# -- by meaning -------------------------------------------------------------------------------------------------------


async def _by_meaning(connection: Connection, table: PgTable, search: Search, by: Near, partitions: Sequence[int]) -> list[Hit]:
    question = nearest(table, search, partitions, by.vector)
    rows = await connection.fetch(question.sql, *question.arguments)
    if not rows:
        return []
    cosines = exact_cosines(by.vector, [row["exactly"] for row in rows])  # the extension ranks in single precision
    hits = await _hits(table, search, list(zip(rows, cosines, strict=True)))
    return sorted(hits, key=lambda hit: (-hit.score, hit.head.key.id))


async def _hits(table: PgTable, search: Search, scored: Sequence[tuple[Columns, float]]) -> list[Hit]:
    """The hits of rows and their scores."""
    selection = table.selection(search.select)
    found = [(selection.read(dict(zip(selection.columns, row, strict=False))), score) async for row, score in paced(scored)]
    return [Hit(head, score) for head, score in found if head is not None]


# -- statements -------------------------------------------------------------------------------------------------------


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

    def __init__(self, table: PgTable) -> None:
        super().__init__(table.table, table.keyed)
        self.types = {**PgConditions.types, "v": _Vector(table.vector_type)}  # type: ignore[misc]


def found(table: PgTable, search: Search, partitions: Sequence[int], lexemes: str) -> Question:
    """Every record that holds a word: its tenant, id, number of words, packed counts, whether the filter lets it through, and beside each
    how many records there are of the asked roles, and how many words these hold.
    """
    values, where, chosen = asked(table, search.where, search.filter, partitions, walking=True)
    order = len(values)
    values.append(lexemes)
    return question(table, _found, (where, search.roles, chosen, bool(lexemes), order), values)


def _found(table: Any, shape: Shape) -> sa.Select[Any]:
    where, roles, chosen, indexed, _ = shape
    conditions = table.conditions()
    c = table.table.c
    there = conditions.scope(where)
    somewhere = [there, conditions.standing(roles, _RECORDS)]
    passes = conditions.filter(chosen)
    counted = sa.select(array([sa.func.count(), summed(c.length)])).select_from(table.table).where(*somewhere).correlate(None).scalar_subquery()
    sought = sa.func.websearch_to_tsquery(sa.literal_column("'pg_catalog.simple'::regconfig"), conditions.value("s"))
    if indexed:
        # A lexeme names its partition. Asked for plainly, the partition would be looked up by itself, and its rows read one by one, for as long
        # as the server has not counted how many these are.
        somewhere[0] = there.is_(sa.true())
    somewhere.append(c.lexemes.bool_op("@@")(sought) if indexed else c.lexemes.is_not(None))
    return sa.select(c.tenant, c.id, c.length, c.counts, passes.label("passes"), counted.label("asked")).where(*somewhere)


def postings(table: PgTable, search: Search, partitions: Sequence[int], lexemes: str, stems: Sequence[str]) -> Question:
    """One row of arrays: the records found by words, and for each word in each of them its packed counts."""
    inner = found(table, search, partitions, lexemes)
    number = len(inner.arguments) + 1
    few = len(stems) <= table.thresholds.stems_looked_up
    key = ("postings", inner.sql, few)
    statement = kept(table.prepared, table.thresholds.statements_kept, key, lambda: Statement(_postings(inner.sql, number, few), (), None))
    return Question(statement.sql, [*inner.arguments, list(stems)])


def _postings(inner: str, number: int, few: bool) -> str:
    words = f"unnest(${number}::text[]) WITH ORDINALITY AS s(stem, stem_no)"
    looked_up = f"(f.counts ->> s.stem)::bigint AS packed FROM found AS f CROSS JOIN {words} WHERE f.counts ? s.stem"
    gone_through = f"e.value::bigint AS packed FROM found AS f CROSS JOIN jsonb_each_text(f.counts) AS e JOIN {words} ON s.stem = e.key"
    counted = f"SELECT f.n, s.stem_no, {looked_up if few else gone_through}"
    return (
        f"WITH found AS MATERIALIZED (SELECT row_number() OVER () AS n, i.* FROM ({inner}) AS i), counted AS MATERIALIZED ({counted}) "  # noqa: S608
        "SELECT array_agg(f.tenant ORDER BY f.n), array_agg(f.id ORDER BY f.n), array_agg(f.length ORDER BY f.n), array_agg(f.passes ORDER BY f.n), "
        "(SELECT array_agg(c.n) FROM counted AS c), (SELECT array_agg(c.stem_no) FROM counted AS c), "
        "(SELECT array_agg(c.packed) FROM counted AS c), max(f.asked) FROM found AS f"
    )


def among(table: PgTable, search: Search, tenant: str, ids: Sequence[str]) -> Question:
    """The live rows of these ids, in the asked roles, that the filter lets through: what their heads take."""
    values: Values = [escape(tenant), list(ids)]
    chosen = table.shaper.filter(search.filter, values)
    return question(table, _among, (table.selection(search.select).columns, search.roles, chosen), values)


def _among(table: Any, shape: Shape) -> sa.Select[Any]:
    columns, roles, chosen = shape
    conditions = PgConditions(table.table)
    c = table.table.c
    these = [c.tenant == conditions.value("s"), c.id == sa.any_(conditions.value("uu"))]
    return sa.select(*[c[name] for name in columns]).where(*these, conditions.standing(roles, _RECORDS), conditions.filter(chosen))


def nearest(table: PgTable, search: Search, partitions: Sequence[int], unit: bytes) -> Question:
    """The nearest records, each with its vector and distance: every vector of that length there is compared, so that narrow filters lose nothing."""
    values, where, chosen = asked(table, search.where, search.filter, partitions, walking=True)
    values += (len(unit), unit, search.limit)
    return question(table, _nearest, (where, search.roles, chosen, table.selection(search.select).columns), values)


def _nearest(table: Any, shape: Shape) -> sa.Select[Any]:
    where, roles, chosen, columns = shape
    conditions = _Near(table)
    c = table.table.c
    asked = [conditions.scope(where), conditions.standing(roles, _RECORDS), conditions.filter(chosen)]
    asked.append(sa.func.octet_length(c.vector) == conditions.value("i"))
    embedding = sa.literal_column(f'{table.qualified}."embedding"', _Vector(table.vector_type))
    namespace = table.vector_type.rpartition(".")[0]
    distance: sa.ColumnElement[float] = embedding.op(f"OPERATOR({namespace}.<=>)", return_type=sa.Double())(conditions.value("v"))
    asked.append(embedding.is_not(None))
    return (
        sa.select(*[c[name] for name in columns], c.vector.label("exactly"), distance.label("distance"))
        .where(*asked)
        .order_by(sa.literal_column("distance"), c.id)
        .limit(conditions.value("i"))
    )
