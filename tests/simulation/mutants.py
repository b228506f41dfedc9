"""Safeguards patched out, each by name: a simulation that does not notice is worth
nothing.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any
from unittest.mock import patch

from memory.adapters.in_memory.state import State
from memory.orchestrator.entries import entries, writing
from memory.orchestrator.entries.browsing import EntryBrowser
from memory.orchestrator.entries.writing import EntryWriter
from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.maintenance.sweeps import Maintenance
from memory.orchestrator.storage import cache
from memory.orchestrator.storage.cache import Cache
from memory.orchestrator.storage.outbox import TOMBSTONE, Outbox, OutboxRecord
from memory.orchestrator.storage.partial_answers import AnswerGaps
from memory.orchestrator.storage.placement import LocatedRecord, Placement
from memory.orchestrator.storage.topology import Topology
from memory.orchestrator.tiering import moves as tiering
from memory.orchestrator.tiering.moves import TierMover
from memory.ports import write_decision
from memory.ports.collections import Collection
from memory.ports.record import Corrupt, Key, PendingStep, Record, Role, Stored
from memory.ports.store import Store
from memory.ports.write_decision import Decision, Slot
from memory.ports.writes import Always, Annotate, Put, Release
from tests.simulation.mutations import MUTATIONS
from tests.simulation.rare_mutations import RARE_MUTATIONS

Patch = tuple[object, str, Any]
"""An object, the name of its attribute, and what to put there."""


@contextmanager
def applied(name: str) -> Iterator[None]:
    """The library without this safeguard, as long as the block lasts."""
    target, attribute, mutated = MUTANTS[name].patch()
    original = inspect.getattr_static(target, attribute)
    if isinstance(original, staticmethod) and not isinstance(mutated, staticmethod):
        mutated = staticmethod(mutated)
    with ExitStack() as stack:
        for owner in {id(target): target, **_importers(target, attribute, original)}.values():
            stack.enter_context(patch.object(owner, attribute, mutated))
        yield


def _importers(target: object, attribute: str, original: object) -> dict[int, object]:
    """The engine's other modules that have a function of this one by its name."""
    if (
        not isinstance(target, ModuleType)
        or not inspect.isfunction(original)
        or original.__module__ != target.__name__
    ):
        return {}
    engine = (m for name, m in sys.modules.items() if name.startswith("memory.orchestrator."))
    return {id(m): m for m in engine if m.__dict__.get(attribute) is original}


async def _done(*_: object) -> bool:
    return True


async def _nothing(*_: object) -> None:
    return None


# -- moves -----------------------------------------------------------------------------


def release_at_any_version() -> Patch:
    """The source lets go of a record that was updated since it was copied."""
    original = write_decision._release

    def release(write: Release, slot: Slot) -> Decision:
        stored = slot.stored_value
        return original(replace(write, at=stored.version) if isinstance(stored, Record) else write, slot)

    return write_decision, "_release", release


def copy_whatever_stands_there() -> Patch:
    """Step 1 of a move overwrites newer copies, marks and tombstones in the target."""
    return tiering, "Newer", Always


def copy_without_the_arriving_flag() -> Patch:
    original = TierMover._copy

    async def copy(
        self: TierMover,
        collection: Collection,
        copies: Mapping[Key, Record],
        source: Store,
        target: Store,
        to: str,
    ) -> Any:
        return await original(
            self,
            collection,
            {key: replace(copy, role=Role.HOME) for key, copy in copies.items()},
            source,
            target,
            to,
        )

    return TierMover, "_copy", copy


def sweep_takes_arriving_copies_of_live_records() -> Patch:
    """A move is verified, its copy is swept away, and then the source lets go."""

    async def no_sources(*_: object) -> dict[Key, Stored]:
        return {}

    return Maintenance, "_sources", no_sources


def release_owes_nothing() -> Patch:
    """A crash after the release leaves a copy that nobody lets arrive."""

    def release(*arguments: Any, **options: Any) -> Release:
        return Release(*arguments, **{**options, "owed": ()})

    return tiering, "Release", release


def browsing_counts_every_arriving_copy() -> Patch:
    """Also those whose source shows no mark to them: a broken-off move of what was
    deleted since.
    """

    async def counting(
        self: EntryBrowser,
        store: Store,
        collection: Collection,
        rows: Sequence[Record],
        lacking: AnswerGaps | None = None,
    ) -> list[Record]:
        return list(rows)

    return EntryBrowser, "authoritative_rows", counting


def targets_are_read_before_sources() -> Patch:
    """A record is met neither in its target, where it is not yet, nor in its source,
    where it is no more.
    """
    return Topology, "homes", property(lambda self: tuple(reversed(self._distinct)))


# -- replicas and owed work ------------------------------------------------------------


def replicas_overwrite_what_is_newer() -> Patch:
    original = Outbox._copy

    def copy(self: Outbox, collection: Collection, owner: Record, owed: PendingStep) -> Put:
        return replace(original(self, collection, owner, owed), when=Always())

    return Outbox, "_copy", copy


def nothing_is_owed_to_replicas() -> Patch:
    return writing, "write_steps", lambda *_: ()


