"""Applies writes to a state.

`memory.ports.write_decision` decides each write. The state stores immutable copies.
"""

from __future__ import annotations

from dataclasses import replace

from memory.adapters.in_memory.frozen import frozen_mapping, frozen_owed, frozen_record, maybe_in_utc
from memory.adapters.in_memory.state import State
from memory.ports.record import Record, Standing, Tombstone
from memory.ports.write_decision import EMPTY, Slot, decide
from memory.ports.writes import Outcome, Put, RaiseGeneration, Status, Write


def carry_out(state: State, write: Write) -> Outcome:
    """Apply one write and return its outcome."""
    if isinstance(write, RaiseGeneration):
        return Outcome(Status.APPLIED, number=state.raise_generation(write.partition, write.to))
    name, key = write.collection.name, write.key
    stands = state.fetch_stored(name, key)
    slot = EMPTY if stands is None else Slot(state.fetch_visible(name, key), stands.version)
    generation = state.generation(write.record.partition) if isinstance(write, Put) else 0
    decision = decide(write, slot, generation)
    if decision.changes:
        state.place(name, key, _freeze(decision.leaves))
    return decision.outcome


def _freeze(standing: Standing | None) -> Standing | None:
    """Return the value as the state keeps it: detached from the caller, in UTC."""
    if standing is None:
        return None
    if isinstance(standing, Record):
        return frozen_record(standing)
    frozen = replace(standing, owed=frozen_owed(standing.owed), discard_at=maybe_in_utc(standing.discard_at))
    return replace(frozen, note=frozen_mapping(frozen.note)) if isinstance(frozen, Tombstone) else frozen
