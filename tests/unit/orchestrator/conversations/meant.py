"""What the tests of finding messages by meaning share: an embedder that knows a few
words, and what passages must stand once nothing is owed.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence

import pytest

from memory.domain.message import Role
from memory.orchestrator.conversations.log.events import event_of
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.collections import MESSAGES, PASSAGES, SESSIONS
from memory.policies.passage_splitting import parts_of
from memory.ports.collections import Collection
from memory.ports.embedder import Fingerprint
from memory.ports.query import MAX_LIMIT, Everywhere, Query
from memory.ports.record import Record, pack_vector, unpack_vector
from memory.ports.record import Role as CopyRole
from memory.ports.store import Store
from tests.unit.orchestrator.world import World

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


async def astray(engine: Engine) -> list[str]:
    """How what passages stand differs from those that should: of every message of a
    living session that is complete, in its history, not erased and no tool's, each part
    that means something, as the message says it now, in the one store; and no others.
    """
    archive, at = engine.topology.archive, engine.conversations.passages.store
    lives = {row.scope: row.generation for row in await _rows(archive, SESSIONS)}
    parts: dict[tuple[str, int], str] = {}
    for row in await _rows(archive, MESSAGES):
        event = event_of(row)
        message = event.draft.message
        if (
            message is None
            or event.number is None
            or event.is_redacted
            or message.role is Role.TOOL
            or not message.is_final
        ):
            continue
        if lives.get(row.scope) == row.generation:
            parts |= {
                (row.key.id, number): part for number, part in enumerate(parts_of(message.text[:8_192]))
            }
    vectors = (
        await engine.embeddings.of_texts(list(parts.values())) if at is not None else [None] * len(parts)
    )
    wanted = {name: vector for name, vector in zip(parts, vectors, strict=True) if vector is not None}
    stands = [(store, row) for store in engine.topology.stores for row in await _rows(store, PASSAGES)]
    there = {
        (str(row.fields["message"]), int(str(row.fields["part"]))): row.vector
        for store, row in stands
        if store is at
    }
    wrong = [f"{store.name} has a passage" for store, _ in stands if store is not at]
    return wrong + [
        f"passage {name}"
        for name in sorted(wanted.keys() | there.keys())
        if not _alike(wanted.get(name), there.get(name))
    ]


def _alike(one: bytes | None, other: bytes | None) -> bool:
    """The same, but for the last bits, which a store that brings vectors to length one
    may round otherwise.
    """
    return (
        one is not None
        and other is not None
        and unpack_vector(one) == pytest.approx(unpack_vector(other), abs=1e-6)
    )


async def _rows(store: Store, collection: Collection) -> list[Record]:
    page = await store.query(Query(collection, Everywhere(), limit=MAX_LIMIT, roles=frozenset(CopyRole)))
    return [row for row in page.records if isinstance(row, Record)]


async def settled(world: World) -> list[str]:
    """What is astray once all is done that is owed."""
    return await astray(await world.settled())


def embedder(world: World) -> Embedder:
    assert isinstance(world.embedder, Embedder)
    return world.embedder
