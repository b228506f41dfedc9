"""The statements of one collection: the interface between shared code and dialects."""

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
from memory.adapters.sql.shapes import Shape, Shaper, Values, by_body, names
from memory.adapters.sql.thresholds import SqlThresholds
from memory.ports.batch import NOTHING, StoredRow
from memory.ports.collections import Collection
from memory.ports.query import Order, Query, RowType, Tenant, Where
from memory.ports.record import Corrupt, Key, Stored
from memory.ports.rows import Row, stored_of

C = TypeVar("C")
Columns: TypeAlias = Sequence[Any]
"""The values read of a row: those of `Table.columns`."""


@dataclass(frozen=True, slots=True)
class DamagedRow:
    """An unreadable row as it was read under a key, to be moved into the quarantine."""

    columns: Columns
    key: Key
    problem: str


class Table(ABC, Generic[C]):
    """The statements of one collection on connections of type C."""

    dialect: ClassVar[sa.Dialect]
    few_passing: ClassVar[int] = 0
    """How many rows a bound on a value in bodies lets pass, if an index is used for it.

    They are counted first. With 0 the server decides by its statistics.
    """
    beside: ClassVar[tuple[str, ...]] = ("partition_no",)
    any_quarantined: str
    """An SQL expression: whether any row of the collection is in the quarantine."""

    def __init__(self, codec: Codec, shaper: Shaper, table: sa.Table, thresholds: SqlThresholds) -> None:
        self.collection: Collection = codec.collection
        self.name = codec.collection.name
        self.codec, self.shaper, self.table, self.thresholds = codec, shaper, table, thresholds
        self.checksum = codec.columns[-1]
        self.columns = (*codec.columns, *self.beside)
        """The columns read of a row: its contents, then those stored beside them.

        The number of its partition is the last.
        """
        self.prepared: dict[Any, Statement] = {}
        self._selections: dict[frozenset[str], Selection] = {}
        self.keyed = keyed_fields(codec.collection)
        self.ordering = ordering(codec.collection)

    def selection(self, select: frozenset[str]) -> Selection:
        """Return how to read heads with this selection."""
        made = self._selections.get(select)
        if made is None:
            made = self._selections[select] = Selection(self.codec, select)
        return made

    def conditions(self) -> Conditions:
        """Return conditions for one statement about the table."""
        return Conditions(self.table)

    def walks(self, query: Query, partitions: Sequence[int], few: Shape | None = None) -> bool:
        """Whether an index returns the answers in order, so that a page walks along it.

        An index does so for one partition by creation or by an ordered text, with any
        filter. For a tenant it does so by a required field, unless an index on another
        field finds the rows.
        """
        if isinstance(query.where, Tenant):
            ordered = (
                len(query.order) == 1
                and query.order[0].field in self.ordering
                and query.types == {RowType.RECORD}
            )
            chosen = self.shaper.filter(query.filter, [])
            return ordered and not names(chosen, self.keyed) and not by_body(chosen, few)
        return len(partitions) == 1 and self.walks_partition(query.order)

    def walks_partition(self, order: Sequence[Order]) -> bool:
        """Whether an index of partitions returns rows in this order.

        A page is then read by walking the index; the filter does not matter.
        """
        return len(order) == 1 and (
            order[0].field == "created_at" or order[0].field in self.collection.ordered_texts
        )

    def with_index_hint(
        self, statement: sa.Select[Any], where: Shape, order: Sequence[Order]
    ) -> sa.Select[Any]:
        """Return the statement of a page, with a hint where the optimizer needs one.

        The hint names the index to walk along.
        """
        return statement

    def held_in(self, columns: Columns | None, key: Key) -> StoredRow:
        """Return the contents of the row found under the key, to decide a write."""
        if columns is None:
            return NOTHING
        row, problem = self.read_row(columns)
        return StoredRow(None if problem else row, columns, problem, self.codec.version(columns))

    def read_row(self, columns: Columns) -> tuple[Row, str]:
        """Return the row, and its problem if it has one; see `Codec.read`."""
        return self.codec.read(columns, columns[len(self.columns) - 1])

    def stored_in(self, columns: Columns) -> Stored:
        """Return the contents of a row, or `Corrupt` if they are not as written."""
        row, problem = self.read_row(columns)
        return Corrupt(self.codec.key(columns), problem) if problem else stored_of(self.collection, row)

    def checksum_of(self, columns: Columns) -> Any:
        """Return the checksum by which the row is recognised again."""
        return columns[len(self.codec.columns) - 1]

    @property
    def matched_columns(self) -> tuple[str, ...]:
        """The columns that `matching` reads of each row first.

        These are all columns, unless a dialect goes through the rows in another way.
        """
        return self.columns

    def paged_columns(
        self, query: Query, partitions: Sequence[int], columns: tuple[str, ...], few: Shape | None = None
    ) -> tuple[str, ...]:
        """Return the columns that the statement of a page reads of each row.

        These are `columns`, unless a dialect finds the rows of a page before it reads
        them.
        """
        return columns

    async def read_page(self, connection: C, found: Sequence[Columns]) -> Sequence[Columns]:
        """Read the needed columns of a page that was found by a query of others."""
        return found

    # -- what a dialect says -----------------------------------------------------------

    @abstractmethod
    async def find(self, connection: C, key: Key) -> Columns | None:
        """Return the row under the key."""

    @abstractmethod
    async def find_all(self, connection: C, keys: Sequence[Key], *, lock: bool = False) -> dict[Key, Columns]:
        """Return the rows under several keys.

        `lock` locks the rows in the order of their keys.
        """

    @abstractmethod
    async def read(self, connection: C, sql: str, values: Values) -> Sequence[Columns]:
        """Return the rows of a prepared question."""

    @abstractmethod
    def lock_matches(
        self, connection: C, sql: str, values: Values
    ) -> AsyncIterator[Sequence[tuple[Columns, bool]]]:
        """Lock the rows of a question of `questions.matches`, and yield some at a time.

        Each row comes with whether it is wanted.
        """

    @abstractmethod
    async def delete_over(self, connection: C, tombstones: Sequence[tuple[StoredRow, Row]]) -> None:
        """Replace each held row with its tombstone, within a transaction.

        This also deletes the row's copy in the quarantine.
        """

    @abstractmethod
    async def quarantine(self, connection: C, unreadable: DamagedRow) -> None:
        """Move a row that still reads as it did into the quarantine.

        A copy goes into the quarantine, and a bare row takes its place.
        """

    @abstractmethod
    async def quarantined_keys(self, connection: C, where: Where, partitions: Sequence[int]) -> list[Key]:
        """Return the keys of the quarantined rows there."""

    @abstractmethod
    async def problem(self, connection: C, key: Key) -> str | None:
        """Return why the row under the key is in the quarantine."""
