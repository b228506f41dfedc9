"""What stands under the keys of a call, and what its writes make of it: the port's rules on rows that were read or locked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

from memory.adapters.sql.server.places import Place
from memory.ports.deciding import Decision, KeyedWrite, Slot, decide
from memory.ports.record import Key, Mark, Partition, Record, Stored, Tombstone
from memory.ports.storable import Unstorable
from memory.ports.writes import Outcome, Put, RaiseGeneration, Status, Write

Address: TypeAlias = tuple[str, Key]

NOTHING = Slot(None, None)


class Layout(Protocol):
    """How a dialect lays records out in rows. Those that make a row raise `Unstorable` for what no row can hold."""

    def record(self, record: Record, partition: int | None, generation: int) -> Any: ...

    def mark(self, mark: Mark) -> Any: ...

    def tombstone(self, tombstone: Tombstone) -> Any: ...

    def corrupt(self, key: Key, version: int) -> Any: ...

    def read(self, row: Sequence[Any], problem: str = ...) -> Stored: ...


@dataclass(slots=True)
class Held:
    """What stands under a key; `row` of None where there is none. Once `changed`, `content` is to stand there, or nothing.

    `found_anew` says that its words and vector may have changed with it.
    """

    layout: Layout
    slot: Slot = NOTHING
    partition: int | None = None
    row: Sequence[Any] | None = None
    changed: bool = False
    found_anew: bool = False
    content: Any = None

    def become(self, decision: Decision, place: Place | None) -> None:
        """Take in what a write leaves. Raises `Unstorable`, and nothing has changed, where no row can hold it."""
        if not decision.changes:
            return
        left, layout = decision.leaves, self.layout
        content, partition = None, None
        if isinstance(left, Record):
            partition = self.partition if place is None else place.number
            content = layout.record(left, partition, left.generation or 0)
        elif left is not None:
            content = layout.mark(left) if isinstance(left, Mark) else layout.tombstone(left)
        self.slot = NOTHING if left is None else Slot(left, left.version)
        self.partition, self.content, self.changed = partition, content, True
        self.found_anew = self.found_anew or decision.found_by


@dataclass(slots=True)
class Desk:
    """What one call has locked and decides about."""

    held: dict[Address, Held]
    places: dict[Partition, Place]
    raised: dict[int, int] = field(default_factory=dict)
    """The new generations of partitions, by number."""

    def do(self, write: Write) -> Outcome:
        """What becomes of the next write."""
        if isinstance(write, RaiseGeneration):
            return self._raise_generation(write)
        try:
            return self._decide(write)
        except Unstorable as exc:
            return Outcome(Status.REJECTED, reason=str(exc))

    def _raise_generation(self, write: RaiseGeneration) -> Outcome:
        place = self.places[write.partition]
        raised = place.generation + 1 if write.to is None else max(place.generation, write.to)
        if raised != place.generation:
            self.places[write.partition] = replace(place, generation=raised)
            self.raised[place.number] = raised
        return Outcome(Status.APPLIED, number=raised)

    def _decide(self, write: KeyedWrite) -> Outcome:
        held = self.held[(write.collection.name, write.key)]
        place = self.places[write.record.partition] if isinstance(write, Put) else None
        decision = decide(write, held.slot, place.generation if place else 0)
        held.become(decision, place)
        return decision.outcome


def addresses(writes: Iterable[Write]) -> dict[str, set[Key]]:
    """The keys that writes are about, by the name of their collection."""
    found: dict[str, set[Key]] = {}
    for write in writes:
        if not isinstance(write, RaiseGeneration):
            found.setdefault(write.collection.name, set()).add(write.key)
    return found
