"""Long texts, and how the passages of entries that stand differ from those that should."""

from __future__ import annotations

from itertools import cycle, islice

import pytest

from memory.orchestrator.embeddings.passages import part_key
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_PASSAGES
from memory.orchestrator.storage.entry_records import parts_in, said_at
from memory.orchestrator.storage.topology import leaves_of
from memory.ports.collections import Collection
from memory.ports.full_scan import scan
from memory.ports.query import Everywhere, Query
from memory.ports.record import Key, Record, Role, unpack_vector
from memory.ports.store import Store

ABOUT = {
    "money": (
        "The committee went through the budget of the coming year.",
        "Nobody agreed on who pays for the rooms on the second floor.",
    ),
    "plants": ("The tomatoes need water in the morning.", "A late frost took half of the apple blossom."),
    "trains": ("The train to the coast leaves at nine.", "We changed in a small station without a cafe."),
}
LONG = 12_000


def long_text(about: str, end: str = "") -> str:
    """Twelve thousand characters about one thing, and a sentence about another at the
    end.
    """
    sentences = ABOUT[about]
    text = " ".join(islice(cycle(sentences), LONG // min(map(len, sentences))))[: LONG - len(end)]
    return f"{text.rpartition('.')[0]}. {end}".strip()


async def astray(engine: Engine) -> list[str]:
    """Every passage is of a part of what its entry says now, in the one store that has
    them; every part of every long entry has one; nothing else is. Of entries that owe
    nothing.
    """
    where = leaves_of(engine.long_texts.store)
    wanted: dict[Key, tuple[int, int | None, str]] = {}
    for leaf in engine.topology.leaves:
        for row in await rows(leaf, ENTRIES):
            if row.role is Role.HOME and not any(owed.step == "make_passages" for owed in row.owed):
                wanted |= {
                    part_key(row.key, n): (said_at(row), row.generation, part)
                    for n, part in enumerate(parts_in(row))
                }
    vectors = dict(
        zip(wanted, await engine.embeddings.of_texts([part for _, _, part in wanted.values()]), strict=True)
    )
    wrong: list[str] = []
    for leaf in engine.topology.leaves:
        for row in await rows(leaf, ENTRY_PASSAGES):
            version, generation, part = wanted.pop(row.key, (None, None, ""))
            if (
                leaf not in where
                or (version, generation) != (row.version, row.generation)
                or not _alike(row.vector, vectors[row.key])
            ):
                wrong.append(
                    f"{leaf.name} has {row.key.id} of {row.fields['part_of']!r}, part {row.fields['part']!r},"
                    f" for {part!r}"
                )
    return wrong + [f"{key.id} is missing: {wanted[key][2]!r}" for key in wanted if vectors[key] is not None]


async def rows(store: Store, collection: Collection) -> list[Record]:
    """Every record of a collection in a store."""
    pages = scan(store, Query(collection, Everywhere(), roles=frozenset(Role)))
    return [row async for page in pages for row in page.records if isinstance(row, Record)]


def _alike(one: bytes | None, other: bytes | None) -> bool:
    """The same, but for the last bits and the length, which a store may bring to one."""
    if one is None or other is None:
        return False
    return _unit(one) == pytest.approx(_unit(other), abs=1e-5)


def _unit(vector: bytes) -> list[float]:
    numbers = unpack_vector(vector)
    length = sum(number * number for number in numbers) ** 0.5
    return [number / length for number in numbers]
