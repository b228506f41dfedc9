"""One collection's statements: how rows and their words are found and stored.

They also move rows into the quarantine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import ClassVar

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from memory.adapters.sql.bodies import body_indexes
from memory.adapters.sql.codec import id_bytes
from memory.adapters.sql.several import LISTED, in_list, pad_to_power_of_two, portions
from memory.adapters.sql.shapes import Shape, Values
from memory.adapters.sql.sqlite import quarantine
from memory.adapters.sql.sqlite.bodies import SqliteConditions, SqliteShaper
from memory.adapters.sql.sqlite.codec import DERIVED, TYPES, SqliteCodec, fingerprint, fold_derived
from memory.adapters.sql.sqlite.config import Thresholds
from memory.adapters.sql.sqlite.schema import tables_of
from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.transaction import Revisions, Transaction
from memory.adapters.sql.sqlite.words import NOTHING, IndexedRow, indexed_words, word_index_of
from memory.adapters.sql.table import Columns, DamagedRow, Table
from memory.ports.batch import StoredRow, slot_of
from memory.ports.collections import Collection
from memory.ports.query import Query, Where
from memory.ports.record import Corrupt, Key
from memory.ports.rows import Row, corrupt_row

NUMBER, REVISION, LENGTH, PARTITION = -6, -5, -4, -1
"""Positions of these values in the columns read of a row; any may be damaged."""
_LOST = "an index of the file does not lead to it"


class SqliteTable(Table[Session]):
    """The statements of one collection in one file."""

    dialect: ClassVar[sa.Dialect] = sqlite.dialect(paramstyle="qmark")
    few_passing: ClassVar[int] = 1_000
    beside: ClassVar[tuple[str, ...]] = ("number", *DERIVED)
    codec: SqliteCodec
    thresholds: Thresholds

    def conditions(self) -> SqliteConditions:
        return SqliteConditions(self.table)

    def __init__(self, collection: Collection, thresholds: Thresholds) -> None:
        codec = SqliteCodec(collection)
        self.tables = tables_of(collection)
        super().__init__(codec, SqliteShaper(collection, codec.at, TYPES), self.tables.table, thresholds)
        self.words = word_index_of(collection)
        self.revisions = Revisions(self.name)
        self.any_quarantined = (
            f"EXISTS (SELECT 1 FROM memory_quarantine AS q WHERE q.collection = '{self.name}')"  # noqa: S608
        )
        self._derived = slice(len(codec.columns) + 1, len(self.columns))
        name = f'"{self.name}"'
        columns = ", ".join(
            [f"[{c}]" for c in self.columns]
        )  # SQLite would read the quoted name of a missing column as a text
        stored, changed = (
            ", ".join([f"[{c}]" for c in codec.stored_columns]),
            [f"[{c}] = ?" for c in codec.stored_columns],
        )
        self._find = f"SELECT {columns} FROM {name} WHERE tenant = ? AND id = ?"  # noqa: S608
        self._find_otherwise = f"SELECT {columns} FROM {name} WHERE fingerprint = ?"  # noqa: S608
        self._several = f"SELECT {columns} FROM {name} WHERE number IN "  # noqa: S608
        self._after = f"SELECT {columns} FROM {name} WHERE number > ? AND +partition_no IS NOT NULL ORDER BY number LIMIT ?"  # noqa: S608
        self._insert = f"INSERT INTO {name} ({stored}) VALUES {in_list(len(changed))}"  # noqa: S608
        self._insert_absent = f"{self._insert} ON CONFLICT DO NOTHING"
        self._update = f"UPDATE {name} SET {', '.join(changed)} WHERE number = ?"  # noqa: S608
        self._update_but_words = f"UPDATE {name} SET {', '.join(changed[:-1])} WHERE number = ?"  # noqa: S608
        self._remove = f"DELETE FROM {name} WHERE number = ?"  # noqa: S608
        self._words = f"SELECT words FROM {name} WHERE number = ?"  # noqa: S608
        self.members_present = f"SELECT number FROM {name} WHERE partition_no = ?"  # noqa: S608
        self.changed_since = f"SELECT {{columns}} FROM {name} WHERE partition_no = ? AND revision > ?"  # noqa: S608
        self.all_there = f"SELECT {{columns}} FROM {name} WHERE partition_no IN {LISTED}"  # noqa: S608

    @property
    def matched_columns(self) -> tuple[str, ...]:
        return ("number",)

    def paged_columns(
        self, query: Query, partitions: Sequence[int], columns: tuple[str, ...], few: Shape | None = None
    ) -> tuple[str, ...]:
        """Return whole rows only where an index returns them in order.

        Sorting wide rows is slow. So the page is first found by number, then read.
        """
        return columns if columns != self.columns or self.walks(query, partitions, few) else ("number",)

    # -- finding -----------------------------------------------------------------------

    async def find(self, connection: Session, key: Key) -> Columns | None:
        """Return the row under the key.

        Where the index finds none, a second index is asked: a damaged index must not
        hide a record.
        """
        found: Columns | None = connection.row(self._find, (key.tenant, id_bytes(key.id)))
        if found is None:
            found = connection.row(self._find_otherwise, (fingerprint(key),))
        return found

    async def find_all(
        self, connection: Session, keys: Sequence[Key], *, lock: bool = False
    ) -> dict[Key, Columns]:
        return {key: columns for key in keys if (columns := await self.find(connection, key)) is not None}

    async def read(self, connection: Session, sql: str, values: Values) -> Sequence[Columns]:
        return connection.rows(sql, values)

    async def read_page(self, connection: Session, found: Sequence[Columns]) -> Sequence[Columns]:
        rows = {columns[NUMBER]: columns for columns in self.at(connection, [number for number, _ in found])}
        return [(*rows[number], any_quarantined) for number, any_quarantined in found if number in rows]

    async def lock_matches(
        self, connection: Session, sql: str, values: Values
    ) -> AsyncIterator[Sequence[tuple[Columns, bool]]]:
        wanted = {number: bool(passes) for number, passes in connection.rows(sql, values)}
        for some in portions(list(wanted), self.collection.at_once(self.thresholds.deleted_at_once)):
            yield [(columns, wanted[columns[NUMBER]]) for columns in self.at(connection, some)]

    def at(self, session: Session, numbers: Sequence[int]) -> list[Columns]:
        """Return the rows of these numbers, in no order."""
        found: list[Columns] = []
        for some in portions(numbers, self.thresholds.rows_at_once):
            wanted = pad_to_power_of_two(some)
            found += session.rows(f"{self._several}{in_list(len(wanted))}", wanted)
        return found

    def live(self, session: Session) -> Iterator[list[Columns]]:
        """Yield every live row by ascending number, some at a time.

        The rows may be changed meanwhile.
        """
        last, most = -(2**63), self.thresholds.rows_at_once
        while rows := session.rows(self._after, (last, most)):
            last = rows[-1][NUMBER]
            yield rows

    # -- what was found ----------------------------------------------------------------

    def read_row(self, columns: Columns) -> tuple[Row, str]:
        return self.codec.read(columns, fold_derived(columns[self._derived]))

    def held_in(self, columns: Columns | None, key: Key) -> StoredRow:
        """Return the contents of the row found under the key.

        A row of another key does not count: a damaged index found it.
        """
        held = super().held_in(columns, key)
        return (
            held if held.row is None or held.row.key == key else StoredRow(None, columns, _LOST, held.version)
        )

    def words_of(self, session: Session, columns: Columns) -> bytes | None:
        """Return the packed words of a row."""
        found = session.row(self._words, (columns[NUMBER],))
        return found[0] if found and isinstance(found[0], bytes) else None

    # -- storing -----------------------------------------------------------------------

    def put_fresh(self, within: Transaction, row: Row, partition: int) -> bool:
        """Store a record under a free key.

        Returns False, with nothing changed, if the key is taken; either of two indexes
        may say so.
        """
        number = within.session.insert(self._insert_absent, self._of_record(within, row, partition))
        if number is None:
            return False
        self._index(within, number, row, partition)
        return True

    def put(self, within: Transaction, row: Row, partition: int, held: StoredRow, found_anew: bool) -> None:
        """Store a record in the place of the held row.

        Its words and its vector stay as they were, unless it is to be indexed anew.
        """
        session, columns = within.session, held.token
        if columns is None:
            self._index(
                within, session.run(self._insert, self._of_record(within, row, partition)), row, partition
            )
            return
        stood = held.row
        unseen = not found_anew and stood is not None and stood.role == row.role  # by searches
        same_words = not found_anew or (
            stood is not None and columns[PARTITION] == partition and stood.texts == row.texts
        )
        revision = columns[REVISION] if unseen else within.touch(self.revisions, partition)
        values = self.codec.laid_out(row, partition, revision, columns[LENGTH] if same_words else None)
        self._leave(within, held, staying_in=partition, keep_words=same_words)
        if same_words:
            session.run(self._update_but_words, (*values[:-1], columns[NUMBER]))
        else:
            self.update(session, columns[NUMBER], values)
            self._index(within, columns[NUMBER], row, partition)

    def _of_record(self, within: Transaction, row: Row, partition: int) -> Values:
        return self.codec.laid_out(row, partition, within.touch(self.revisions, partition))

    def replace(self, within: Transaction, row: Row, held: StoredRow) -> None:
        """Store a row that is not a record in the place of the held row."""
        values = self.codec.laid_out(row)
        if held.token is None:
            within.session.run(self._insert, values)
        else:
            self._leave(within, held)
            self.update(within.session, held.token[NUMBER], values)

    def remove(self, within: Transaction, held: StoredRow) -> None:
        self._leave(within, held)
        within.session.run(self._remove, (held.token[NUMBER],))

    def update(self, session: Session, number: int, values: Values) -> None:
        """Store a row in the place of another."""
        session.run(self._update, (*values, number))

    async def delete_over(self, connection: Session, tombstones: Sequence[tuple[StoredRow, Row]]) -> None:
        within = Transaction(connection)
        for held, row in tombstones:
            self.replace(within, row, held)
        within.finish()

    # -- words, and what is kept of a partition ----------------------------------------

    def _index(self, within: Transaction, number: int, row: Row, partition: int) -> None:
        if row.words is not None and self.words is not None:
            within.index_changes(self.collection, self.words).put(number, partition, row.words)

    def _leave(
        self, within: Transaction, held: StoredRow, staying_in: int | None = None, keep_words: bool = False
    ) -> None:
        """Remove the held row from its partition's indexes and the quarantine."""
        columns = held.token
        if self.codec.is_quarantined(columns):
            quarantine.drop(within.session, self.name, self.codec.key(columns))
        self._unindex(
            within,
            columns,
            None if keep_words else self._indexed_words(within.session, held),
            staying_in,
            keep_words,
        )

    def _indexed_words(self, session: Session, held: StoredRow) -> IndexedRow | None:
        """Return the word index's entries of the held row; None if unknown."""
        columns = held.token
        if held.row is None and not self.codec.is_quarantined(columns):
            return None
        partition = partition_of(columns)
        return (
            NOTHING
            if partition is None or self.words is None
            else indexed_words(partition, self.words_of(session, columns))
        )

    def _unindex(
        self,
        within: Transaction,
        columns: Columns,
        was: IndexedRow | None,
        staying_in: int | None = None,
        keep_words: bool = False,
    ) -> None:
        if self.words is not None and not keep_words:
            within.index_changes(self.collection, self.words).remove(columns[NUMBER], was)
        if (partition := partition_of(columns)) not in (None, staying_in):
            within.touch(self.revisions, partition, removed=True)

    # -- the quarantine ----------------------------------------------------------------

    async def quarantine(self, connection: Session, unreadable: DamagedRow) -> None:
        """Quarantine a row, if it still cannot be read: it may have changed since."""
        key, within = unreadable.key, Transaction(connection)
        for columns in self.at(connection, [unreadable.columns[NUMBER]]):
            if self.codec.is_quarantined(columns) or not isinstance(
                slot_of(self.collection, key, self.held_in(columns, key)).stored_value, Corrupt
            ):
                continue
            content = {
                name: value for name, value in zip(self.columns, columns, strict=True) if name != "number"
            }
            quarantine.keep(connection, self.name, key, partition_of(columns), unreadable.problem, content)
            self._unindex(within, columns, None)
            self.update(
                connection,
                columns[NUMBER],
                self.codec.laid_out(corrupt_row(key, self.codec.version(columns))),
            )
        within.finish()

    async def quarantined_keys(
        self, connection: Session, where: Where, partitions: Sequence[int]
    ) -> list[Key]:
        return quarantine.keys(connection, self.name, where, partitions)

    async def problem(self, connection: Session, key: Key) -> str | None:
        return quarantine.problem(connection, self.name, key)


