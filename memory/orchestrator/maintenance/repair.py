"""Repair: compares the stores, and restores from the others what one store has lost.

A store loses records if it alone is restored to an earlier state. Every step is a
conditional write on what was read, and everything is read again before it. So a repair
may be repeated, run beside writers, and be interrupted, and it never overwrites
anything newer. Deleted records are deleted again. Records that no store has any more
are reported as lost. The rules are in `standings`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from memory.domain.errors import LegalHoldActive, StoreError, TooMuchContention
from memory.domain.maintenance_reports import LostWrite, RolledBackStore, StoreComparison
from memory.domain.time import moment
from memory.orchestrator.conversations.blobs.balances import RESERVATIONS_SCOPE, Balances
from memory.orchestrator.entries.orphans import parents_of
from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.maintenance.vector_rebuild import VectorRebuild
from memory.orchestrator.storage.collections import SAID
from memory.orchestrator.storage.generations import Generations
from memory.orchestrator.storage.kinds import Kind
from memory.orchestrator.storage.outbox import (
    Outbox,
    OutboxRecord,
    StepLifetime,
    deletion_steps,
    keep_version_step,
    write_steps,
)
from memory.orchestrator.storage.past_versions import same_life
from memory.orchestrator.storage.placement import Placement, rejection_error
from memory.orchestrator.storage.rollback_detection import RollbackDetector
from memory.orchestrator.storage.split import SplitStore
from memory.orchestrator.storage.standings import Difference, DifferenceKind, Rows, WasSetBack, difference
from memory.orchestrator.storage.topology import leaves_of
from memory.orchestrator.storage.versions import kept_version, version_key
from memory.orchestrator.tiering.moves import TierMover
from memory.ports.collections import Collection
from memory.ports.query import Eq, Everywhere, Query, RowType, within
from memory.ports.record import Corrupt, Key, Mark, Partition, PendingStep, Record, Role, Stored, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Absent, Annotate, AtVersion, Delete, Newer, Put, Release, Status

log = logging.getLogger(__name__)

AT_ONCE = 100
"""How many keys are read at once in every store."""
ROUNDS = 6
"""How many steps an entry gets before it is left to the next call."""
LIVE = frozenset({Role.HOME, Role.ARRIVING, Role.REPLICA})

Progress: TypeAlias = Callable[[int, int], None]
Step: TypeAlias = Put | Delete | Release | Annotate


class StoreRepair:
    """Compares and repairs the stores."""

    def __init__(
        self,
        placement: Placement,
        *,
        rollback_detector: RollbackDetector,
        outbox: Outbox,
        erasure: Erasure,
        generations: Generations,
        tier_mover: TierMover,
        vector_rebuild: VectorRebuild,
        balances: Balances,
    ) -> None:
        self._placement = placement
        self._rollback_detector = rollback_detector
        self._outbox = outbox
        self._erasure = erasure
        self._generations = generations
        self._tier_mover = tier_mover
        self._vector_rebuild = vector_rebuild
        self._balances = balances
        self._topology = placement.topology

    async def compare(self, *, repair: bool = False, progress: Progress | None = None) -> StoreComparison:
        """Compare all data of every tenant that more than one store has.

        With `repair`, differences are repaired. One page of keys is compared at a time,
        so memory use grows only with the number of losses. If a store fails, the
        comparison ends, and can be called again.
        """
        set_back = dict(await self._rollback_detector.look())
        work = _Work(repair, set_back, progress, StoreComparison(repaired=repair))
        try:
            if set_back:
                await self._level(work)
            for kind in self._placement.kinds:
                if kind.movable or kind.replicated:
                    await self._entries(kind, work)
                    await self._past(kind, work)
            if set_back:
                for differs, count in (await self._vector_rebuild.compare(repair=repair)).items():
                    work.count(differs, count)
            await self._named_only(work)
            await self._rooms(work)
            if repair and not work.unfinished:
                await self._rollback_detector.note_healed(set_back.values())
        except StoreError as error:
            log.warning("the comparison of the stores ended early: %s", error)
            work.found.error = str(error)
        work.found.unknown = tuple(sentence for one in set_back.values() for sentence in self._unknown(one))
        return work.found

    def _unknown(self, one: RolledBackStore) -> list[str]:
        """Return sentences on losses that no store can name."""
        since = f"since {moment(one.to):%Y-%m-%d %H:%M}" if one.to else "since its start"
        said = [
            f"writes to store '{one.store}' alone {since} and until its restore are lost, and records deleted"
            " only there are back"
        ]
        archive = {leaf.name for leaf in leaves_of(self._topology.archive)}
        if one.store in archive:
            kinds = "sessions, messages, tasks, relations, earlier versions and legal holds"
            said.append(f"{kinds} are only in store '{one.store}': they are as they were then")
        if one.to and self._placement.now() - moment(one.to) > self._placement.settings.tombstone_life:
            said.append(
                f"store '{one.store}' was restored to a state older than tombstones are kept: earlier"
                " deletions may be undone"
            )
        return said

    # -- generations -------------------------------------------------------------------

    async def _level(self, work: _Work) -> None:
        """Repair scopes that some stores have erased and others have not.

        A store that was restored to an earlier state has the lower generation.
        """
        seen = set[Partition]()
        for store in self._topology.homes:
            async for partition, generation in self._placement.partitions(
                "heal.partitions", store, Everywhere()
            ):
                if generation and partition not in seen and not await self._generations.are_level(partition):
                    seen.add(partition)
                    work.count("a scope that a store had not erased")
                    if work.repair:
                        await self._level_one(partition, work)

    async def _level_one(self, partition: Partition, work: _Work) -> None:
        try:
            await self._erasure.holds.refuse_partition(partition)
        except LegalHoldActive as error:
            work.found.left.append(
                f"scope '{partition.scope}' of tenant '{partition.tenant}' was erased, and its data that came"
                f" back stays: {error}"
            )
        else:
            await self._generations.level(partition)

    # -- entries -----------------------------------------------------------------------

    async def _entries(self, kind: Kind, work: _Work) -> None:
        for store in self._topology.homes:
            copies = Query(kind.collection, Everywhere(), limit=AT_ONCE, roles=LIVE, select=frozenset())
            work.total += (await store.count(replace(copies, select=None))).records
            marks = Query(kind.collection, Everywhere(), limit=AT_ONCE, types=frozenset({RowType.MARK}))
            for query in (copies, marks):
                async for page in self._placement.pages("heal.find", store, query):
                    keys = [found.key for found in (*page.heads, *page.records)]
                    rows = await self._rows(kind.collection, keys)
                    first = {key: there for key, there in rows.items() if _first(there) is store}
                    work.found.entries += len(first) if query is copies else 0
                    await self._settle(kind, first, work)
                    work.tell(len(keys) if query is copies else 0)

    async def _rows(self, collection: Collection, keys: Sequence[Key]) -> dict[Key, Rows]:
        """Return the rows of these keys, store by store in the direction of moves.

        A record that moves meanwhile is then found at its source or at its target.
        """
        found: dict[Key, list[tuple[Store, Stored | None]]] = {key: [] for key in keys}
        for store in self._topology.homes:
            rows = await self._placement.read("heal.look", store, collection, list(found)) if found else []
            for key, row in zip(found, rows, strict=True):
                found[key].append((store, row))
        return dict(found)

    def _differences(self, kind: Kind, rows: Mapping[Key, Rows], work: _Work) -> dict[Key, Difference]:
        was_set_back = self._was_set_back(kind.collection, work)
        found = {key: difference(self._topology, kind, there, was_set_back) for key, there in rows.items()}
        return {key: one for key, one in found.items() if one is not None}

    def _was_set_back(self, collection: Collection, work: _Work) -> WasSetBack:
        oldest = self._placement.now() - self._placement.settings.tombstone_life

        def was_set_back(store: Store, partition: Partition) -> bool:
            leaf = store.holder(partition, collection) if isinstance(store, SplitStore) else store
            found = work.set_back.get(leaf.name)
            return found is not None and (not found.to or moment(found.to) >= oldest)

        return was_set_back

    async def _settle(self, kind: Kind, rows: Mapping[Key, Rows], work: _Work) -> None:
        """Repair step by step until nothing differs.

        Differences are read again first, because a writer may have been between two
        stores.
        """
        found, counted = self._differences(kind, rows, work), set[tuple[Key, DifferenceKind]]()
        for _ in range(ROUNDS):
            if not found:
                return
            again = self._differences(kind, await self._rows(kind.collection, list(found)), work)
            same = {key: one for key, one in again.items() if one == found[key]}
            others = {key: one for key, one in again.items() if key not in same}
            for one in same.values():
                if (one.key, one.differs) not in counted:
                    counted.add((one.key, one.differs))
                    _tell(one, work)
            steps = await self._exclude_held(
                [
                    one
                    for one in same.values()
                    if work.repair and one.differs not in (DifferenceKind.LOST, DifferenceKind.UNSURE)
                ],
                work,
            )
            for store in dict.fromkeys(self._place(one) for one in steps):
                await self._carry_out(kind, store, [one for one in steps if self._place(one) is store], work)
            left = await self._rows(kind.collection, [one.key for one in steps])
            found = others | self._differences(kind, left, work)
        for one in found.values():
            work.leave(one.key, str(one.differs))

    async def _exclude_held(self, steps: Sequence[Difference], work: _Work) -> list[Difference]:
        """Return the steps that delete nothing under legal hold."""
        deleted = [
            one.standing
            for one in steps
            if one.differs is DifferenceKind.BACK and isinstance(one.standing, Record)
        ]
        held = await self._erasure.holds.over(deleted)
        work.found.left += [
            f"entry {key.id} of tenant '{key.tenant}' was deleted, and its copy that came back stays: {error}"
            for key, error in held.items()
        ]
        return [one for one in steps if one.key not in held]

    def _place(self, one: Difference) -> Store:
        """Return the store that is written to first."""
        return self._topology.archive if one.differs is DifferenceKind.EDITED_WHERE_IT_WAS else one.store

    async def _carry_out(self, kind: Kind, store: Store, some: Sequence[Difference], work: _Work) -> None:
        """Write the steps to one store, then carry out their pending steps."""
        writes: list[Step] = []
        for one in some:
            writes.append(await self._write(kind, one, work))
        outcomes = await self._placement.write("heal.write", store, *writes)
        owing: list[OutboxRecord] = []
        for one, write, outcome in zip(some, writes, outcomes, strict=True):
            stands = outcome.stored
            if (error := rejection_error(store, outcome)) is not None:
                work.leave(one.key, str(error))
            elif (
                outcome.status is Status.CONFLICT
                and isinstance(stands, Record | Mark | Tombstone)
                and stands.owed
            ):
                owing.append(OutboxRecord(kind.collection, store, stands))  # the next round finds it gone
            elif outcome.applied and isinstance(write, Delete) and write.owed:
                owing.append(
                    OutboxRecord(kind.collection, store, Tombstone(write.key, write.version, write.owed))
                )
            elif outcome.applied and isinstance(write, Put) and write.record.owed:
                owing.append(
                    OutboxRecord(kind.collection, store, replace(write.record, generation=outcome.generation))
                )
        await self._outbox.finish_all(owing)
        for one in some:
            if one.differs is DifferenceKind.EDITED_WHERE_IT_WAS:
                await self._tier_mover.move(kind.collection, one.key, one.tier)

    async def _write(self, kind: Kind, one: Difference, work: _Work) -> Step:
        collection, stands, now = kind.collection, one.standing, self._placement.now()
        edited = self._outbox.completed_steps(StepLifetime.EDITED)
        if isinstance(stands, Record):
            match one.differs, one.against:
                case DifferenceKind.BACK, Tombstone(version=version):
                    return self._deletion(kind, stands, one.store, version)
                case DifferenceKind.TWO_HOMES, _:
                    return Release(
                        collection,
                        one.key,
                        at=stands.version,
                        to=one.tier,
                        discard_at=now + self._placement.settings.mark_life,
                        settles=edited,
                    )
                case DifferenceKind.EDITED_WHERE_IT_WAS, Record() as newer if kind.versions is not None:
                    return Put(kind.versions, kept_version(stands, newer.version), Absent())
                case DifferenceKind.OLD_HOME, Record() as copy:
                    return self._replica_put(kind, stands, copy, one, work)
                case DifferenceKind.NO_HOME, _:
                    previous = await self._previous(kind, stands)
                    if previous != stands.previous:
                        work.lose(one.key, "its earlier versions; its latest content is kept")
                    return Put(
                        collection, replace(stands, role=Role.HOME, tier=one.tier, previous=previous), Newer()
                    )
                case DifferenceKind.MOVED_ON, _:
                    return Annotate(
                        collection,
                        one.key,
                        at=stands.version,
                        role_is=stands.role,
                        role=Role.HOME,
                        tier=one.tier,
                    )
                case DifferenceKind.NO_REPLICA, _:
                    return Put(
                        collection, replace(stands, role=Role.REPLICA, tier=one.tier, owed=()), Newer()
                    )
        raise AssertionError(f"no step repairs an entry that is {one.differs}")

    def _deletion(self, kind: Kind, record: Record, store: Store, version: int) -> Delete:
        if record.role is Role.HOME:
            return self._erasure.deletion(kind.collection, record, store, version)
        until, drops = self._placement.tombstone_until(), self._outbox.completed_steps(StepLifetime.DELETED)
        return Delete(
            kind.collection,
            record.key,
            version=version,
            when=AtVersion(record.version),
            discard_at=until,
            settles=drops,
        )

    def _replica_put(self, kind: Kind, home: Record, copy: Record, one: Difference, work: _Work) -> Put:
        """Return the put that makes a replica's content the home.

        The replaced version is kept if it belongs to the same life.
        """
        owed: tuple[PendingStep, ...] = self._outbox.remaining_steps(home, past=StepLifetime.EDITED)
        if not same_life(home, copy) or kind.versions is None:
            previous, owed = None, (*owed, *deletion_steps(kind, []))
        else:
            previous, owed = (
                home.version,
                (*owed, keep_version_step(kept_version(home, copy.version), kind.versions)),
            )
            if copy.previous != home.version:
                work.lose(one.key, f"its versions between {_when(home)} and {_when(copy)}")
        new = replace(
            copy,
            role=Role.HOME,
            tier=one.tier,
            owed=owed,
            previous=previous,
            accesses=home.accesses,
            accessed_at=home.accessed_at,
        )
        when = AtVersion(home.version, Role.HOME, home.tier)
        return Put(kind.collection, new, when, settles=self._outbox.completed_steps(StepLifetime.EDITED))

    async def _previous(self, kind: Kind, record: Record) -> int | None:
        """Return the version that a record replaced, if it is kept."""
        if kind.versions is None or record.previous is None:
            return None
        row = await self._placement.read_one(
            "heal.look",
            self._topology.archive,
            kind.versions,
            version_key(record.key.tenant, record.key.id, record.previous),
        )
        return record.previous if isinstance(row, Record) else None

    # -- what was kept of them ---------------------------------------------------------

    async def _past(self, kind: Kind, work: _Work) -> None:
        """Compare the kept versions in the archive with entries in other stores.

        Kept versions of lives that ended are found too.
        """
        if kind.versions is None:
            return
        query = Query(kind.versions, Everywhere(), limit=AT_ONCE)
        async for page in self._placement.pages("heal.find", self._topology.archive, query):
            of: dict[Key, list[Record]] = {}
            for row in page.records:
                if isinstance(row, Record):
                    of.setdefault(Key(row.key.tenant, str(row.fields["entry_id"])), []).append(row)
            for key, rows in (await self._rows(kind.collection, list(of))).items():
                for row in of[key]:
                    if (differs := _of_its_past(rows, row)) is not None:
                        await self._mend(kind, key, row, differs, work)

    async def _mend(self, kind: Kind, key: Key, row: Record, differs: DifferenceKind, work: _Work) -> None:
        """Read the rows again, and repair the entry by its newest kept version."""
        rows = (await self._rows(kind.collection, [key]))[key]
        if _of_its_past(rows, row) is not differs:
            return
        if differs is DifferenceKind.PAST_BACK:
            work.count(differs)
            if work.repair and not await self._erasure.delete(
                _versions(kind), row.key, at=row.version, held="left"
            ):
                work.found.left.append(
                    f"an earlier version of entry {key.id} of tenant '{key.tenant}' is under legal hold, or"
                    " was deleted meanwhile"
                )
            return
        newest = max(
            [row, *[one async for one in self._kept_versions(kind, row)]], key=lambda one: one.version
        )
        home = next(
            ((store, one) for store, one in rows if isinstance(one, Record) and one.role is Role.HOME), None
        )
        was_set_back = self._was_set_back(kind.collection, work)
        place = self._where_lost(rows, newest, was_set_back) if home is None else (home[0], home[1].tier)
        if place is None or (home is not None and not was_set_back(home[0], newest.partition)):
            work.lose(key, f"its content after {_when(newest)}; an earlier version is kept")
            return
        if work.lose(key, f"its content after {_when(newest)}; that version is restored"):
            work.count(differs)
        if work.repair:
            await self._put_back(kind, newest, place, None if home is None else home[1])

    def _where_lost(self, rows: Rows, newest: Record, was_set_back: WasSetBack) -> tuple[Store, str] | None:
        """Return the place of an entry of which only kept versions exist.

        It is the place that a mark names, or the only store that was restored.
        """
        marks = [row for _, row in rows if isinstance(row, Mark)]
        if marks:
            return self._topology.home(marks[-1].to), marks[-1].to
        archive = self._topology.archive
        places = [
            store
            for store in self._topology.homes
            if store is not archive and was_set_back(store, newest.partition)
        ]
        return (
            (places[0], self._topology.tiers_of(places[0])[0])
            if len(places) == 1 and not was_set_back(archive, newest.partition)
            else None
        )

    async def _kept_versions(self, kind: Kind, row: Record) -> AsyncIterator[Record]:
        """Yield the kept versions of the same life of an entry."""
        found = Query(
            _versions(kind), within(row.partition), Eq("entry_id", row.fields["entry_id"]), limit=AT_ONCE
        )
        async for page in self._placement.pages("heal.past", self._topology.archive, found):
            for one in page.records:
                if isinstance(one, Record) and same_life(one, row):
                    yield one

    async def _put_back(
        self, kind: Kind, newest: Record, place: tuple[Store, str], home: Record | None
    ) -> None:
        """Store a kept version's content as a new version.

        It stays true that the kept version is an earlier one.
        """
        store, tier = place
        version = self._placement.next_version(0 if home is None else max(home.version, newest.version))
        fields = {
            name: value
            for name, value in newest.fields.items()
            if name not in ("entry_id", "stored_version", "replaced_version", SAID)
        }
        again = replace(
            newest,
            key=Key(newest.key.tenant, str(newest.fields["entry_id"])),
            version=version,
            updated_at=moment(version),
            fields=fields,
            tier=tier,
            previous=newest.version,
        )
        again = replace(again, owed=write_steps(self._placement, kind.collection, again, store))
        when = Newer() if home is None else AtVersion(home.version, Role.HOME, home.tier)
        put = Put(kind.collection, again, when, settles=self._outbox.completed_steps(StepLifetime.EDITED))
        outcome = await self._placement.write_one("heal.write", store, put)
        if outcome.applied:
            await self._outbox.finish(
                OutboxRecord(kind.collection, store, replace(again, generation=outcome.generation))
            )

    # -- what others name --------------------------------------------------------------

    async def _named_only(self, work: _Work) -> None:
        """Report entries of which only references are left."""
        for kind in self._placement.kinds:
            for child, fields in kind.named_by.items():
                query = Query(child, Everywhere(), limit=AT_ONCE, select=frozenset(fields))
                async for page in self._placement.pages("heal.find", self._topology.archive, query):
                    named = {parent for head in page.heads for parent in parents_of(head, fields)}
                    for key, rows in (await self._rows(kind.collection, sorted(named))).items():
                        if all(row is None for _, row in rows) and await self._is_nowhere(kind, key):
                            work.lose(key, f"all of it: only {child.name} that name it are left")

    async def _is_nowhere(self, kind: Kind, key: Key) -> bool:
        return all(row is None for _, row in (await self._rows(kind.collection, [key]))[key])

    # -- what artifacts and large texts take -------------------------------------------

    async def _rooms(self, work: _Work) -> None:
        """Compare balances with their reservations, and recount those that differ.

        A balance is in one store only, but summarises many records.
        """
        archive = self._topology.archive
        tenants = [
            one.tenant
            async for one, _ in self._placement.partitions("heal.partitions", archive, Everywhere())
            if one.scope == RESERVATIONS_SCOPE
        ]
        for tenant in tenants:
            if (differs := await self._balances.compare(tenant)) is not None:
                work.count(str(differs))
                if work.repair:
                    try:
                        await self._balances.recount(tenant, differs.version)
                    except TooMuchContention as error:
                        work.found.left.append(
                            f"the usage record of tenant '{tenant}' is being changed by others: {error}; try"
                            " again"
                        )


@dataclass(slots=True)
class _Work:
    """The state of one comparison."""

    repair: bool
    set_back: Mapping[str, RolledBackStore]
    progress: Progress | None
    found: StoreComparison
    total: int = 0
    done: int = 0
    lost: set[tuple[Key, str]] = field(default_factory=set)

    unfinished: bool = False

    def count(self, differs: str, times: int = 1) -> None:
        self.found.differs[str(differs)] = self.found.differs.get(str(differs), 0) + times

    def leave(self, key: Key, why: str) -> None:
        """Report a difference that another call may repair."""
        self.unfinished = True
        self.found.left.append(f"entry {key.id} of tenant '{key.tenant}': {why}; try again")

    def lose(self, key: Key, said: str) -> bool:
        """Report a loss once; return whether it is new."""
        if (key, said) in self.lost:
            return False
        self.lost.add((key, said))
        self.found.lost.append(LostWrite(key.tenant, key.id, said))
        return True

    def tell(self, more: int) -> None:
        self.done += more
        if self.progress is not None:
            self.progress(self.done, max(self.done, self.total))


def _first(rows: Rows) -> Store | None:
    """Return the first store with a copy or a mark; it compares the key."""
    return next((store for store, row in rows if isinstance(row, Record | Mark)), None)


def _tell(one: Difference, work: _Work) -> None:
    """Report a difference, and the part of it that is lost."""
    if one.differs is DifferenceKind.LOST:
        work.lose(one.key, f"all of it: it had moved to '{one.store.name}', which does not have it")
        return
    work.count(one.differs)
    if one.differs is DifferenceKind.UNSURE and work.repair:
        work.found.left.append(
            f"entry {one.key.id} of tenant '{one.key.tenant}' is {one.differs}; it was not changed"
        )
    marked = one.against.version if isinstance(one.against, Mark) else 0
    if (
        one.differs is DifferenceKind.MOVED_ON
        and isinstance(one.standing, Record)
        and one.standing.version < marked
    ):
        work.lose(one.key, f"its content after {_when(one.standing)}; it is as it was then")


def _of_its_past(rows: Rows, kept: Record) -> DifferenceKind | None:
    """Return how an entry differs from this kept version, if at all."""
    standing = [row for _, row in rows if row is not None]
    if any(isinstance(row, Corrupt) for row in standing):
        return None
    records = [row for row in standing if isinstance(row, Record)]
    if not records:
        deleted = any(isinstance(row, Tombstone) and row.version > kept.version for row in standing)
        return DifferenceKind.PAST_BACK if deleted else DifferenceKind.ONLY_ITS_PAST
    homes = [row for row in records if row.role is Role.HOME]
    if len(homes) != 1:
        return None
    if not same_life(homes[0], kept) and kept.version < homes[0].version:
        return DifferenceKind.PAST_BACK
    return DifferenceKind.OLDER_THAN_ITS_PAST if homes[0].version <= kept.version else None


def _versions(kind: Kind) -> Collection:
    assert kind.versions is not None  # noqa: S101 - asked before
    return kind.versions


def _when(standing: Record) -> str:
    return f"{moment(standing.version):%Y-%m-%d %H:%M:%S}"
