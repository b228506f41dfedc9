"""The tools a manager gives to a model (E31 to E40)."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import timedelta
from typing import Any

import pytest

from memory import InvalidInput
from memory.agents.manager import AddTool, MemoryManager, SearchTool, StoreEntry
from memory.domain.errors import StoreAddFailure
from tests.unit.agents.manager.stores import Kept, Searched, entries, named


@pytest.mark.behaviour("E31", "E32", "AC-E05")
def test_a_tool_says_which_stores_there_are_and_how_to_choose() -> None:
    stores = [
        named(Kept(), description="User preferences"),
        named(Kept(), "team", description="Decisions"),
        named(Kept(), "other"),
    ]
    (tool,) = MemoryManager(stores).tools
    assert "- personal: User preferences\n- team: Decisions" in tool.description
    assert "target one or more memory stores by name" in tool.description
    assert "- other" not in tool.description
    (own,) = MemoryManager(
        [named(Kept())], search_tool=SearchTool(name="recall", description="Look it up.")
    ).tools
    assert (own.name, own.description) == ("recall", "Look it up.")


@pytest.mark.behaviour("E31", "E36")
def test_schemas_come_in_the_shape_of_openai_and_of_anthropic() -> None:
    manager = MemoryManager([named(Kept(), writable=True)], add_tool=True)
    openai, anthropic = manager.schemas(), manager.schemas("anthropic")
    assert json.loads(json.dumps([openai, anthropic])) == [openai, anthropic]
    for mine, theirs in zip(openai, anthropic, strict=True):
        assert mine["type"] == "function"
        assert set(mine["function"]) == {"name", "description", "parameters"}
        assert set(theirs) == {"name", "description", "input_schema"}
        assert mine["function"]["parameters"] == theirs["input_schema"]
    search, add = (one["input_schema"] for one in anthropic)
    assert (search["required"], sorted(search["properties"])) == (["query"], ["limit", "query", "stores"])
    assert (add["required"], sorted(add["properties"])) == (["entries"], ["entries", "stores"])
    with pytest.raises(InvalidInput, match="format"):
        manager.schemas("other")  # type: ignore[arg-type]


@pytest.mark.behaviour("E33", "E34", "E35", "AC-E13")
async def test_a_model_s_search_reaches_all_stores_or_those_of_its_names_that_are_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    a, b = Searched(StoreEntry("tea", metadata={"n": 1})), Searched("rum")
    manager = MemoryManager([named(a), named(b, "other")])
    tea, rum = (
        {"content": "tea", "store_name": "personal", "metadata": {"n": 1}},
        {"content": "rum", "store_name": "other"},
    )
    every: list[dict[str, Any]] = [{}, {"stores": []}, {"stores": None}]
    for names in every:
        assert await manager.dispatch("search_memory", {"query": "drinks", **names}) == [tea, rum]
    assert not caplog.records
    assert await manager.dispatch(
        "search_memory", {"query": "drinks", "stores": ["personal", "nonexistent"]}
    ) == [tea]
    assert "that are not available: nonexistent" in caplog.text
    asked = len(a.asked) + len(b.asked)
    with pytest.raises(
        InvalidInput,
        match="none of the requested memory stores are available; available stores: personal, other",
    ):
        await manager.dispatch("search_memory", {"query": "drinks", "stores": ["nonexistent"]})
    assert len(a.asked) + len(b.asked) == asked, "nobody was asked"


async def test_the_tool_that_searches_reaches_the_stores_it_is_given_and_no_others() -> None:
    mine, other = Searched("tea"), Searched("rum")
    manager = MemoryManager([named(mine), named(other, "other")], search_tool=SearchTool(stores=["personal"]))
    assert [found["content"] for found in await manager.dispatch("search_memory", {"query": "drinks"})] == [
        "tea"
    ]
    with pytest.raises(InvalidInput, match=r"available stores: personal$"):
        await manager.dispatch("search_memory", {"query": "drinks", "stores": ["other"]})
    assert [found.content for found in await manager.search("drinks")] == ["tea", "rum"], (
        "the program reaches all"
    )


async def test_a_model_s_limit_is_that_of_each_store() -> None:
    store = Searched(*entries(*"abcdef"))
    manager = MemoryManager([named(store)])
    assert len(await manager.dispatch("search_memory", {"query": "x", "limit": 4})) == 4
    assert store.asked == [("x", 4)]


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("search_memory", {}, "query: is missing"),
        ("search_memory", None, "query: is missing"),
        (
            "search_memory",
            {"query": "x", "top_k": 3},
            "top_k: is not an argument of search_memory; there are query, limit, stores",
        ),
        ("search_memory", {"query": 3}, "query: must be text"),
        ("search_memory", {"query": "x", "limit": "many"}, "limit: must be a whole number"),
        ("search_memory", {"query": "x", "stores": "personal"}, "stores: must be a list"),
        ("add_memory", '{"entries": ["tea"]}', r"arguments: .* json\.loads\(arguments\)"),
        ("add_memory", {"entries": []}, "entries: must have at least one entry"),
        ("add_memory", {"entries": "tea"}, "entries: must be a list"),
        ("add_memory", {"entries": ["tea", " "]}, r"entries\[1\]: must not be blank"),
        ("add_memory", {"entries": ["x"] * 101}, "entries: takes at most 100 items"),
        ("forget_memory", {}, "there is no tool 'forget_memory'; there are search_memory, add_memory"),
    ],
)
@pytest.mark.behaviour("E36")
async def test_what_a_model_gets_wrong_is_said_by_name_and_nothing_is_done(
    name: str, arguments: Any, said: str
) -> None:
    store = Kept()
    manager = MemoryManager([named(store, writable=True)], add_tool=True)
    with pytest.raises(InvalidInput, match=said):
        await manager.dispatch(name, arguments)
    assert (store.asked, store.added) == ([], [])


@pytest.mark.behaviour("E37")
async def test_a_model_adds_to_what_its_tool_reaches_and_to_nothing_else() -> None:
    allowed, writable, read_only = Kept(), Kept(), Kept()
    stores = [named(allowed, "a", writable=True), named(writable, "b", writable=True), named(read_only, "c")]
    everywhere, one = (
        MemoryManager(stores, add_tool=True),
        MemoryManager(stores, add_tool=AddTool(stores=["a"])),
    )
    assert await everywhere.dispatch("add_memory", {"entries": ["tea"]}) == {"stored": 1}
    assert await one.dispatch("add_memory", {"entries": ["rum", "gin"], "stores": ["a", "b"]}) == {
        "stored": 2
    }
    with pytest.raises(InvalidInput, match=r"available stores: a$"):
        await one.dispatch("add_memory", {"entries": ["milk"], "stores": ["b", "c"]})
    assert [content for content, _ in allowed.added] == ["tea", "rum", "gin"]
    assert [content for content, _ in writable.added] == ["tea"]
    assert read_only.added == []


@pytest.mark.behaviour("E38", "AC-E15")
async def test_who_waits_for_writes_is_told_how_many_failed_and_why() -> None:
    failing, well = Kept(), Kept()
    failing.refuses = ExceptionGroup("several", [OSError("write error")])
    manager = MemoryManager(
        [named(failing, "a", writable=True), named(well, "b", writable=True)], add_tool=True
    )
    with pytest.raises(StoreAddFailure, match="failed to add 2 of 2 entries") as failed:
        await manager.dispatch("add_memory", {"entries": ["tea", "rum"]})
    assert "write error" in str(failed.value)
    assert [type(cause) for cause in failed.value.causes] == [OSError, OSError]
    assert len(well.added) == 2
    failing.refuses = StoreAddFailure(1, 1, [("inner", OSError("inside"))])
    with pytest.raises(StoreAddFailure, match="failed to add 1 of 1 entries: 'a': inside") as failed:
        await manager.dispatch("add_memory", {"entries": ["tea"]})
    assert [type(cause) for cause in failed.value.causes] == [OSError]


async def test_a_close_names_the_background_writes_that_it_gives_up(caplog: pytest.LogCaptureFixture) -> None:
    hangs = Kept()
    hangs.may_go_on.clear()
    manager = MemoryManager([named(hangs, writable=True)], add_tool=AddTool(wait_for_writes=False))
    await manager.dispatch("add_memory", {"entries": ["tea"]})
    with caplog.at_level(logging.WARNING):
        await asyncio.wait_for(manager.close(within=timedelta(milliseconds=50)), 60)
    assert "texts to store 'personal'" in caplog.text
    hangs.may_go_on.set()
    await manager.close()
    assert hangs.added == []


@pytest.mark.behaviour("E39")
async def test_who_does_not_wait_is_answered_while_the_write_hangs_and_closing_waits_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hangs = Kept()
    hangs.may_go_on.clear()
    manager = MemoryManager([named(hangs, writable=True)], add_tool=AddTool(wait_for_writes=False))
    async with manager:
        assert await asyncio.wait_for(manager.dispatch("add_memory", {"entries": ["tea", "rum"]}), 60) == {
            "accepted": 2
        }
        assert hangs.added == []
        closing = asyncio.create_task(manager.close())
        done, _ = await asyncio.wait([closing], timeout=0.05)
        assert not done, "closing waits"
        hangs.may_go_on.set()
        await closing
    assert sorted(content for content, _ in hangs.added) == ["rum", "tea"]
    hangs.refuses = OSError("disk")
    with caplog.at_level(logging.WARNING):
        assert await manager.dispatch("add_memory", {"entries": ["gin"]}) == {"accepted": 1}
        await manager.flush()
    assert "failed to add 1 of 1 entries: 'personal': disk" in caplog.text
