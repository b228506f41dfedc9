"""The data that writes change beside their rows.

These are partitions with their generations and revisions, and the word index.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from memory.adapters.sql.sqlite.partitions import ONE
from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.words import WordIndex, WordIndexWriter
from memory.ports.collections import Collection
from memory.ports.record import Partition

_ADD = "INSERT INTO memory_partitions (tenant, scope, generation) VALUES (?, ?, 0)"
_RAISE = "UPDATE memory_partitions SET generation = ? WHERE number = ?"
_REMOVED = """INSERT INTO memory_revisions (partition_no, collection, revision, removals) VALUES (?, ?, ?, ?)
ON CONFLICT (partition_no, collection) DO UPDATE SET revision = excluded.revision, removals = excluded.removals"""
_SANE = 2**62  # no count gets this high; do not continue from a damaged revision


class Revisions:
    """The statements about one collection's revision in a partition.

    The revision is the highest of any row there, or the one when a row last left. So
    storing a row costs nothing more.
    """

    def __init__(self, collection: str) -> None:
        self.collection = collection
        newest = f'coalesce((SELECT max(revision) FROM "{collection}" WHERE partition_no = p.number AND revision < {_SANE}), 0)'  # noqa: S608
        revision = f"max({newest}, coalesce(r.revision, 0)), coalesce(r.removals, 0)"
        left = (
            f"LEFT JOIN memory_revisions AS r ON r.partition_no = p.number AND r.collection = '{collection}'"
        )
        self.state = f"SELECT p.number, p.generation, {revision} FROM memory_partitions AS p {left} WHERE p.tenant = ? AND p.scope = ?"  # noqa: S608
        self.current = f"SELECT {revision} FROM (SELECT ? AS number) AS p {left}"  # noqa: S608
        self._all = f"SELECT p.number, {revision} FROM (SELECT value AS number FROM json_each(?)) AS p {left}"  # noqa: S608

    def of(self, session: Session, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return the revision of each partition, and how often a row has left it.

        Partitions that never held a row are left out.
        """
        if len(partitions) == 1:
            revision, removals = session.row(self.current, partitions)
            return {partitions[0]: (revision, removals)} if revision else {}
        rows = session.rows(self._all, (json.dumps(partitions, separators=(",", ":")),))
        return {number: (revision, removals) for number, revision, removals in rows if revision}


@dataclass(slots=True)
class Revision:
    """The revision that a write transaction found, and the one that it will leave."""

    number: int
    removals: int
    touched: bool = False
    removed: bool = False


class Transaction:
    """The shared state of some writes within one transaction; `finish` writes it.

    Others may follow in the same transaction.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._partitions: dict[Partition, tuple[int, int]] = {}
        self._revisions: dict[tuple[str, int], Revision] = {}
        self._indexings: dict[str, WordIndexWriter] = {}

    def ensure_partition(self, revisions: Revisions, partition: Partition) -> tuple[int, int]:
        """Return the partition's number and generation; make a missing partition."""
        known = self._partitions.get(partition)
        if known is None:
            row = self.session.row(revisions.state, (partition.tenant, partition.scope))
            number, generation, revision, removals = row or (self._add(partition), 0, 0, 0)
            known = self._partitions[partition] = (number, generation)
            self._revisions.setdefault((revisions.collection, number), Revision(revision, removals))
        return known

    def _add(self, partition: Partition) -> int:
        return self.session.run(_ADD, (partition.tenant, partition.scope))

    def generation(self, partition: Partition) -> int:
        """Return the partition's generation; looking makes nothing."""
        known = self._partitions.get(partition)
        if known is not None:
            return known[1]
        row = self.session.row(ONE, (partition.tenant, partition.scope))
        return 0 if row is None else int(row[1])

    def raise_to(self, partition: Partition, generation: int) -> None:
        row = self.session.row(ONE, (partition.tenant, partition.scope))
        number = int(row[0]) if row else self._add(partition)
        self.session.run(_RAISE, (generation, number))
        self._partitions[partition] = (number, generation)

    def touch(self, revisions: Revisions, partition: int, removed: bool = False) -> int:
        """Return the revision for rows that this transaction changes."""
        revision = self._revisions.get((revisions.collection, partition))
        if revision is None:
            revision = self._revisions[(revisions.collection, partition)] = Revision(
                *self.session.row(revisions.current, (partition,))
            )
        if not revision.touched:
            revision.touched = True
            revision.number += 1
        if removed:
            revision.removed = True
            revision.removals += 1
        return revision.number

    def index_changes(self, collection: Collection, index: WordIndex) -> WordIndexWriter:
        """Return the word changes of a collection that has texts."""
        indexing = self._indexings.get(collection.name)
        if indexing is None:
            indexing = self._indexings[collection.name] = WordIndexWriter(self.session, collection, index)
        return indexing

    def finish(self) -> None:
        """Do the work that is done once, before the commit."""
        for indexing in self._indexings.values():
            indexing.finish()
        for (collection, partition), revision in self._revisions.items():
            if revision.removed:
                self.session.run(_REMOVED, (partition, collection, revision.number, revision.removals))
