"""The search cache of a partition: its members, their lengths, and the vectors.

It is kept per collection and partition, and valid for one revision. Every search
compares the revision inside its own read transaction, so it sees other processes'
writes. After a newer revision, it reads the rows changed since, and finds removed rows
by listing the present ones.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.table import SqliteTable
from memory.ports.record import Role
from memory.ports.unit_vectors import UnitVectors

Ints: TypeAlias = npt.NDArray[np.int64]

ROLE_CODES = {role.value: i for i, role in enumerate(Role)}


class Matrix:
    """Vectors of one length, and the numbers of their rows."""

    def __init__(self, dimensions: int, block: int) -> None:
        self.units = UnitVectors(dimensions, block)
        self._numbers = array("q")
        self._places: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def numbers(self) -> Ints:
        return np.array(self._numbers, np.int64)

    @property
    def size(self) -> int:
        return self.units.size + 96 * len(self._numbers)

    def content(self) -> Iterator[tuple[int, bytes]]:
        """Yield each number with its vector."""
        return zip(self._numbers, (unit.tobytes() for unit in self.units.rows), strict=True)

    def put(self, vectors: Mapping[int, bytes]) -> None:
        new = [number for number in vectors if number not in self._places]
        for number in vectors.keys() & self._places.keys():
            self.units.put(self._places[number], vectors[number])
        self._places |= zip(new, range(len(self), len(self) + len(new)), strict=True)
        self._numbers.extend(new)
        self.units.add([vectors[number] for number in new])

    def drop(self, numbers: Sequence[int]) -> None:
        """Remove these: the last row takes the place of each."""
        for number in numbers:
            place = self._places.pop(number, None)
            if place is None:
                continue
            self.units.drop(place)
            last = self._numbers.pop()
            if last != number:
                self._numbers[place] = last
                self._places[last] = place

    def holds(self, number: int) -> bool:
        return number in self._places


class Members:
    """The records of one partition, by ascending row number."""

    def __init__(self, block: int) -> None:
        self._block = block
        self.revision = -1
        self.removals = 0
        self.numbers: Ints = np.empty(0, np.int64)
        self.words: Ints = np.empty(0, np.int64)
        self.roles: npt.NDArray[np.int8] = np.empty(0, np.int8)
        self.matrices: dict[int, Matrix] | None = None
        self.vectors_revision = -1
        self._gone: set[int] = set()
        self._vector_places: dict[int, Ints] = {}

    @property
    def size(self) -> int:
        return self.numbers.nbytes * 3 + sum(m.size for m in (self.matrices or {}).values()) + 1024

    def role_mask(self, roles: frozenset[Role]) -> npt.NDArray[np.bool_]:
        """Return which members are in these roles."""
        wanted = np.zeros(len(ROLE_CODES) + 1, np.bool_)  # the last one serves the code -1
        wanted[[ROLE_CODES[role.value] for role in roles]] = True
        return wanted[self.roles]

    def places(self, numbers: Ints) -> Ints:
        """Return the positions of these rows among the members, -1 for others."""
        if not len(self.numbers):
            return np.full(len(numbers), -1, np.int64)
        places = np.minimum(np.searchsorted(self.numbers, numbers), len(self.numbers) - 1)
        return np.where(self.numbers[places] == numbers, places, -1)

    def places_of(self, matrix: Matrix) -> Ints:
        """Return the positions of a matrix's rows among the members."""
        places = self._vector_places.get(id(matrix))
        if places is None:
            places = self._vector_places[id(matrix)] = self.places(matrix.numbers)
        return places

    def merge(self, rows: Sequence[Any], present: Ints | None) -> None:
        """Add rows of (number, role, words).

        With `present`, all members that are not in it are removed.
        """
        self._vector_places.clear()
        if present is not None:
            keep = np.isin(self.numbers, present)
            self._gone.update(self.numbers[~keep].tolist())
            self.numbers, self.words, self.roles = self.numbers[keep], self.words[keep], self.roles[keep]
        if not rows:
            return
        numbers = np.array([r[0] for r in rows], np.int64)
        keep = ~np.isin(self.numbers, numbers)
        numbers = np.concatenate([self.numbers[keep], numbers])
        words = np.concatenate(
            [self.words[keep], np.array([r[2] if isinstance(r[2], int) else 0 for r in rows], np.int64)]
        )
        roles = np.concatenate(
            [self.roles[keep], np.array([ROLE_CODES.get(r[1], -1) for r in rows], np.int8)]
        )
        order = np.argsort(numbers, kind="stable")
        self.numbers, self.words, self.roles = numbers[order], words[order], roles[order]

    def merge_vectors(self, rows: Sequence[Any]) -> None:
        """Add rows of (number, vector), where None or an invalid vector means none."""
        matrices = self.matrices = self.matrices if self.matrices is not None else {}
        self._vector_places.clear()
        by_size: dict[int, dict[int, bytes]] = {}
        for number, vector in rows:
            by_size.setdefault(len(vector) if isinstance(vector, bytes) else 0, {})[number] = vector
        for kept, matrix in matrices.items():
            matrix.drop(
                [
                    *self._gone,
                    *[number for size, vectors in by_size.items() if size != kept for number in vectors],
                ]
            )
        self._gone.clear()
        for size, vectors in by_size.items():
            if size and size % 4 == 0:
                matrices.setdefault(size, Matrix(size // 4, self._block)).put(vectors)

    def same_as(self, other: Members) -> bool:
        """Whether both have the same contents."""
        alike = [
            np.array_equal(*pair)
            for pair in ((self.numbers, other.numbers), (self.words, other.words), (self.roles, other.roles))
        ]
        return all(alike) and self._vectors() == other._vectors()

    def _vectors(self) -> dict[int, bytes]:
        return {
            number: vector for matrix in (self.matrices or {}).values() for number, vector in matrix.content()
        }


class MemberCache:
    """The members of the partitions searched last, bounded in bytes.

    It belongs to the reader's thread.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[tuple[str, int], Members] = OrderedDict()
        self._tables: dict[str, SqliteTable] = {}
        self._sizes: dict[tuple[str, int], int] = {}
        self.bytes = 0

    def members(
        self, session: Session, table: SqliteTable, partitions: Sequence[int], vectors: bool = False
    ) -> list[tuple[int, Members]]:
        """Return the members of these partitions as of the transaction's moment.

        Partitions that never held anything of the collection are left out.
        """
        found: list[tuple[int, Members]] = []
        self._tables[table.name] = table
        for partition in partitions:
            revision, removals = session.row(table.revisions.current, (partition,))
            if revision:
                found.append(
                    (partition, self._current(session, table, partition, revision, removals, vectors))
                )
        return found

    def differences(self, session: Session, drop: bool) -> list[str]:
        """Return the differences between cache and file, a sentence each.

        `drop` removes the differing parts from the cache.
        """
        problems = []
        for (name, partition), members in list(self._kept.items()):
            table, fresh, vectors = (
                self._tables[name],
                Members(session.thresholds.block),
                members.matrices is not None,
            )
            revision, removals = session.row(table.revisions.current, (partition,))
            if revision < members.revision:  # forgotten: no search reads it
                self._drop((name, partition))
                continue
            for one in (members, fresh):
                self._refresh(session, table, partition, one, revision, removals, vectors)
            if not members.same_as(fresh):
                problems.append(
                    f"{name}: what searches keep in memory of partition {partition} is not what the file says"
                )
                if drop:
                    self._drop((name, partition))
        return problems

    def clear(self) -> None:
        self._kept.clear()
        self._sizes.clear()
        self.bytes = 0

    def _current(
        self,
        session: Session,
        table: SqliteTable,
        partition: int,
        revision: int,
        removals: int,
        vectors: bool,
    ) -> Members:
        key = (table.name, partition)
        members = self._kept.pop(key, None)
        if members is None or revision < members.revision:
            members = Members(session.thresholds.block)
        try:
            self._refresh(session, table, partition, members, revision, removals, vectors)
        except BaseException:
            self._drop(key)
            raise
        self._kept[key] = members
        self._account(key, members)
        return members

    def _refresh(
        self,
        session: Session,
        table: SqliteTable,
        partition: int,
        members: Members,
        revision: int,
        removals: int,
        vectors: bool,
    ) -> None:
        if members.revision != revision:
            present = None
            if members.removals != removals and members.revision >= 0:
                present = np.array(
                    [n for (n,) in _require_numbers(session.rows(table.members_present, (partition,)))],
                    np.int64,
                )
            members.merge(
                _require_numbers(session.rows(table.members_since, (partition, members.revision))), present
            )
            members.revision, members.removals = revision, removals
        if vectors and members.vectors_revision != revision:
            if members.matrices is None:
                members.vectors_revision = -1
            members.merge_vectors(
                _require_numbers(session.rows(table.vectors_since, (partition, members.vectors_revision)))
            )
            members.vectors_revision = revision

    def _account(self, key: tuple[str, int], members: Members) -> None:
        self.bytes += members.size - self._sizes.get(key, 0)
        self._sizes[key] = members.size
        while self.bytes > self._limit and len(self._kept) > 1:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: tuple[str, int]) -> None:
        self._kept.pop(key, None)
        self.bytes -= self._sizes.pop(key, 0)


def _require_numbers(rows: list[Any]) -> list[Any]:
    """Return the rows; each must begin with its number.

    Rows have no numbers where the schema is damaged.
    """
    if None in [row[0] for row in rows]:
        raise sqlite3.DatabaseError("rows have no numbers")
    return rows
