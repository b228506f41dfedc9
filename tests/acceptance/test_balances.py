"""How much room a tenant's artifacts and large texts take, where the record of it is
damaged: nothing stops, and nothing is counted wrong. On several stores.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import Memory, Message, QuotaExceeded
from memory.facade.runtime.access import engine_of
from memory.orchestrator.conversations.blobs.balances import balance_key
from memory.orchestrator.storage.collections import RESERVATIONS
from tests.acceptance.support import Clock
from tests.support.backends import marks_of, run_here
from tests.support.damaging import damage
from tests.support.depth import beyond
from tests.support.placings import ORDINARY, forget
from tests.support.reserved import assert_reserved

MOST, PART = 1_000_000, 300_000
NAMES = ("default", "in-memory", "postgres-only", "redis-only", "mongo-only", "mariadb-only", "files-only")
HERE = [placing for placing in ORDINARY if placing.name in NAMES and run_here(*placing.backends)]


@pytest.fixture(
    params=[
        pytest.param(
            placing.config,
            id=placing.name,
            marks=[*marks_of(*placing.backends), *beyond(placing.name, {"default"}, {"postgres-only"})],
        )
        for placing in HERE
    ]
)
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    yield request.param(tmp_path) | {"embedder": "none"}
    forget(tmp_path)


@pytest.fixture
async def memory(config: dict[str, Any], clock: Clock) -> AsyncIterator[Memory]:
    """With a quota. Whatever a test does: in the end all that is reserved is what
    stands.
    """
    async with Memory(
        config, clock=clock, quotas=[{"name": "files", "per": "tenant", "artifact_bytes": MOST}]
    ) as opened:
        yield opened
        await assert_reserved(engine_of(opened), opened.tenant)


@pytest.fixture
def damaged(memory: Memory, config: dict[str, Any]) -> Callable[[], Awaitable[None]]:
    """Damages the balance."""
    return lambda: damage(
        engine_of(memory).topology.archive,
        config["tiers"]["mid"],
        RESERVATIONS,
        balance_key(memory.tenant),
    )


def part(word: str) -> Message:
    return Message(
        id=word, role="user", content="".join([f"{word}{number} " for number in range(PART // 2)])[:PART]
    )


async def reserved(memory: Memory) -> int:
    return await engine_of(memory).conversations.reservations.used_bytes(memory.tenant)


async def test_a_damaged_balance_stops_neither_writes_nor_erasures(
    memory: Memory, damaged: Callable[[], Awaitable[None]]
) -> None:
    session = memory.session("s1")
    await session.append(part("a"))
    file = await memory.artifacts.put("s1", "out.txt", b"x" * PART)
    await damaged()
    await session.append(part("b"))
    assert await reserved(memory) == 3 * PART
    await damaged()
    with pytest.raises(QuotaExceeded) as refused:
        await memory.artifacts.put("s1", "other.txt", b"x" * PART)
    assert (refused.value.held, refused.value.asked) == (3 * PART, PART)
    await damaged()
    assert await memory.artifacts.delete(file.id)
    assert await reserved(memory) == 2 * PART
    await damaged()
    assert await session.erase("a")
    assert await reserved(memory) == PART
    await damaged()
    await session.delete()
    assert await reserved(memory) == 0


async def test_a_damaged_balance_is_named_and_counted_by_a_repair(
    memory: Memory, damaged: Callable[[], Awaitable[None]]
) -> None:
    await memory.session("s1").append(part("a"))
    await damaged()
    said = (
        f"the usage record of tenant '{memory.tenant}' cannot be read, and its artifacts and large texts take"
        f" {PART:,}"
    )
    assert (await memory.admin.compare()).differs == {said: 1}
    repaired = await memory.admin.compare(repair=True)
    assert (repaired.ok, repaired.differs) == (True, {said: 1})
    assert (await memory.admin.compare()).differs == {}
    assert await reserved(memory) == PART
