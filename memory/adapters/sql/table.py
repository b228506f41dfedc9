"""One collection's statements: what the shared half asks of a dialect."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import sqlalchemy as sa

from memory.adapters.sql.codec import Codec
from memory.adapters.sql.columns import keyed_fields, ordering
from memory.adapters.sql.conditions import Conditions
from memory.adapters.sql.prepared import Statement
from memory.adapters.sql.selection import Selection
from memory.adapters.sql.shapes import Shape, Shaper, Values, names, walks
from memory.adapters.sql.thresholds import SqlThresholds
from memory.ports.batch import NOTHING, StoredRow
from memory.ports.collections import Collection
from memory.ports.query import Order, Query, RowType, Tenant, Where
from memory.ports.record import Corrupt, Key, Stored
from memory.ports.rows import Row, stored_of

C = TypeVar("C")
Columns: TypeAlias = Sequence[Any]
"""What was read of a row: the values of `Table.columns`."""


@dataclass(frozen=True, slots=True)
class DamagedRow:
    """A row found unreadable under a key, as it was read: to be moved into the
    quarantine.
    """

    columns: Columns
    key: Key
    problem: str


class Table(ABC, Generic[C]):
    """The statements of one collection on connections of type C."""

    dialect: ClassVar[sa.Dialect]
    beside: ClassVar[tuple[str, ...]] = ("partition_no",)
    any_quarantined: str
    """An SQL expression: whether any row of the collection is in the quarantine."""

    def __init__(self, codec: Codec, shaper: Shaper, table: sa.Table, thresholds: SqlThresholds) -> None:
        self.collection: Collection = codec.collection
        self.name = codec.collection.name
        self.codec, self.shaper, self.table, self.thresholds = codec, shaper, table, thresholds
        self.checksum = codec.columns[-1]
        self.columns = (*codec.columns, *self.beside)
        """What is read of a row: what it says, and what is kept of it beside, the
        number of its partition the last.
        """
        self.prepared: dict[Any, Statement] = {}
        self._selections: dict[frozenset[str], Selection] = {}
        self.keyed = keyed_fields(codec.collection)
        self.ordering = ordering(codec.collection)

    def selection(self, select: frozenset[str]) -> Selection:
        """How heads with this selection are read."""
        made = self._selections.get(select)
        if made is None:
            made = self._selections[select] = Selection(self.codec, select)
        return made

    def conditions(self) -> Conditions:
        """Conditions of one statement about the table."""
        return Conditions(self.table)

    def walks(self, query: Query, partitions: Sequence[int]) -> bool:
        """Whether an index brings the answers in order, so that a page is read by
        walking along it: those of one partition by creation, whatever the filter; a
        tenant's by a required field, unless an index on another finds them.
        """
        if isinstance(query.where, Tenant):
            ordered = (
                len(query.order) == 1
                and query.order[0].field in self.ordering
                and query.types == {RowType.RECORD}
            )
            return ordered and not names(self.shaper.filter(query.filter, []), self.keyed)
        return len(partitions) == 1 and walks(query.order)

    def with_index_hint(
        self, statement: sa.Select[Any], where: Shape, order: Sequence[Order]
    ) -> sa.Select[Any]:
        """The statement of a page; with a hint at the index to walk along, where a
        dialect's optimizer needs one.
        """
        return statement

    def held_in(self, columns: Columns | None, key: Key) -> StoredRow:
        """What stands in a row that was found under the key, to decide about."""
        if columns is None:
            return NOTHING
        row, problem = self.read_row(columns)
        return StoredRow(None if problem else row, columns, problem, self.codec.version(columns))

    def read_row(self, columns: Columns) -> tuple[Row, str]:
        """The row, and what is wrong with it, see `Codec.read`."""
        return self.codec.read(columns, columns[len(self.columns) - 1])

    def stored_in(self, columns: Columns) -> Stored:
        """What stands in a row; `Corrupt` where that is not what was written."""
        row, problem = self.read_row(columns)
        return Corrupt(self.codec.key(columns), problem) if problem else stored_of(self.collection, row)

    def checksum_of(self, columns: Columns) -> Any:
        """By which the row is known again."""
        return columns[len(self.codec.columns) - 1]

    @property
    def matched_columns(self) -> tuple[str, ...]:
        """What `matching` reads of each row first: all of it, unless a dialect goes
        through the rows in another way.
        """
        return self.columns

    def paged_columns(
        self, query: Query, partitions: Sequence[int], columns: tuple[str, ...]
    ) -> tuple[str, ...]:
        """What the statement of a page reads of each row: these columns, unless a
        dialect finds the rows of a page before it reads them.
        """
        return columns

    async def read_page(self, connection: C, found: Sequence[Columns]) -> Sequence[Columns]:
        """The rows of a page that was found by other columns than were asked for."""
        return found

    # -- what a dialect says -----------------------------------------------------------

    @abstractmethod
    async def find(self, connection: C, key: Key) -> Columns | None:
        """The row under the key."""

    @abstractmethod
    async def find_all(self, connection: C, keys: Sequence[Key], *, lock: bool = False) -> dict[Key, Columns]:
        """The rows under several keys; locked in the order of their keys where asked."""

    @abstractmethod
    async def read(self, connection: C, sql: str, values: Values) -> Sequence[Columns]:
        """The rows that a prepared question asks for."""

    @abstractmethod
    def lock_matches(
        self, connection: C, sql: str, values: Values
    ) -> AsyncIterator[Sequence[tuple[Columns, bool]]]:
        """The rows that a question of `questions.matches` is about, locked, each with
        whether it is wanted, some at a time.
        """

    @abstractmethod
    async def delete_over(self, connection: C, tombstones: Sequence[tuple[StoredRow, Row]]) -> None:
        """Put each tombstone in the place of what was held, within a transaction; what
        the quarantine has of it goes.
        """

    @abstractmethod
    async def quarantine(self, connection: C, unreadable: DamagedRow) -> None:
        """Move a row that still reads as it did out of the way: a copy into the
        quarantine, a bare row in its place.
        """

    @abstractmethod
    async def quarantined_keys(self, connection: C, where: Where, partitions: Sequence[int]) -> list[Key]:
        """The keys of the rows in the quarantine there."""

    @abstractmethod
    async def problem(self, connection: C, key: Key) -> str | None:
        """Why the row under the key is in the quarantine."""
