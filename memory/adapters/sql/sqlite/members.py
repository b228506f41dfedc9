"""The search cache of a partition: its members, their lengths, and the vectors.

It is kept per collection and partition, and valid for one revision. Every search
compares the revision inside its own read transaction, so it sees other processes'
writes. After a newer revision, it reads the rows changed since, and finds removed rows
by listing the present ones.

The members of a place with many partitions, such as a subtree, are kept as one. So
searches there take few statements and few operations on arrays.
"""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.table import SqliteTable
from memory.adapters.sql.sqlite.words import PostingList, Vocabulary, WordIndex, postings_in
from memory.ports import lexical
from memory.ports.query import Where
from memory.ports.record import Role
from memory.ports.unit_vectors import UnitVectors

Ints: TypeAlias = npt.NDArray[np.int64]

Revision: TypeAlias = tuple[int, int]
"""The revision of a partition, and how often a row has left it."""

MANY = 32
"""From so many partitions on, the members of a place are kept as one."""
ROLE_CODES = {role.value: i for i, role in enumerate(Role)}


MEMBERS, VECTORS = "number, role, length, partition_no", "number, vector"
"""The columns that are read of changed rows."""
_Key: TypeAlias = tuple[str, int | Where]
"""A collection, and a partition or a place with many."""


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
    """The records of one or more partitions, by ascending row number."""

    def __init__(self, block: int) -> None:
        self._block = block
        self.revisions: dict[int, Revision] = {}
        """The partitions, and the revision of each."""
        self.listed = "[]"
        """The numbers of the partitions as JSON."""
        self.partitions: Ints = np.empty(0, np.int64)
        """The partition of each member."""
        self.numbers: Ints = np.empty(0, np.int64)
        self.words: Ints = np.empty(0, np.int64)
        self.roles: npt.NDArray[np.int8] = np.empty(0, np.int8)
        self.matrices: dict[int, Matrix] | None = None
        self.vector_revisions: dict[int, int] = {}
        self._vocabulary: Vocabulary | None = None
        self._vocabulary_size = 0
        self._reworded: set[int] = set()
        """The partitions that changed since the vocabulary was read."""
        self._gone: set[int] = set()
        self._vector_places: dict[int, Ints] = {}

    @property
    def size(self) -> int:
        vectors = sum(m.size for m in (self.matrices or {}).values())
        return self.numbers.nbytes * 4 + 256 * len(self.revisions) + vectors + self._vocabulary_size + 1024

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

    def merge(self, rows: Sequence[Any], present: Mapping[int, Ints]) -> None:
        """Add rows of (number, role, words, partition).

        `present` has the numbers of all members of some partitions. Other members of
        these partitions are removed.
        """
        self._vector_places.clear()
        for partition, there in present.items():
            keep = (self.partitions != partition) | np.isin(self.numbers, there)
            self._gone.update(self.numbers[~keep].tolist())
            self.numbers, self.partitions = self.numbers[keep], self.partitions[keep]
            self.words, self.roles = self.words[keep], self.roles[keep]
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
        partitions = np.concatenate([self.partitions[keep], np.array([r[3] for r in rows], np.int64)])
        order = np.argsort(numbers, kind="stable")
        self.numbers, self.partitions = numbers[order], partitions[order]
        self.words, self.roles = words[order], roles[order]

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

    def follow(self, current: Mapping[int, Revision], changed: Sequence[int]) -> None:
        """Note the revisions of the partitions, and which of these have changed."""
        self._reworded.update(changed, self.revisions.keys() - current.keys())
        self.revisions = dict(current)
        self.listed = json.dumps(list(current), separators=(",", ":"))

    def postings(self, session: Session, index: WordIndex, stem: str) -> PostingList | None:
        """Return the records with the word; None without any.

        The words of many partitions are kept, and read again once a quarter of these
        have changed. Before that, the index is read for the changed ones.

        Raises:
            ValueError: The stored values are not such numbers.
        """
        if len(self.revisions) == 1:
            return index.postings(session, self.revisions, self.listed, stem)
        known = self._vocabulary
        if (
            known is None
            or 4 * len(self._reworded) > len(self.revisions)
            or not index.is_of_this_index(session, known)
        ):
            known = self._vocabulary = index.vocabulary(session, self.listed)
            self._vocabulary_size = known.size
            self._reworded.clear()
        listed = known.held.get(lexical.token(stem))
        found = None if listed is None else postings_in(*listed)
        if not self._reworded:
            return found
        changed = sorted(self._reworded)
        also = index.postings(session, changed, json.dumps(changed), stem)
        if found is None:
            return also
        places = self.places(found.numbers)
        keep = (places >= 0) & ~np.isin(self.partitions[places], changed)
        numbers, counts = found.numbers[keep], found.counts[keep]
        if also is None:
            return PostingList(numbers, counts)
        return PostingList(np.concatenate([numbers, also.numbers]), np.concatenate([counts, also.counts]))

    def has_words_of(self, session: Session, index: WordIndex) -> bool:
        """Return whether the cached words equal those of the index.

        Words of partitions that have changed since are dropped and not compared.
        """
        known = self._vocabulary
        if known is None or self._reworded or not index.is_of_this_index(session, known):
            self._vocabulary, self._vocabulary_size = None, 0
            return True
        return known.same_as(index.vocabulary(session, self.listed))

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
    """The members of the places searched last, bounded in bytes.

    It belongs to the reader's thread.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[_Key, Members] = OrderedDict()
        self._tables: dict[str, SqliteTable] = {}
        self._sizes: dict[_Key, int] = {}
        self.bytes = 0

    def members(
        self,
        session: Session,
        table: SqliteTable,
        where: Where,
        partitions: Sequence[int],
        vectors: bool = False,
    ) -> list[Members]:
        """Return the members of a place as of the transaction's moment.

        `partitions` are its partitions. Those that never held anything of the
        collection are left out.
        """
        self._tables[table.name] = table
        current = table.revisions.of(session, partitions)
        if len(partitions) >= MANY:
            return [self._current(session, table, where, current, vectors)] if current else []
        return [self._current(session, table, p, {p: state}, vectors) for p, state in current.items()]

    def differences(self, session: Session, drop: bool) -> list[str]:
        """Return the differences between cache and file, a sentence each.

        `drop` removes the differing parts from the cache.
        """
        problems = []
        for (name, place), members in list(self._kept.items()):
            table, fresh, vectors = (
                self._tables[name],
                Members(session.thresholds.block),
                members.matrices is not None,
            )
            current = table.revisions.of(session, list(members.revisions))
            if _is_behind(current, members):  # forgotten: no search reads it
                self._drop((name, place))
                continue
            for one in (members, fresh):
                self._refresh(session, table, one, current, vectors)
            has_words = table.words is None or members.has_words_of(session, table.words)
            if not has_words or not members.same_as(fresh):
                of = f"partition {place}" if isinstance(place, int) else f"{len(current)} partitions"
                problems.append(f"{name}: what searches keep in memory of {of} is not what the file says")
                if drop:
                    self._drop((name, place))
        return problems

    def clear(self) -> None:
        self._kept.clear()
        self._sizes.clear()
        self.bytes = 0

    def _current(
        self,
        session: Session,
        table: SqliteTable,
        place: int | Where,
        current: Mapping[int, Revision],
        vectors: bool,
    ) -> Members:
        key = (table.name, place)
        members = self._kept.pop(key, None)
        if members is None or _is_behind(current, members):
            members = Members(session.thresholds.block)
        try:
            self._refresh(session, table, members, current, vectors)
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
        members: Members,
        current: Mapping[int, Revision],
        vectors: bool,
    ) -> None:
        if members.revisions != current:
            known = {p: revision for p, (revision, _) in members.revisions.items()}
            changed = [p for p, state in current.items() if members.revisions.get(p) != state]
            present: dict[int, Ints] = {p: np.empty(0, np.int64) for p in known.keys() - current.keys()}
            for partition in changed:
                if partition in known and members.revisions[partition][1] != current[partition][1]:
                    rows = _require_numbers(session.rows(table.members_present, (partition,)))
                    present[partition] = np.array([n for (n,) in rows], np.int64)
            members.merge(_changes(session, table, MEMBERS, changed, known), present)
            members.follow(current, changed)
        wanted = {p: revision for p, (revision, _) in current.items()} if vectors else {}
        if vectors and members.vector_revisions != wanted:
            known = members.vector_revisions if members.matrices is not None else {}
            changed = [p for p, revision in wanted.items() if known.get(p) != revision]
            members.merge_vectors(_changes(session, table, VECTORS, changed, known))
            members.vector_revisions = wanted

    def _account(self, key: _Key, members: Members) -> None:
        self.bytes += members.size - self._sizes.get(key, 0)
        self._sizes[key] = members.size
        while self.bytes > self._limit and len(self._kept) > 1:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: _Key) -> None:
        self._kept.pop(key, None)
        self.bytes -= self._sizes.pop(key, 0)


def _is_behind(current: Mapping[int, Revision], members: Members) -> bool:
    """Whether a partition has an earlier revision than its members."""
    return any(
        partition in current and current[partition][0] < revision
        for partition, (revision, _) in members.revisions.items()
    )


def _changes(
    session: Session, table: SqliteTable, columns: str, changed: Sequence[int], known: Mapping[int, int]
) -> list[Any]:
    """Return the rows of these partitions that changed after the known revisions."""
    rows: list[Any] = []
    for partition in changed:
        if partition in known or len(changed) == 1:
            asked = (partition, known.get(partition, -1))
            rows += session.rows(table.changed_since.format(columns=columns), asked)
    new = [partition for partition in changed if partition not in known] if len(changed) > 1 else []
    if new:
        rows += session.rows(table.all_there.format(columns=columns), (json.dumps(new),))
    return _require_numbers(rows)


def _require_numbers(rows: list[Any]) -> list[Any]:
    """Return the rows; each must begin with its number.

    Rows have no numbers where the schema is damaged.
    """
    if None in [row[0] for row in rows]:
        raise sqlite3.DatabaseError("rows have no numbers")
    return rows
