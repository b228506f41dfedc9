"""What the tests of finding messages by meaning share: an embedder that knows a few words, and what passages must stand once nothing is owed."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence

from memory.adapters.in_memory import InMemoryStore
from memory.domain.message import Role
from memory.orchestrator.collections import MESSAGES, PASSAGES, SESSIONS
from memory.orchestrator.conversations.events import event_of
from memory.policies.passages import parts_of
from memory.ports.collections import Collection
from memory.ports.embedder import Fingerprint
from memory.ports.query import MAX_LIMIT, Everywhere, Query
from memory.ports.record import Record, pack_vector
from memory.ports.record import Role as CopyRole
from tests.unit.orchestrator.world import Flaky, World

MEANT = {"tea": 0, "beverage": 0, "heron": 1, "bird": 1, "outage": 2, "crashed": 2, "ship": 3, "boat": 3}
"""Words, and what they mean: those of one number mean the same."""
DIMENSIONS = 4


FILLING = "And so it went on from there to the next of them. "
LONG = f"The heron stood in the reeds. {FILLING * 30} A ship came by. {FILLING * 30}"


class Embedder:
    """Knows the words of `MEANT`; a text without any has no vector."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        """What others do, once, while texts are embedded."""
        self.batches: list[int] = []

    async def fingerprint(self) -> Fingerprint:
        return Fingerprint("a few words", DIMENSIONS)

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        self.batches.append(len(texts))
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return [vector_of(text) for text in texts]


def vector_of(text: str) -> bytes:
    counts = [0.0] * DIMENSIONS
    for word in re.findall("[a-z]+", text.lower()):
        if word in MEANT:
            counts[MEANT[word]] += 1
    length = sum(count * count for count in counts) ** 0.5
    return pack_vector([count / length for count in counts]) if length else b""


async def astray(world: World) -> list[str]:
    """How what passages stand differs from those that should: of every message of a living session that is complete, in its history, not erased and
    no tool's, each part that means something, as the message says it now, in the one store; and no others."""
    lives = {row.scope: row.generation for row in await _rows(world.mid, SESSIONS)}
    wanted: dict[tuple[str, int], bytes] = {}
    for row in await _rows(world.mid, MESSAGES):
        event = event_of(row)
        message = event.draft.message
        if message is None or event.number is None or event.is_redacted or message.role is Role.TOOL or not message.is_final:
            continue
        if lives.get(row.scope) == row.generation:
            wanted |= {(row.key.id, number): vector_of(part) for number, part in enumerate(parts_of(message.text[:8_192])) if vector_of(part)}
    store = world.engine.conversations.passages.store
    stands = [(place, row) for place in dict.fromkeys(world.stores) for row in await _rows(place, PASSAGES)]
    there = {(str(row.fields["message"]), int(str(row.fields["part"]))): row.vector for place, row in stands if place is store}
    wrong = [f"{place.name} has a passage" for place, _ in stands if place is not store]
    return wrong + [f"passage {name}" for name in sorted(wanted.keys() | there.keys()) if wanted.get(name) != there.get(name)]


async def _rows(store: Flaky, collection: Collection) -> list[Record]:
    page = await InMemoryStore.query(store, Query(collection, Everywhere(), limit=MAX_LIMIT, roles=frozenset(CopyRole)))
    return [row for row in page.records if isinstance(row, Record)]


async def settled(world: World) -> list[str]:
    """What is astray once all is done that is owed."""
    world.heal()
    engine = await world.another_process()
    for _ in range(4):
        await engine.maintenance.sweep()
    assert await engine.maintenance.owed() == 0
    return await astray(world)


def embedder(world: World) -> Embedder:
    assert isinstance(world.embedder, Embedder)
    return world.embedder