def settling_at_any_version() -> Patch:
    """What a newer version owes is taken away by whoever settled an older one."""
    original = write_decision._annotate

    def annotate(write: Annotate, slot: Slot) -> Decision:
        stored = slot.stored_value
        return original(
            replace(write, at=stored.version) if isinstance(stored, Record) and write.settle else write, slot
        )

    return write_decision, "_annotate", annotate


# -- deletions -------------------------------------------------------------------------


def deletion_leaves_replicas() -> Patch:
    original = Outbox._write

    def write(self: Outbox, pending: OutboxRecord, owed: PendingStep) -> Any:
        return owed.step == TOMBSTONE or original(self, pending, owed)

    return Outbox, "_write", write


def deletion_leaves_kept_versions() -> Patch:
    original = Outbox.erase

    async def erase(self: Outbox, pending: OutboxRecord, data: Mapping[str, Any]) -> bool:
        return "versions" in data or await original(self, pending, data)

    return Outbox, "erase", erase


def erased_generations_are_let_in() -> Patch:
    original = write_decision._put
    return (
        write_decision,
        "_put",
        lambda write, slot, generation: original(
            write, slot, generation if write.record.generation is None else 0
        ),
    )


def erasure_raises_no_generation() -> Patch:
    return State, "raise_generation", lambda self, partition, to: self.generation(partition)


def erasure_is_not_resumed() -> Patch:
    """What a crash cut short in a scope's deletion is taken to be done."""
    return Erasure, "_erase_noted", _done


# -- writes ----------------------------------------------------------------------------


def update_whatever_stands_there() -> Patch:
    return entries, "AtVersion", lambda version, role=None, tier=None: Always()


def marks_hold_no_place() -> Patch:
    """What moved on and was forgotten is written once more by whoever was frozen before
    the first time.
    """
    return tiering, "_is_derived", lambda record: False


def keys_are_looked_up_in_the_first_tier_only() -> Patch:
    return EntryWriter, "_look_for_repeats", _nothing


# -- the cache -------------------------------------------------------------------------


def writers_do_not_invalidate() -> Patch:
    return Cache, "invalidate", _nothing


def fills_ask_for_no_stamp() -> Patch:
    """A reader that was slow to fill keeps what it read before somebody wrote, over the
    writer's stamp.
    """
    return cache, "Put", lambda collection, record, when: Put(collection, record, Always())


# -- what is hidden --------------------------------------------------------------------


def entries_expire_for_searches_only() -> Patch:
    return entries, "is_expired", lambda record, now: False


def retired_entries_are_read_by_id() -> Patch:
    return entries, "is_current", lambda record, now: True


def corrupt_records_are_taken_for_missing() -> Patch:
    """Somebody is told that there is nothing, where there is something that cannot be
    read.
    """
    original = Placement._meet

    def meet(self: Placement, located: LocatedRecord, store: Store, row: Stored | None) -> bool:
        return original(self, located, store, None if isinstance(row, Corrupt) else row)

    return Placement, "_meet", meet


@dataclass(frozen=True, slots=True)
class Mutant:
    """A safeguard patched out, and the steps near which that shows: seeds about these
    are tried first.
    """

    patch: Callable[[], Patch]
    near: tuple[str, ...]


MUTANTS: dict[str, Mutant] = {
    patched.__name__.replace("_", "-"): Mutant(patched, near)
    for patched, near in (
        (release_at_any_version, ("move.release", "move.verify")),
        (copy_whatever_stands_there, ("move.",)),
        (copy_without_the_arriving_flag, ("move.",)),
        (sweep_takes_arriving_copies_of_live_records, ("sweep.source", "move.")),
        (release_owes_nothing, ("move.arrive",)),
        (browsing_counts_every_arriving_copy, ("delete.elsewhere", "move.", "browse.marks")),
        (targets_are_read_before_sources, ("move.",)),
        (replicas_overwrite_what_is_newer, ("replica.",)),
        (nothing_is_owed_to_replicas, ("replica.",)),
        (settling_at_any_version, ("owed.settle",)),
        (deletion_leaves_replicas, ("delete.",)),
        (deletion_leaves_kept_versions, ("version.",)),
        (erased_generations_are_let_in, ("version.keep", "erase.")),
        (erasure_raises_no_generation, ("erase.",)),
        (erasure_is_not_resumed, ("erase.",)),
        (update_whatever_stands_there, ("update.",)),
        (keys_are_looked_up_in_the_first_tier_only, ("embedder.check", "write.home")),
        (marks_hold_no_place, ("write.home", "derive.home")),
        (writers_do_not_invalidate, ("cache.",)),
        (fills_ask_for_no_stamp, ("slow to fill the cache",)),
        (entries_expire_for_searches_only, ("read.",)),
        (retired_entries_are_read_by_id, ("cache.invalidate", "read.")),
        (corrupt_records_are_taken_for_missing, ("delete.unreadable", "hanging.find")),
    )
} | {name: Mutant(mutation.patch, mutation.near) for name, mutation in (MUTATIONS | RARE_MUTATIONS).items()}
