"""Comparison of the rows under one key, over all stores, with the expected state.

The expected state is one home, replicas equal to it, and no row of a deleted record.

The functions are pure. A difference follows from the rows that were read, in the
direction in which records move, and from which stores were rolled back (see
`rollback_detection`). Each answer is one step towards the expected state, and leaves
fewer differences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from memory.orchestrator.storage.kinds import Kind
from memory.orchestrator.storage.topology import Topology
from memory.ports.record import Corrupt, Key, Mark, Partition, Record, Role, Standing, Stored, Tombstone
from memory.ports.store import Store


class DifferenceKind(StrEnum):
    """The kind of a difference, in words that are shown to people."""

    BACK = "deleted, but stored again"
    TWO_HOMES = "two homes, of which the later one counts"
    EDITED_WHERE_IT_WAS = "edited in the store that it had left"
    OLD_HOME = "home older than its replica"
    NO_HOME = "no home, but a replica with its content"
    MOVED_ON = "a copy that should be the home, by a mark or after a rollback"
    NO_REPLICA = "the expected replica is missing"
    UNSURE = "a copy without a home, in stores that were not rolled back lately"
    LOST = "lost: a mark names the store that should have it, and it is not there"
    PAST_BACK = "an earlier version of a deleted entry"
    OLDER_THAN_ITS_PAST = "home not newer than one of its kept versions"
    ONLY_ITS_PAST = "only its earlier versions are left"


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference.

    It names the copy, its store, the row it is compared with, and the tier to which it
    belongs.
    """

    differs: DifferenceKind
    store: Store
    standing: Standing
    against: Stored | None = None
    tier: str = ""

    @property
    def key(self) -> Key:
        return self.standing.key


WasSetBack: TypeAlias = Callable[[Store, Partition], bool]
"""Whether a store's records of a partition were rolled back, within the time that
tombstones last.
"""
Rows: TypeAlias = Sequence[tuple[Store, Stored | None]]
"""The rows under one key, store by store, in the direction in which records move."""


def difference(topology: Topology, kind: Kind, rows: Rows, was_set_back: WasSetBack) -> Difference | None:
    """Return the first difference under a key.

    None if there is none, or if a row cannot be read.
    """
    if any(isinstance(row, Corrupt) for _, row in rows):
        return None
    records = [(store, row) for store, row in rows if isinstance(row, Record) and row.role is not Role.CACHED]
    tombstones = [row for _, row in rows if isinstance(row, Tombstone)]
    deleted = max(tombstones, key=lambda tombstone: tombstone.version, default=None)
    for store, record in records:
        if deleted is not None and deleted.version > record.version:
            return Difference(DifferenceKind.BACK, store, record, deleted)
    homes = [(store, record) for store, record in records if record.role is Role.HOME]
    if len(homes) > 1:
        return _two_homes(homes)
    if homes:
        return _replicas(topology, kind, homes[0], rows)
    marks = [(store, row) for store, row in rows if isinstance(row, Mark)]
    if records:
        return _homeless(topology, kind, records, marks, was_set_back)
    if marks and (deleted is None or deleted.version < marks[-1][1].version):
        return Difference(DifferenceKind.LOST, topology.home(marks[-1][1].to), marks[-1][1])
    return None


def _two_homes(homes: Sequence[tuple[Store, Record]]) -> Difference:
    """Return the difference between two homes.

    Records move to later stores: the later home counts, unless the earlier one was
    edited since.
    """
    (earlier, old), (later, new) = homes[:2]
    if old.version > new.version:
        return Difference(DifferenceKind.EDITED_WHERE_IT_WAS, later, new, old, new.tier)
    return Difference(DifferenceKind.TWO_HOMES, earlier, old, new, new.tier)


def _replicas(topology: Topology, kind: Kind, at_home: tuple[Store, Record], rows: Rows) -> Difference | None:
    home, record = at_home
    there = dict(rows)
    for tier in kind.replicas(record.tier):
        store = topology.home(tier)
        copy = there.get(store)
        if store is home or (
            isinstance(copy, Record) and (copy.role is not Role.REPLICA or copy.version == record.version)
        ):
            continue
        if isinstance(copy, Record) and copy.version > record.version:
            return Difference(DifferenceKind.OLD_HOME, home, record, copy, record.tier)
        if not any(owed.data.get("to") == tier for owed in record.owed):
            return Difference(DifferenceKind.NO_REPLICA, store, record, copy, tier)
    return None


def _homeless(
    topology: Topology,
    kind: Kind,
    records: Sequence[tuple[Store, Record]],
    marks: Sequence[tuple[Store, Mark]],
    was_set_back: WasSetBack,
) -> Difference | None:
    """Return the difference of copies without a home.

    A mark names the home's store. Without a mark, a rolled-back store had the home, or
    has it as a copy that was never made the home.
    """
    for store, copy in records:
        to_here = [mark for _, mark in marks if topology.home(mark.to) is store]
        if to_here and copy.role is Role.ARRIVING and to_here[-1].owed:
            return None  # the step that makes it the home is pending
        if to_here:
            return Difference(DifferenceKind.MOVED_ON, store, copy, to_here[-1], to_here[-1].to)
        if copy.role is Role.ARRIVING and was_set_back(store, copy.partition):
            return Difference(DifferenceKind.MOVED_ON, store, copy, None, copy.tier)
    store, copy = records[-1]
    for tier in topology.serving:
        if (
            copy.role is Role.REPLICA
            and copy.tier in kind.replicas(tier)
            and was_set_back(topology.home(tier), copy.partition)
        ):
            return Difference(DifferenceKind.NO_HOME, topology.home(tier), copy, None, tier)
    if was_set_back(store, copy.partition):
        return Difference(DifferenceKind.MOVED_ON, store, copy, None, copy.tier)
    return Difference(DifferenceKind.UNSURE, store, copy) if copy.role is Role.REPLICA else None
