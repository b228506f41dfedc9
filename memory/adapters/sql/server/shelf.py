"""One collection's statements on a server: what the shared half asks of a dialect."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import sqlalchemy as sa

from memory.adapters.sql.columns import keyed
from memory.adapters.sql.conditions import Conditions
from memory.adapters.sql.heads import Decoders, Heads
from memory.adapters.sql.prepared import Statement
from memory.adapters.sql.server.desk import Held, Layout
from memory.adapters.sql.server.thresholds import ServerThresholds
from memory.adapters.sql.shapes import Shape, Shaper, Values
from memory.adapters.sql.values import CORRUPT
from memory.ports.collections import Collection
from memory.ports.deciding import Slot
from memory.ports.query import Order, Where
from memory.ports.record import Corrupt, FieldValue, Key, Tombstone

C = TypeVar("C")
Row = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Spoiled:
    """A row found unreadable, as it was read: to be set aside."""

    row: Row
    key: Key
    problem: str


class Shelf(ABC, Generic[C]):
    """The statements of one collection on connections of type C. Rows come in the order of `columns`."""

    dialect: ClassVar[sa.Dialect]
    any_aside: str
    """An SQL expression: whether any row of the collection was set aside."""

    def __init__(
        self,
        collection: Collection,
        table: sa.Table,
        layout: Layout,
        shaper: Shaper,
        columns: Sequence[str],
        decoders: Decoders,
        thresholds: ServerThresholds,
    ) -> None:
        self.collection = collection
        self.name = collection.name
        self.table = table
        self.layout = layout
        self.shaper = shaper
        self.thresholds = thresholds
        self.columns = tuple(columns)
        self.at = {name: i for i, name in enumerate(columns)}
        self.prepared: dict[Any, Statement] = {}
        self.row_columns = tuple([table.c[name] for name in columns])
        self._decoders = decoders
        self._heads: dict[frozenset[str], Heads] = {}
        self.keyed = keyed(collection)

    def heads(self, select: frozenset[str]) -> Heads:
        """How heads with this selection are read."""
        made = self._heads.get(select)
        if made is None:
            made = self._heads[select] = Heads(self.collection, select, self.at, self._decoders)
        return made

    def conditions(self) -> Conditions:
        """Conditions of one statement about the table."""
        return Conditions(self.table)

    def walked(self, statement: sa.Select[Any], where: Shape, order: Sequence[Order]) -> sa.Select[Any]:
        """The statement of a page; with a hint at the index to walk along, where a dialect's optimizer needs one."""
        return statement

    def held(self, row: Row | None) -> Held:
        """What stands in a row, to decide about."""
        if row is None:
            return Held(self.layout)
        stored = Corrupt(self.key(row), "set aside earlier") if self.is_aside(row) else self.layout.read(row)
        return Held(self.layout, Slot(stored, self.version(row)), row[self.at["partition_no"]], row)

    @property
    def matched_columns(self) -> Sequence[sa.ColumnElement[Any]]:
        """What `matching` reads of each row first: all of it, unless a dialect goes through the rows in another way."""
        return self.row_columns

    # -- what a row tells without its checksum ------------------------------------------------------------------------

    @abstractmethod
    def shown(self, text: Any) -> str:
        """Text of a column, as it was given."""

    def key(self, row: Row) -> Key:
        return Key(self.shown(row[self.at["tenant"]]), self.shown(row[self.at["id"]]))

    def version(self, row: Row) -> int:
        return int(row[self.at["version"]])

    def is_aside(self, row: Row) -> bool:
        return self.shown(row[self.at["record_kind"]]) == CORRUPT

    def field(self, row: Row, column: str) -> FieldValue:
        """A text column's value."""
        value = row[self.at[column]]
        return None if value is None else self.shown(value)

    # -- what a dialect says ------------------------------------------------------------------------------------------

    @abstractmethod
    async def find(self, connection: C, key: Key) -> Row | None:
        """The row under the key."""

    @abstractmethod
    async def find_all(self, connection: C, keys: Sequence[Key]) -> dict[Key, Row]:
        """The rows under several keys."""

    @abstractmethod
    async def read(self, connection: C, sql: str, values: Values) -> Sequence[Row]:
        """The rows that a prepared question asks for."""

    @abstractmethod
    def matching(self, connection: C, sql: str, values: Values) -> AsyncIterator[Sequence[tuple[Row, bool]]]:
        """The rows that a question of `questions.matches` is about, locked, each with whether it is wanted, some at a time."""

    @abstractmethod
    async def bury(self, connection: C, graves: Sequence[tuple[Row, Tombstone]]) -> None:
        """Put each tombstone in the place of its row, within a transaction; what was set aside of it is forgotten."""

    @abstractmethod
    async def set_aside(self, connection: C, spoiled: Spoiled) -> None:
        """Move a row that still reads as it did out of the way: a copy into the quarantine, a bare row in its place."""

    @abstractmethod
    async def aside(self, connection: C, where: Where, partitions: Sequence[int]) -> list[Key]:
        """The keys of the rows set aside there."""

    @abstractmethod
    async def problem(self, connection: C, key: Key) -> str | None:
        """Why the row under the key was set aside."""
