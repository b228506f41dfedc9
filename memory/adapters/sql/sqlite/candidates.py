"""Candidates as columns, in one transaction.

The ranking of searches selects the best rows. Members and the word index give their
measures. Rows are read without their checksums, as in searches; a row with an invalid
value is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from memory.adapters.sql.codec import id_bytes
from memory.adapters.sql.columns import column_of
from memory.adapters.sql.partitions import Directory
from memory.adapters.sql.scoring import Candidates as Ranked
from memory.adapters.sql.several import in_list, pad_to_power_of_two, portions
from memory.adapters.sql.sqlite.codec import id_text
from memory.adapters.sql.sqlite.members import Ints, MemberCache
from memory.adapters.sql.sqlite.passing import FilteredRows, Told
from memory.adapters.sql.sqlite.ranking import Population, by_meaning, by_words, statistics
from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.table import SqliteTable, table_of
from memory.domain.ids import is_id
from memory.ports.bm25 import Scores
from memory.ports.candidate_scan import stack_vectors
from memory.ports.candidates import CandidateColumns, Candidates, Neighbourhood, none_of
from memory.ports.collections import field_types
from memory.ports.comparisons import SYSTEM_TYPES
from memory.ports.query import Everywhere
from memory.ports.record import Role

Row: TypeAlias = tuple[Any, ...]


async def candidates(
    session: Session, directory: Directory[Session], asked: Candidates, cache: MemberCache
) -> CandidateColumns:
    """Return measured candidates, and the statistics of the whole population."""
    table = table_of(session, asked.collection)
    vectors = asked.near is not None and asked.collection.vector
    population = Population(
        session,
        table,
        cache.members(session, table, asked.where, await directory.numbers(session, asked.where), vectors),
        asked.roles,
    )
    found = _CandidateRows(session, table, asked)
    found.add_best(by_words(table, asked.text, population))
    if asked.near is not None:
        found.add_best(by_meaning(asked.near, population), asked.near)
    found.add_named(asked.among)
    if asked.around is not None:
        found.add_beside(asked.around)
    return _measure_rows(table, asked, population, found)


class _CandidateRows:
    """The candidates so far: the values of each row by its number, as in `_Columns`."""

    def __init__(self, session: Session, table: SqliteTable, asked: Candidates) -> None:
        self._session, self._table, self._limit = session, table, asked.limit
        self._passing = FilteredRows(session, table, asked.filter, asked.roles)
        self.columns = _Columns(table, asked)
        self.rows: dict[int, Row] = {}
        self._read: dict[int, Row] = {}
        """All rows read so far."""

    def add_best(self, ranked: Ranked, near: bytes | None = None) -> None:
        """Add the best by words, or by nearness."""
        self.rows |= {
            row[0]: row
            for row, _ in self._passing.best(ranked, near, self._limit, self._read_rows, self._read.get)
        }

    def add_named(self, ids: Sequence[str]) -> None:
        name = self._table.name
        for some in portions(ids, self._table.thresholds.rows_at_once):
            wanted = pad_to_power_of_two([id_bytes(one) for one in some])
            sql = f'SELECT number FROM "{name}" WHERE id IN {in_list(len(wanted))} AND tenant = ?'  # noqa: S608
            self._add([number for (number,) in self._session.rows(sql, (*wanted, self.columns.tenant))])

    def add_beside(self, around: Neighbourhood) -> None:
        """Add the neighbours of the candidates, by an index over group and number."""
        name, group, number = self._table.name, column_of(around.group), column_of(around.number)
        same = f"t.tenant = c.tenant AND t.partition_no = c.partition_no AND t.[{group}] = c.[{group}]"
        near = f"t.[{number}] BETWEEN c.[{number}] - {around.reach} AND c.[{number}] + {around.reach}"
        beside: set[int] = set()
        for some in portions(list(self.rows), self._table.thresholds.rows_at_once):
            wanted = pad_to_power_of_two(some)
            sql = (
                f'SELECT DISTINCT t.number FROM "{name}" AS c CROSS JOIN "{name}" AS t ON {same} AND {near} '  # noqa: S608
                f"WHERE c.number IN {in_list(len(wanted))}"
            )
            beside |= {number for (number,) in self._session.rows(sql, wanted)}
        self._add(list(beside))

    def _add(self, numbers: Sequence[int]) -> None:
        self.rows |= {number: self._read[number] for number, _, _ in self._read_rows(numbers)}

    def _read_rows(self, numbers: Sequence[int]) -> list[Told]:
        unread = [number for number in numbers if number not in self._read]
        self._read.update(
            {row[0]: row for row in self.columns.decode_rows(self._passing.among(unread, self.columns.names))}
        )
        return [
            (number, row[_ID], row[-1]) for number in numbers if (row := self._read.get(number)) is not None
        ]


_PARTITION, _TENANT, _ID, _SCOPE, _VERSION, _ROLE, _TIER = range(1, 8)
"""Positions of these values in a row, after its number."""
_HEAD = ("partition_no", "tenant", "id", "scope", "version", "role", "tier")
_ROLES = {role.value: role for role in Role}


class _Columns:
    """The columns read of a row after its number, and how to decode them.

    Requested vectors come last.
    """

    def __init__(self, table: SqliteTable, asked: Candidates) -> None:
        assert not isinstance(asked.where, Everywhere)  # noqa: S101 - that is refused
        self.tenant = asked.where.tenant
        fields = {name: column_of(name) for name in asked.select}
        vector = ("vector",) if asked.width and asked.collection.vector else ()
        self.names = tuple(dict.fromkeys((*_HEAD, *sorted(fields.values()), *vector)))
        self.vector = len(self.names) if vector else None
        places = {column: place for place, column in enumerate(self.names, 1)}
        self.fields = {name: places[column] for name, column in fields.items()}
        types = {**field_types(asked.collection), **SYSTEM_TYPES}
        decoders = [
            (self.fields[name], table.codec.decoder(types[name])) for name in fields if name != "owing"
        ]
        self._decoders = [(place, decode) for place, decode in decoders if decode is not None]

    def decode_rows(self, rows: Sequence[Row]) -> list[Row]:
        """Decode the rows, and leave out those with an invalid value."""
        try:
            return self._decode_rows(rows)
        except (TypeError, ValueError, KeyError, OverflowError, AttributeError):
            return [one for row in rows for one in self.decode_rows([row])] if len(rows) > 1 else []

    def _decode_rows(self, rows: Sequence[Row]) -> list[Row]:
        if not rows:
            return []
        columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
        columns[_ID] = [id_text(value) for value in columns[_ID]]
        columns[_ROLE] = [_ROLES[value] for value in columns[_ROLE]]
        for place, decode in self._decoders:
            columns[place] = [value if value is None else decode(value) for value in columns[place]]
        texts, numbers = (
            {*map(type, columns[_SCOPE]), *map(type, columns[_TIER])},
            {*map(type, columns[_VERSION])},
        )
        if (
            {*columns[_TENANT]} != {self.tenant}
            or texts != {str}
            or numbers != {int}
            or not all(map(is_id, columns[_ID]))
        ):
            raise ValueError("not a record's")
        return list(zip(*columns, strict=True))


def _measure_rows(
    table: SqliteTable, asked: Candidates, population: Population, found: _CandidateRows
) -> CandidateColumns:
    """Return the rows as columns, one group of members behind the other.

    Rows in none of the population's partitions are left out.
    """
    rows: list[Row] = []
    places: dict[int, Ints] = {}
    for i, there in _by_group(population, found.rows.values()).items():
        at = population.members[i].places(np.array([row[0] for row in there], np.int64))
        places[i] = at[at >= 0]
        rows += [row for row, place in zip(there, at, strict=True) if place >= 0]
    columns = list(zip(*rows, strict=True)) or [()] * (1 + len(found.columns.names))
    packed = columns[found.columns.vector] if found.columns.vector else [None] * len(rows)
    return CandidateColumns(
        columns[_ID],
        columns[_SCOPE],
        columns[_VERSION],
        columns[_ROLE],
        columns[_TIER],
        np.concatenate(
            [np.empty(0, np.int64), *[population.members[i].words[at] for i, at in places.items()]]
        ),
        (
            _counts(asked.counted, population, places)
            if table.words is not None
            else np.zeros((len(rows), len(asked.counted)))
        ),
        stack_vectors([v if isinstance(v, bytes) else None for v in packed], asked.width),
        {
            name: columns[place] if name != "owing" else [owed is not None for owed in columns[place]]
            for name, place in found.columns.fields.items()
        },
        statistics(table, asked.counted, population) if asked.statistics else none_of(asked),
    )


def _by_group(population: Population, rows: Iterable[Row]) -> dict[int, list[Row]]:
    """Group the rows as the members of their partitions are in the population."""
    place = {partition: i for i, members in enumerate(population.members) for partition in members.revisions}
    found: dict[int, list[Row]] = {}
    for row in rows:
        if (i := place.get(row[_PARTITION])) is not None:
            found.setdefault(i, []).append(row)
    return found


def _counts(stems: Sequence[str], population: Population, places: Mapping[int, Ints]) -> Scores:
    """Count each of the words in the records at these places of each group."""
    counts = {i: np.zeros((len(at), len(stems))) for i, at in places.items()}
    for column, stem in enumerate(stems if places else ()):
        for i, holding, frequencies in population.holders(stem):
            if i in counts:
                of_members = np.zeros(len(population.members[i].numbers))
                of_members[holding] = frequencies
                counts[i][:, column] = of_members[places[i]]
    return np.concatenate([np.empty((0, len(stems))), *counts.values()])