def partition_of(columns: Columns) -> int | None:
    """Return the number of a live record's partition."""
    partition = columns[PARTITION]
    return partition if isinstance(partition, int) else None


NO_PATHS = frozenset[tuple[str, ...]]()
_known: dict[tuple[int, int, frozenset[tuple[str, ...]]], SqliteTable] = {}


def index_bodies(session: Session, collections: Mapping[str, Collection]) -> None:
    """Make the missing indexes on values in bodies."""
    for name, paths in session.declared.json_paths.items():
        table = table_of(session, collections[name]).tables.table
        for index in body_indexes(table, paths, SqliteConditions, lambda label, of=name: f"ix_{of}_{label}"):  # type: ignore[misc]
            session.run(
                str(sa.schema.CreateIndex(index, if_not_exists=True).compile(dialect=sqlite.dialect()))
            )


def table_of(session: Session, collection: Collection) -> SqliteTable:
    """Return the table of a collection as it is.

    It is found by identity first: hashing a declaration takes longer than many
    statements.
    """
    collection, thresholds = session.declared.tables.get(collection.name, collection), session.thresholds
    paths = session.declared.json_paths.get(collection.name, NO_PATHS)
    place = (id(collection), id(thresholds), paths)
    table = _known.get(place)
    if table is None or table.collection is not collection or table.thresholds is not thresholds:
        table = SqliteTable(collection, thresholds)
        table.shaper.json_paths = paths
        if len(_known) > 256:
            _known.clear()
        _known[place] = table
    return table
