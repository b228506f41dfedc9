"""One collection's table: the prepared statements that find and store a row by its key or number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from memory.adapters.sql.columns import keyed
from memory.adapters.sql.selection import Selection
from memory.adapters.sql.shapes import Shaper
from memory.adapters.sql.sqlite import quarantine
from memory.adapters.sql.sqlite.codec import TYPES, Derived, Values, codec_of, fingerprint, id_bytes
from memory.adapters.sql.sqlite.schema import Tables, tables_of
from memory.adapters.sql.sqlite.session import Session, chunked
from memory.adapters.sql.sqlite.words import WordIndex, word_index_of
from memory.ports.batch import Held
from memory.ports.collections import Collection
from memory.ports.record import Corrupt, Key, Stored
from memory.ports.rows import Row, stored_of

_VALUES = 1 + len(Derived._fields)
_SANE = 2**62  # no revision gets there by counting: a damaged one is not to be counted on from
LOST = "an index of the file does not lead to it"


class Found(NamedTuple):
    """A row as it stands, and its number. Any of its values may be damaged."""

    number: int
    derived: Derived
    values: Values

    @property
    def partition(self) -> int | None:
        partition = self.derived.partition_no
        return partition if isinstance(partition, int) else None


def found_in(row: Values) -> Found:
    return Found(row[0], Derived._make(row[1:_VALUES]), row[_VALUES:])


class Table:
    """The statements of one collection."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self.name = collection.name
        self.codec = codec_of(collection)
        self.tables: Tables = tables_of(collection)
        self.table: sa.Table = self.tables.table
        self.words: WordIndex | None = word_index_of(collection)
        self.shaper = Shaper(collection, self.codec.at, TYPES)
        self.keyed = keyed(collection)
        self.prepared: dict[Any, Any] = {}  # see `filters`
        self._selections: dict[frozenset[str], Selection] = {}
        self.row_columns = [self.table.c[c] for c in ("number", *self.codec.read_columns)]
        columns = ", ".join(f"[{c}]" for c in self.codec.read_columns)  # in quotation marks the name of a column that is not there would be a text
        name = f'"{self.name}"'
        self._find = f"SELECT number, {columns} FROM {name} WHERE tenant = ? AND id = ?"  # noqa: S608
        self._find_otherwise = f"SELECT number, {columns} FROM {name} WHERE fingerprint = ?"  # noqa: S608
        changed = ", ".join(f"[{c}] = ?" for c in self.codec.read_columns)
        self._insert = f"INSERT INTO {name} ({columns}, words) VALUES ({', '.join('?' * (len(self.codec.read_columns) + 1))})"  # noqa: S608
        self._update = f"UPDATE {name} SET {changed}, words = ? WHERE number = ?"  # noqa: S608
        self._update_but_words = f"UPDATE {name} SET {changed} WHERE number = ?"  # noqa: S608
        self._words = f"SELECT words FROM {name} WHERE number = ?"  # noqa: S608
        self._remove = f"DELETE FROM {name} WHERE number = ?"  # noqa: S608
        self._insert_absent = f"{self._insert} ON CONFLICT DO NOTHING"
        self.members_since = f"SELECT number, role, length FROM {name} WHERE partition_no = ? AND revision > ?"  # noqa: S608
        self.members_present = f"SELECT number FROM {name} WHERE partition_no = ?"  # noqa: S608
        self.vectors_since = f"SELECT number, vector FROM {name} WHERE partition_no = ? AND revision > ?"  # noqa: S608
        newest = f"coalesce((SELECT max(revision) FROM {name} WHERE partition_no = p.number AND revision < {_SANE}), 0)"  # noqa: S608
        revision = f"max({newest}, coalesce(r.revision, 0)), coalesce(r.removals, 0)"
        left = f"LEFT JOIN memory_revisions AS r ON r.partition_no = p.number AND r.collection = '{self.name}'"
        self.state = f"SELECT p.number, p.generation, {revision} FROM memory_partitions AS p {left} WHERE p.tenant = ? AND p.scope = ?"  # noqa: S608
        self.revision = f"SELECT {revision} FROM (SELECT ? AS number) AS p {left}"  # noqa: S608
        self._after = f"SELECT number, {columns} FROM {name} WHERE number > ? AND +partition_no IS NOT NULL ORDER BY number LIMIT ?"  # noqa: S608
        self._several = f"SELECT number, {columns} FROM {name} WHERE number IN "  # noqa: S608

    # -- reading ------------------------------------------------------------------------------------------------------

    def selection(self, select: frozenset[str]) -> Selection:
        """How heads with this selection are read."""
        made = self._selections.get(select)
        if made is None:
            made = self._selections[select] = Selection(self.codec, select)
        return made

    def find(self, session: Session, key: Key) -> Found | None:
        """The row under the key. Where the index finds none a second one is asked: a damaged index must not hide a record."""
        found = session.row(self._find, (key.tenant, id_bytes(key.id)))
        if found is None:
            found = session.row(self._find_otherwise, (fingerprint(key),))
            if found is None:
                return None
        return found_in(found)

    def at(self, session: Session, numbers: Sequence[int]) -> list[Found]:
        """The rows of these numbers, in no order."""
        if not numbers:
            return []
        most = session.thresholds.rows_at_once
        if len(numbers) > most:
            return [found for chunk in chunked(numbers, most) for found in self.at(session, chunk)]
        wide = 1 << (len(numbers) - 1).bit_length()  # few different statements, so that each is prepared once
        padded = [*numbers, *[numbers[0]] * (wide - len(numbers))]
        return [found_in(r) for r in session.rows(f"{self._several}({', '.join('?' * wide)})", padded)]

    def live(self, session: Session) -> Iterator[list[Found]]:
        """Every live row, some at a time, by ascending number. They may be changed meanwhile."""
        last, most = -(2**63), session.thresholds.rows_at_once
        while rows := session.rows(self._after, (last, most)):
            last = rows[-1][0]
            yield [found_in(r) for r in rows]

    def row(self, found: Found) -> tuple[Row, str]:
        """What the row says but for its words, and what is wrong with it."""
        return self.codec.read_with(found.derived, found.values)

    def key(self, found: Found) -> Key:
        return self.codec.key(found.values)

    def is_quarantined(self, found: Found) -> bool:
        return self.codec.is_quarantined(found.values)

    def held(self, session: Session, found: Found, key: Key) -> Held:
        """What was found under the key, to be decided on: with a problem where it cannot be read or is another key's."""
        row, problem = self.row(found)
        if self.is_quarantined(found):
            problem = quarantine.problem(session, self.name, key)
        elif not problem and row.key != key:
            problem = LOST
        return Held(None, found, problem, self.codec.version(found.values)) if problem else Held(row, found)

    def stored(self, session: Session, found: Found, key: Key) -> Stored:
        """The same, as it is answered."""
        held = self.held(session, found, key)
        return Corrupt(key, held.problem) if held.row is None else stored_of(self.collection, held.row)

    def words_of(self, session: Session, number: int) -> bytes | None:
        """The packed words of the row."""
        found = session.row(self._words, (number,))
        return found[0] if found and isinstance(found[0], bytes) else None

    # -- storing ------------------------------------------------------------------------------------------------------

    def insert(self, session: Session, values: Values) -> int:
        return session.run(self._insert, values)

    def insert_absent(self, session: Session, values: Values) -> int | None:
        """None, and nothing changed, where something stands under the row's key: either of two indexes may say so."""
        return session.insert(self._insert_absent, values)

    def update(self, session: Session, number: int, values: Values, but_words: bool = False) -> None:
        """Store a row in the place of another; its words may stay as they are."""
        session.run(self._update_but_words if but_words else self._update, (*(values[:-1] if but_words else values), number))

    def remove(self, session: Session, number: int) -> None:
        session.run(self._remove, (number,))


_known: dict[int, Table] = {}


def table_of(session: Session, collection: Collection) -> Table:
    """The table of a collection as it is. Found by identity first: hashing a declaration takes longer than many a statement."""
    collection = session.declared.tables.get(collection.name, collection)
    table = _known.get(id(collection))
    if table is None or table.collection is not collection:
        table = Table(collection)
        if len(_known) > 256:
            _known.clear()
        _known[id(collection)] = table
    return table
