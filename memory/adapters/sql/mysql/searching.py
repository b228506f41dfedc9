"""Searches by words: the server finds and counts, the arithmetic of `memory.ports.text` ranks, and rows are read from the best down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from memory.adapters.sql.conditions import constant
from memory.adapters.sql.mysql.connection import Connection
from memory.adapters.sql.mysql.pending import TOO_MANY, counts_of
from memory.adapters.sql.mysql.places import MyPlaces
from memory.adapters.sql.mysql.rows import decoded_header, shown
from memory.adapters.sql.mysql.several import in_list, padded, portions
from memory.adapters.sql.mysql.shelf import MyShelf
from memory.adapters.sql.scoring import Candidates, Ints, gained, norms
from memory.adapters.sql.server.questions import question, summed
from memory.adapters.sql.server.shelf import Row, Spoiled
from memory.adapters.sql.shapes import Shape, Values
from memory.adapters.sql.words import token
from memory.ports.query import Hit, Kind, Search, Words
from memory.ports.record import Corrupt, Record, Role
from memory.ports.text import query_words, rarity

_RECORDS = frozenset({Kind.RECORD})
_MOST_ROWS = 4_096
_BYTES_A_FIND = 96
"""At most so many bytes are sent for one record that holds a word."""


class TooManyPending(Exception):
    """So many records wait to be indexed that this is to be done first."""


async def search(
    connection: Connection, shelf: MyShelf, places: MyPlaces, wanted: Search, most_waiting: int = TOO_MANY
) -> tuple[list[Hit], list[Spoiled]]:
    """The hits, and what was found unreadable among the rows read: then the search is to be made again.

    Raises `TooManyPending` where more than `most_waiting` records are not indexed yet.
    """
    assert isinstance(wanted.by, Words)  # noqa: S101 - it claims no other
    stems = [token(stem) for stem in query_words(wanted.by.text)]
    numbers = await places.numbers(connection, wanted.where)
    if not stems or not numbers or not shelf.collection.texts:
        return [], []
    candidates = await _candidates(connection, shelf, numbers, stems, wanted.roles, most_waiting)
    hits: list[Hit] = []
    spoiled: list[Spoiled] = []
    seen, step = 0, wanted.limit + wanted.limit // 4
    while seen < len(candidates.numbers) and len(hits) < wanted.limit:
        ranked, scores = candidates.best(seen + step)
        hits += await _hits(connection, shelf, wanted, dict(zip(ranked[seen:], scores[seen:], strict=True)), wanted.limit - len(hits), spoiled)
        seen, step = len(ranked), min(4 * step, _MOST_ROWS)
    hits.sort(key=lambda hit: (-hit.score, hit.record.key.id))
    return hits[: wanted.limit], spoiled


# -- candidates -------------------------------------------------------------------------------------------------------


async def _candidates(
    connection: Connection, shelf: MyShelf, numbers: Sequence[int], stems: Sequence[str], roles: frozenset[Role], most_waiting: int
) -> Candidates:
    """Every record of these roles that holds one of the words, scored by BM25F with the statistics of exactly these partitions and roles."""
    documents = total = 0
    found: dict[str, list[npt.NDArray[Any]]] = {stem: [] for stem in stems}
    for some in portions(numbers):
        # Before the index is asked: what moves there meanwhile is then seen twice, not missed.
        waiting = await _waiting(connection, shelf, some, roles, found, most_waiting)
        d, t = await _counted(connection, shelf, some, roles)
        documents, total = documents + d, total + t
        await _indexed(connection, shelf, some, roles, stems, found, waiting)
    average = total / documents if documents else 0.0
    held = {stem: np.concatenate(arrays) for stem, arrays in found.items() if arrays}
    if not held:
        return Candidates(np.empty(0, np.int64), np.empty(0, np.float64))
    ids: Ints = np.unique(np.concatenate([rows[:, 0] for rows in held.values()]))
    scores, matched = np.zeros(len(ids)), np.zeros(len(ids), np.bool_)
    for rows in held.values():
        frequencies = np.zeros(len(rows))
        for weight, count in zip(shelf.layout.parts.weights, shelf.layout.parts.unpacked(rows[:, 1]), strict=True):
            frequencies += weight * count
        rows, frequencies = rows[frequencies > 0], frequencies[frequencies > 0]
        at = np.searchsorted(ids, rows[:, 0])
        scores[at] += gained(rarity(documents, len(rows)), frequencies, norms(rows[:, 2].astype(np.float64), average))
        matched[at] = True
    return Candidates(ids[matched], scores[matched])


async def _waiting(
    connection: Connection, shelf: MyShelf, numbers: Sequence[int], roles: frozenset[Role], found: dict[str, list[Any]], most: int
) -> frozenset[int]:
    """Add what rows hold whose words are not indexed; the numbers of all such rows."""
    asked, wanted = {role.value for role in roles}, padded(numbers)
    rows = await connection.fetch(f"{shelf.pending} AND partition_no IN {in_list(len(wanted))} LIMIT ?", *wanted, most + 1)
    if len(rows) > most:
        raise TooManyPending
    for number, _, role, words, *texts in rows:
        if shown(role) in asked:
            counts: Mapping[str, int] = counts_of(shelf, tuple(texts))
            for stem, held in found.items():
                if stem in counts:
                    held.append(np.array([(number, counts[stem], words)], np.int64))
    return frozenset([row[0] for row in rows])


async def _counted(connection: Connection, shelf: MyShelf, numbers: Sequence[int], roles: frozenset[Role]) -> tuple[int, int]:
    """How many records there are, and how many words in them."""
    values: Values = padded(numbers)
    asked = question(shelf, _count, (len(values), roles), values)
    ((documents, total),) = await connection.fetch(asked.sql, *asked.arguments)
    return int(documents), int(total)


def _count(shelf: Any, shape: Shape) -> sa.Select[Any]:
    wide, roles = shape
    conditions = shelf.conditions()
    c = shelf.table.c
    there = conditions.some(c.partition_no, "i", wide)
    columns: list[sa.ColumnElement[Any]] = [sa.func.count(), summed(c.words)]
    counted = sa.select(*columns).select_from(shelf.table).where(there, c.role.in_([constant(role.value) for role in sorted(roles)]))
    return counted.with_hint(shelf.table, f"FORCE INDEX (`ix_{shelf.name}_members`)", "mysql")


async def _indexed(
    connection: Connection,
    shelf: MyShelf,
    numbers: Sequence[int],
    roles: frozenset[Role],
    stems: Sequence[str],
    found: dict[str, list[Any]],
    waiting: frozenset[int],
) -> None:
    """Add what the index holds, but for rows that were waiting: one long text a word instead of a row a find, which is read in C."""
    partitions, words, kinds = padded(numbers), padded(stems), sorted([role.value for role in roles])
    sql = (
        "SELECT w.word, GROUP_CONCAT(w.number, ' ', w.counts, ' ', t.words SEPARATOR ' ') "  # noqa: S608
        f"FROM {shelf.words} AS w JOIN `{shelf.name}` AS t FORCE INDEX (`ix_{shelf.name}_members`) "
        "ON t.partition_no = w.partition_no AND t.number = w.number "
        f"WHERE w.partition_no IN {in_list(len(partitions))} AND w.word IN {in_list(len(words))} AND t.role IN {in_list(len(kinds))} "
        f"GROUP BY w.word, w.number DIV {max(1, shelf.packet // _BYTES_A_FIND)}"
    )
    for word, text in await connection.fetch(sql, *partitions, *words, *kinds):
        rows = np.fromstring(text.decode("ascii"), dtype=np.int64, sep=" ").reshape(-1, 3)
        if waiting:
            rows = rows[~np.isin(rows[:, 0], list(waiting))]
        found[word.decode()].append(rows)


# -- hits -------------------------------------------------------------------------------------------------------------


async def _hits(
    connection: Connection, shelf: MyShelf, search: Search, scores: Mapping[int, float], wanted: int, spoiled: list[Spoiled]
) -> list[Hit]:
    """The best `wanted` among the records of these numbers that the filter lets through, in no order; what cannot be read is added to the spoiled."""
    numbers = list(scores)
    if len(numbers) > 2 * wanted:  # where many tie the id decides: only ids are read first
        named = [(row[0], shown(row[1])) for row in await _among(connection, shelf, search, numbers, "id")]
        numbers = [number for number, _ in sorted(named, key=lambda row: (-scores[row[0]], row[1]))[:wanted]]
    hits: list[Hit] = []
    for number, *row in await _among(connection, shelf, search, numbers, "row" if search.whole else "header"):
        if not search.whole:
            record = decoded_header(row)
            hits += [] if record is None else [Hit(record, scores[number])]
            continue
        stored = shelf.layout.read(row)
        if isinstance(stored, Corrupt):
            spoiled.append(Spoiled(row, stored.key, stored.problem))
        elif isinstance(stored, Record):
            hits.append(Hit(stored, scores[number]))
    return hits


async def _among(connection: Connection, shelf: MyShelf, search: Search, numbers: Sequence[int], what: str) -> list[Row]:
    """The live rows of these numbers, in the asked roles, that the filter lets through, each with its number before it."""
    rows: list[Row] = []
    for some in portions(numbers):
        values: Values = padded(some)
        wide = len(values)
        chosen = shelf.shaper.filter(search.filter, values)
        asked = question(shelf, _choose, (what, wide, search.roles, chosen), values)
        rows += await connection.fetch(asked.sql, *asked.arguments)
    return rows


def _choose(shelf: Any, shape: Shape) -> sa.Select[Any]:
    what, wide, roles, chosen = shape
    conditions = shelf.conditions()
    c = shelf.table.c
    columns = {"id": (c.id,), "header": shelf.header_columns, "row": shelf.row_columns}[what]
    these = conditions.some(c.number, "i", wide)
    number = c.number.label("row_number")
    return sa.select(number, *columns).where(these, conditions.standing(roles, _RECORDS), conditions.filter(chosen))
