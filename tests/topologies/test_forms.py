"""Searches by meaning on real servers without an index for it: an ordinary history,
after which the forms kept say what the servers hold.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from memory.facade.runtime.access import engine_of
from memory.orchestrator.embeddings import partition_indexes
from memory.orchestrator.embeddings.partition_indexes import LASTS
from tests.acceptance.support import Clock
from tests.support.backends import marks_of
from tests.support.depth import beyond
from tests.support.forms import astray, kept, read
from tests.support.long_texts import long_text
from tests.support.mutations import Mutation
from tests.support.placings import ORDINARY, forget
from tests.support.turned import Embedder

PLACINGS = [
    placing for placing in ORDINARY if placing.name in ("postgres-only", "mariadb-only", "mongo-only")
]
USER, SESSION = "user:ada", "session:s1"
SAID = {"tea": "beverage", "heron": "bird", "crashed": "outage"}
"""Words of texts, and what means the same."""


@pytest.fixture(
    params=[
        pytest.param(
            placing,
            id=placing.name,
            marks=[*marks_of(*placing.backends), *beyond(placing.name, {"postgres-only"}, ())],
        )
        for placing in PLACINGS
    ]
)
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    yield request.param.config(tmp_path) | {"durations": {"sweep_every": 0}}
    forget(tmp_path)


async def missed(memory: Memory) -> list[str]:
    """What a search by meaning misses or shows though it does not stand or mean that."""
    wrong = []
    for scope in (USER, SESSION):
        there = await memory.retrieve(scope, limit=500)
        for word, asked in SAID.items():
            found = {
                hit.entry.id for hit in await memory.search(asked, scope=scope, mode="semantic", limit=500)
            }
            wanted = {entry.id for entry in there if word in entry.content}
            wrong += [f"{asked} in {scope}: {found ^ wanted}"] if found != wanted else []
    return wrong


async def history(memory: Memory, clock: Clock, seed: int, calls: int) -> tuple[list[str], int]:
    """Calls of one process, what was wrong after one of them, and after how many it was
    forms that chose.
    """
    draw, chose, ids = random.Random(seed), 0, list[str]()  # noqa: S311
    for number in range(calls):
        clock.moment += timedelta(seconds=3)
        word, scope, chance = draw.choice(list(SAID)), draw.choice((USER, SESSION)), draw.random()
        if chance < 0.45 or not ids:
            ids.append((await memory.write(f"{word}, number {number}", scope=scope)).id)
        elif chance < 0.5:
            ids += [
                entry.id
                for entry in await memory.write_many(
                    [{"content": f"{word} {number} {n}", "scope": scope} for n in range(20)]
                )
            ]
        elif chance < 0.55:
            ids.append((await memory.write(long_text("money", f"It {word}."), scope=scope)).id)
        elif chance < 0.7:
            await memory.update(draw.choice(ids), content=f"{word} by now, number {number}")
        elif chance < 0.75:
            await memory.admin.move([draw.choice(ids)], "long")
        elif chance < 0.9:
            gone = ids.pop(draw.randrange(len(ids)))
            await memory.delete(gone)
        elif chance < 0.92:
            await memory.admin.erase(scope)
            ids = [entry.id for one in (USER, SESSION) for entry in await memory.retrieve(one, limit=500)]
        else:
            await memory.admin.sweep()
        chose += bool(kept(engine_of(memory)))
        if number % 4 == 0 and (wrong := [*await missed(memory), *await astray(engine_of(memory))]):
            return [*wrong, f"after call {number}"], chose
        await read(engine_of(memory))
    return [], chose


async def test_after_a_long_history_forms_say_what_the_server_holds(config: dict[str, Any]) -> None:
    clock = Clock()
    async with Memory(config, embedder=Embedder("of today"), clock=clock) as memory:
        wrong, chose = await history(memory, clock, 1, 120)
        assert wrong == []
        assert chose > 60


MUTATIONS = {
    "writes are not noted": Mutation(
        partition_indexes,
        "PartitionIndexes.on_write",
        "view.written[write.key.id] = number",
        "pass",
    ),
    "what is gone is kept": Mutation(
        partition_indexes, "PartitionIndexes._bring_up", "view.form.drop(record_id)", "pass"
    ),
    "vectors are kept as they were": Mutation(
        partition_indexes,
        "PartitionIndexes._bring_up",
        "view.form.put(_record(found[record_id]), None)",
        "pass",
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", MUTATIONS)
async def test_a_mutation_shows_there(name: str, config: dict[str, Any]) -> None:
    clock = Clock()
    async with Memory(config, embedder=Embedder("of today"), clock=clock) as memory:
        with MUTATIONS[name].applied():
            wrong, _ = await history(memory, clock, 1, 120)
        assert wrong != []


async def test_what_another_process_writes_is_found_after_a_minute_and_shown_as_it_is(
    config: dict[str, Any],
) -> None:
    clock, embedder = Clock(), Embedder("of today")
    async with (
        Memory(config, embedder=embedder, clock=clock) as memory,
        Memory(config, embedder=embedder, clock=clock) as other,
    ):
        first, gone = await memory.write("tea", scope=USER), await memory.write("tea too", scope=USER)
        await memory.search("beverage", scope=USER)
        await read(engine_of(memory))
        await other.write("tea of another", scope=USER)
        await other.update(first.id, content="a heron")
        await other.delete(gone.id)
        found = [hit.entry.content for hit in await memory.search("beverage", scope=USER, mode="semantic")]
        assert found == []
        clock.moment += LASTS
        assert await missed(memory) == []
        await read(engine_of(memory))
        assert await missed(memory) == []
        assert await astray(engine_of(memory)) == []
