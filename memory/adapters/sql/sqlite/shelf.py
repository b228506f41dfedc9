"""One collection's rows: the prepared statements that find, store and set aside a row by its key or number."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from memory.adapters.sql.columns import keyed
from memory.adapters.sql.heads import Heads
from memory.adapters.sql.shapes import Shaper
from memory.adapters.sql.sqlite.rows import KIND, PARTITION, VERSION, fingerprint, layout_of
from memory.adapters.sql.sqlite.schema import Tables, tables_of
from memory.adapters.sql.sqlite.session import Session, chunked
from memory.adapters.sql.sqlite.words import WordIndex
from memory.adapters.sql.values import CORRUPT, DECODERS, Row
from memory.domain.time import micros
from memory.ports.clock import system_clock
from memory.ports.collections import Collection
from memory.ports.query import Everywhere, Tenant, Where
from memory.ports.record import Corrupt, Key, Stored

_SANE = 2**62  # no revision gets there by counting: a damaged one is not to be counted on from
LOST = "an index of the file does not lead to it"

_ASIDE = """INSERT INTO memory_quarantine (collection, tenant, id, partition_no, problem, found_at, content) VALUES (?, ?, ?, ?, ?, ?, ?)"""
_ASIDE_NO_MORE = "DELETE FROM memory_quarantine WHERE collection = ? AND tenant = ? AND id = ?"
_PROBLEM = "SELECT problem FROM memory_quarantine WHERE collection = ? AND tenant = ? AND id = ?"
_ANY_ASIDE = "SELECT 1 FROM memory_quarantine WHERE collection = ? LIMIT 1"


@dataclass(frozen=True, slots=True)
class Found:
    """A row as it stands, and its number."""

    number: int
    row: Row

    @property
    def kind(self) -> str:
        return str(self.row[KIND])

    @property
    def version(self) -> int:
        version = self.row[VERSION]
        return version if isinstance(version, int) else 0

    @property
    def partition(self) -> int | None:
        partition = self.row[PARTITION]
        return partition if isinstance(partition, int) else None


class Shelf:
    """The statements of one collection."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self.name = collection.name
        self.layout = layout_of(collection)
        self.tables: Tables = tables_of(collection)
        self.table: sa.Table = self.tables.table
        self.words: WordIndex | None = self.layout.index
        self.shaper = Shaper(collection, self.layout.at)
        self.keyed = keyed(collection)
        self.prepared: dict[Any, Any] = {}  # see `statements`
        self._heads: dict[frozenset[str], Heads] = {}
        self.row_columns = [self.table.c[c] for c in ("number", *self.layout.columns)]
        columns = ", ".join(f"[{c}]" for c in self.layout.columns)  # in quotation marks the name of a column that is not there would be a text
        name = f'"{self.name}"'
        self._find = f"SELECT number, {columns} FROM {name} WHERE tenant = ? AND id = ?"  # noqa: S608
        self._find_otherwise = f"SELECT number, {columns} FROM {name} WHERE fingerprint = ?"  # noqa: S608
        self._at = f"SELECT number, {columns} FROM {name} WHERE number = ?"  # noqa: S608
        self._insert = f"INSERT INTO {name} ({columns}) VALUES ({', '.join('?' * len(self.layout.columns))})"  # noqa: S608
        self._update = f"UPDATE {name} SET " + ", ".join(f"[{c}] = ?" for c in self.layout.columns) + " WHERE number = ?"  # noqa: S608
        self._remove = f"DELETE FROM {name} WHERE number = ?"  # noqa: S608
        self._insert_absent = f"{self._insert} ON CONFLICT DO NOTHING"
        self.members_since = f"SELECT number, role, words FROM {name} WHERE partition_no = ? AND revision > ?"  # noqa: S608
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

    def heads(self, select: frozenset[str]) -> Heads:
        """How heads with this selection are read."""
        made = self._heads.get(select)
        if made is None:
            made = self._heads[select] = Heads(self.collection, select, self.layout.at, DECODERS)
        return made

    def find(self, session: Session, key: Key) -> Found | None:
        """The row under the key. Where the index finds none a second one is asked: a damaged index must not hide a record."""
        found = session.row(self._find, (key.tenant, key.id))
        if found is None:
            found = session.row(self._find_otherwise, (fingerprint(key.tenant, key.id),))
            if found is None:
                return None
        return Found(found[0], found[1:])

    def at(self, session: Session, numbers: Sequence[int]) -> list[Found]:
        """The rows of these numbers, in no order."""
        if not numbers:
            return []
        most = session.thresholds.rows_at_once
        if len(numbers) > most:
            return [found for chunk in chunked(numbers, most) for found in self.at(session, chunk)]
        wide = 1 << (len(numbers) - 1).bit_length()  # few different statements, so that each is prepared once
        padded = [*numbers, *[numbers[0]] * (wide - len(numbers))]
        return [Found(r[0], r[1:]) for r in session.rows(f"{self._several}({', '.join('?' * wide)})", padded)]

    def live(self, session: Session) -> Iterator[list[Found]]:
        """Every live row, some at a time, by ascending number. They may be changed meanwhile."""
        last, most = -(2**63), session.thresholds.rows_at_once
        while rows := session.rows(self._after, (last, most)):
            last = rows[-1][0]
            yield [Found(r[0], r[1:]) for r in rows]

    def stored(self, session: Session, found: Found, key: Key) -> Stored:
        """What the row found under the key says; `Corrupt` where it cannot be read or is another key's."""
        if found.kind == CORRUPT:
            row = session.row(_PROBLEM, (self.name, key.tenant, key.id))
            return Corrupt(key, str(row[0]) if row else "set aside earlier")
        stored = self.layout.read(found.row)
        if isinstance(stored, Corrupt):
            return Corrupt(key, stored.problem)
        return stored if stored.key == key else Corrupt(key, LOST)

    # -- storing ------------------------------------------------------------------------------------------------------

    def insert(self, session: Session, row: Row) -> int:
        return session.run(self._insert, row)

    def insert_absent(self, session: Session, row: Row) -> int | None:
        """None, and nothing changed, where something stands under the row's key: either of two indexes may say so."""
        return session.insert(self._insert_absent, row)

    def update(self, session: Session, number: int, row: Row) -> None:
        session.run(self._update, (*row, number))

    def remove(self, session: Session, number: int) -> None:
        session.run(self._remove, (number,))

    # -- setting aside ------------------------------------------------------------------------------------------------

    def set_aside(self, session: Session, found: Found, key: Key, partition: int | None, problem: str) -> None:
        """Keep a copy of an unreadable row for people to look at."""
        session.run(_ASIDE_NO_MORE, (self.name, key.tenant, key.id))
        content = json.dumps(dict(zip(self.layout.columns, map(_plain, found.row), strict=True)))
        found_at = micros(system_clock())
        session.run(_ASIDE, (self.name, key.tenant, key.id, partition, problem, found_at, content))

    def forget_aside(self, session: Session, key: Key) -> None:
        session.run(_ASIDE_NO_MORE, (self.name, key.tenant, key.id))

    def aside(self, session: Session, where: Where, partitions: Sequence[int]) -> list[Key]:
        """The keys of the rows set aside there."""
        if session.row(_ANY_ASIDE, (self.name,)) is None:
            return []
        quarantine = self.tables.metadata.tables["memory_quarantine"]
        query = sa.select(quarantine.c.tenant, quarantine.c.id).where(quarantine.c.collection == self.name).order_by("tenant", "id")
        if isinstance(where, Tenant):
            query = query.where(quarantine.c.tenant == where.tenant)
        elif not isinstance(where, Everywhere):
            query = query.where(quarantine.c.partition_no.in_(partitions))
        return [Key(tenant, record_id) for tenant, record_id in session.select(query)]


def _plain(value: Any) -> Any:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


_known: dict[int, Shelf] = {}


def shelf_of(session: Session, collection: Collection) -> Shelf:
    """The shelf of a collection as its table is. Found by identity first: hashing a declaration takes longer than many a statement."""
    collection = session.declared.tables.get(collection.name, collection)
    shelf = _known.get(id(collection))
    if shelf is None or shelf.collection is not collection:
        shelf = Shelf(collection)
        if len(_known) > 256:
            _known.clear()
        _known[id(collection)] = shelf
    return shelf
