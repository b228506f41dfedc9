"""What a caller tries first works, or says what does."""

from __future__ import annotations

from typing import Any

import pytest

from memory.agents.manager.manager import MemoryManager
from memory.agents.manager.stores import NamedStore
from memory.domain.entry import EntryDraft
from memory.domain.errors import InvalidInput
from memory.domain.scope import Scope
from memory.facade.memory import Memory
from memory.sync.blocking import BlockingMemory
from tests.acceptance.support import OTHER_USER, USER


async def test_a_confidence_is_an_argument_wherever_an_entry_is_written(memory: Memory) -> None:
    view = memory.scoped(USER)
    written = [
        await memory.write("one", scope=USER, confidence=0.9),
        await view.write("two", confidence=0.9),
        (await memory.write_with_report("three", scope=USER, confidence=0.9)).entry,
        *await memory.write_many(
            [
                {"content": "four", "scope": USER, "confidence": 0.9},
                EntryDraft(scope=Scope.parse("user:u"), content="5", confidence=0.9),
            ]
        ),
        await memory.write("six", scope=USER, metadata={"confidence": 0.9, "other": 1}, confidence=0.9),
    ]
    assert [entry.metadata.get("confidence") for entry in written] == [0.9] * 6
    assert written[-1].metadata == {"confidence": 0.9, "other": 1}


async def test_a_confident_entry_is_promoted_by_the_rule_that_is_there_by_default(memory: Memory) -> None:
    session = memory.session("s")
    await session.append({"role": "user", "content": "hello"})
    facts = [await memory.write(f"Ada is {one}", scope="session:s", confidence=one) for one in (0.5, 0.9)]
    moved = {one.entry_id: one.to_tier for one in (await session.end()).moved}
    assert moved.get(facts[1].id) == "long"
    assert moved.get(facts[0].id) != "long"


async def test_a_repeat_under_a_key_may_say_its_confidence_either_way(memory: Memory) -> None:
    first = await memory.write("once", scope=USER, key="k", metadata={"confidence": 0.5})
    assert (await memory.write("once", scope=USER, key="k", confidence=0.5)).id == first.id


@pytest.mark.parametrize("wrong", [-0.1, 1.1, True, "0.9", float("nan")])
async def test_what_is_no_confidence_is_refused_before_anything_is_stored(
    plain: Memory, wrong: object
) -> None:
    with pytest.raises(InvalidInput, match="confidence: must be a number from 0 to 1"):
        await plain.write("one", scope=USER, confidence=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"confidence: is 0\.9 as an argument and 0\.5 in the metadata"):
        await plain.write("one", scope=USER, metadata={"confidence": 0.5}, confidence=0.9)
    assert await plain.retrieve(scope=USER) == []


async def test_one_id_is_enough_to_say_what_is_superseded(memory: Memory) -> None:
    for scope in (USER, OTHER_USER):
        old = await memory.write("Ada lives in Porto", scope=scope)
        new = await memory.write("Ada lives in Faro", scope=scope, supersedes=old.id)
        newest = (await memory.write_with_report("Ada lives in Beja", scope=scope, supersedes=new.id)).entry
        assert [entry.id for entry in await memory.retrieve(scope=scope)] == [newest.id]
    with pytest.raises(InvalidInput, match="supersedes"):
        await memory.write("Ada", scope=USER, supersedes="")


async def test_the_wrong_kind_of_with_says_which_one_to_use() -> None:
    stores = [NamedStore("all", Memory("memory://").scoped(USER), description="All")]
    named: dict[Any, str] = {
        Memory("memory://"): "BlockingMemory",
        MemoryManager(stores): "BlockingMemoryManager",
        Memory("memory://").session("s").stream(): "BlockingMemory",
    }
    for given, instead in named.items():
        with pytest.raises(
            TypeError, match=f"{type(given).__name__} is async: use `async with`, or {instead} in"
        ):
            given.__enter__()
    with (
        pytest.raises(TypeError, match="Memory is async: use `async with`, or BlockingMemory in"),
        Memory("memory://"),
    ):
        pass
    with pytest.raises(TypeError, match="BlockingMemory blocks: use `with`, or Memory in async code"):
        async with BlockingMemory("memory://"):  # type: ignore[attr-defined]
            pass
