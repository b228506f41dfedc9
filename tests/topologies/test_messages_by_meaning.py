"""Messages are found by meaning on stores of every kind: in their own store or, if
asked to, the long tier's, where that serves it; else by words.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from memory import InvalidInput, Memory
from memory.facade.runtime.access import engine_of
from tests.support.backends import marks_of
from tests.support.depth import beyond
from tests.support.placings import ORDINARY, PGVECTOR, forget
from tests.unit.orchestrator.conversations.meant import astray

PLACINGS = {placing.name: placing for placing in (*ORDINARY, PGVECTOR)}
CASES = (
    ("default", "home", True),
    ("default", "long", True),
    ("default", "off", False),
    ("files-only", "home", True),
    ("split", "home", True),
    ("edge-only", "home", True),
    ("pgvector-only", "home", True),
    ("redis-postgres-edge", "home", False),
    ("redis-postgres-edge", "long", True),
    ("redis-mongo-edge", "long", True),
    ("mariadb-edge", "long", True),
    ("mariadb-only", "home", False),
    ("mariadb-only", "long", False),
)
"""Where the passages are asked to be, and whether messages are found by meaning then."""
EVERYONES = {("default", "home"), ("edge-only", "home")}
"""Where everyone's run has them."""
TEA = "Ada prefers tea with milk"
LONG = (
    f"{'The meeting went on about the budget of next year and who pays for what. ' * 20}Then the server"
    " crashed during the night."
)


@pytest.fixture(
    params=[
        pytest.param(
            case,
            id="-".join(case[:2]),
            marks=[
                *marks_of(*PLACINGS[case[0]].backends),
                *beyond(case[:2], EVERYONES, {("redis-postgres-edge", "long")}),
            ],
        )
        for case in CASES
    ]
)
def case(request: pytest.FixtureRequest) -> tuple[str, str, bool]:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
async def memory(case: tuple[str, str, bool], tmp_path: Path) -> AsyncIterator[Memory]:
    config = PLACINGS[case[0]].config(tmp_path) | {"conversations": {"meaning": case[1]}}
    async with Memory(config) as opened:
        yield opened
    forget(tmp_path)


def said(text: str, message_id: str) -> dict[str, str]:
    return {"role": "user", "content": text, "id": message_id}


async def found(memory: Memory, query: str, **asked: Any) -> list[tuple[str, str]]:
    return [(hit.session_id, str(hit.message.id)) for hit in await memory.search_messages(query, **asked)]


async def settled(memory: Memory) -> list[str]:
    await memory.admin.sweep()
    assert await engine_of(memory).maintenance.count_pending() == 0
    return await astray(engine_of(memory))


async def test_messages_are_found_by_meaning_where_a_store_serves_it_and_else_by_words(
    case: tuple[str, str, bool], memory: Memory
) -> None:
    meant = case[2]
    one, two = memory.session("s1", user="ada"), memory.session("s2", user="bo")
    await one.append([said(TEA, "m1"), said("The deployment failed on Friday", "m2"), said(LONG, "m3")])
    await two.append([said("A warm cup of cocoa at night", "m1")])
    assert (await found(memory, "milk"))[:1] == [("s1", "m1")]
    assert await found(memory, "milk", mode="lexical") == [("s1", "m1")]
    if not meant:
        assert await found(memory, "favourite hot beverage") == []
        with pytest.raises(InvalidInput, match="is not possible here"):
            await found(memory, "favourite hot beverage", mode="semantic")
    else:
        assert set((await found(memory, "favourite hot beverage"))[:2]) == {("s1", "m1"), ("s2", "m1")}
        assert (await found(memory, "favourite hot beverage", user="bo", mode="semantic")) == [("s2", "m1")]
        assert [hit.message.id for hit in await one.search("database outage", mode="semantic", limit=1)] == [
            "m3"
        ]
        async with memory.for_tenant("other") as other:
            assert await found(other, "favourite hot beverage", mode="semantic") == []
    assert await settled(memory) == []


async def test_an_edit_an_exclusion_an_erasure_and_a_deletion_are_followed(
    case: tuple[str, str, bool], memory: Memory
) -> None:
    one, two = memory.session("s1", user="ada"), memory.session("s2", user="bo")
    await one.append([said(TEA, "m1"), said(LONG, "m2"), said("The cat sleeps", "m3")])
    await two.append([said(TEA, "m1")])
    assert set((await found(memory, "tea"))[:2]) == {("s1", "m1"), ("s2", "m1")}
    await one.update("m1", content="A ferry left the harbour")
    await two.exclude("m1")
    assert await found(memory, "tea with milk", limit=1) != [("s2", "m1")]
    assert ("s1", "m1") in await found(memory, "ferry")
    assert await settled(memory) == []
    await one.erase("m2")
    assert ("s1", "m2") not in await found(memory, "the server crashed")
    await memory.sessions.delete("s2")
    assert await found(memory, "tea with milk", user="bo") == []
    assert await settled(memory) == []
