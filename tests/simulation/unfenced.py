"""What a store without fences lets stand: a record sent under one generation and kept
under it, though another has been raised since.

Such a store's client reads the generation, writes, and looks again; what arrives when
its client is gone is looked at by nobody.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from memory.adapters.in_memory import InMemoryStore, State
from memory.ports.record import Partition
from memory.ports.writes import Outcome, Put, Write


class _AsSent:
    """A state that shows the generations as they were when something was sent."""

    def __init__(self, state: State, generations: dict[Partition, int]) -> None:
        self._state = state
        self._generations = generations

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    def generation(self, partition: Partition) -> int:
        return self._generations.get(partition, self._state.generation(partition))


def unlooked_for(
    store: InMemoryStore, writes: Sequence[Write], together: bool
) -> Callable[[], Awaitable[list[Outcome]]] | None:
    """These writes as they come to stand after their client is gone; None where they
    are no different from any others.
    """
    sent = {
        w.record.partition: store.state.generation(w.record.partition) for w in writes if isinstance(w, Put)
    }
    if not sent or together:
        return None

    async def land() -> list[Outcome]:
        state: Any = _AsSent(store.state, sent)
        as_sent = copy(store)  # a store of the same class: who watches what comes to stand sees this too
        as_sent.state = state
        return await as_sent.apply([_stamped(write, sent) for write in writes])

    return land


def _stamped(write: Write, sent: dict[Partition, int]) -> Write:
    if not isinstance(write, Put) or write.record.generation is not None:
        return write
    return replace(write, record=replace(write.record, generation=sent[write.record.partition]))
