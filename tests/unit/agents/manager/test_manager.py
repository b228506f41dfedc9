"""A manager over named stores: what it refuses, whom it asks, and what becomes of
failures (E1 to E30).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from memory import BlockingMemory, InvalidInput, Memory
from memory.agents.manager import (
    AddTool,
    EveryTurn,
    Extraction,
    MemoryManager,
    MemoryStore,
    NamedStore,
    SearchTool,
    StoreEntry,
    Tool,
)
from memory.domain.errors import StoreAddFailure
from memory.ports.contract.cells import cells
from memory.sync.blocking import BlockingMemoryManager
from tests.unit.agents.manager.stores import Heard, Kept, Searched, entries, named


def texts(found: Sequence[StoreEntry]) -> list[tuple[str | None, str]]:
    return [(one.store_name, one.content) for one in found]


# -- what is refused -------------------------------------------------------------------


@pytest.mark.behaviour("E11", "E12", "E13", "E17", "AC-E01")
@cells(
    "stores, more, said",
    [
        ([], {}, "at least one store is required"),
        ([named(Kept()), named(Kept())], {}, "duplicate store name 'personal'"),
        ([named(Searched(), writable=True)], {}, "no add or add_messages"),
        ([named(Kept())], {"add_tool": True}, "no writable stores implement add"),
        ([named(Heard(), writable=True)], {"add_tool": True}, "no writable stores implement add"),
        ([Kept()], {}, "must be a NamedStore"),
        ([named(Kept())], {"add_tool": "yes"}, "must be True, False or AddTool"),
        ([named(Kept())], {"injection": {}}, "must be True, False or Injection"),
    ],
    shared=True,
)
def test_what_cannot_work_is_refused_when_it_is_made(
    stores: list[Any], more: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        MemoryManager(stores, **more)


@pytest.mark.behaviour("E2")
@cells(
    "given, field",
    [
        ({"name": ""}, "name"),
        ({"name": "  "}, "name"),
        ({"description": 3}, "description"),
        ({"limit": 0}, "limit"),
        ({"limit": 1.5}, "limit"),
        ({"writable": 1}, "writable"),
    ],
    shared=True,
)
def test_a_store_is_configured_by_values_that_mean_something(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        NamedStore(**{"name": "x", "store": Kept(), **given})
    assert refused.value.field == field


def test_what_cannot_search_is_no_store() -> None:
    with pytest.raises(InvalidInput, match="store 'x' has no search method"):
        NamedStore("x", object())
    for whole in (Memory("memory://", accept_loss=True), BlockingMemory("memory://", accept_loss=True)):
        with pytest.raises(InvalidInput, match=r"'x' is a whole memory, .* Pass memory\.scoped\("):
            NamedStore("x", whole)


class Inherits(MemoryStore):
    async def search(self, query: str, *, limit: int) -> Sequence[Any]:
        return []


@pytest.mark.behaviour("E10")
def test_what_a_store_inherits_from_the_base_is_not_there() -> None:
    store = named(Inherits())
    assert [
        store.can(ability) for ability in ("search", "add", "add_messages", "initialize", "get_tools")
    ] == [True, False, False, False, False]
    with pytest.raises(InvalidInput, match="no add or add_messages"):
        MemoryManager([named(Inherits(), writable=True)])


@pytest.mark.behaviour("E18", "AC-E03")
def test_the_tool_that_adds_reaches_the_stores_it_is_given_and_no_others() -> None:
    kept, other = Kept(), Kept()
    stores = [
        named(kept),
        named(other, "other", writable=False),
        named(Heard(), "messages-only", writable=True),
        named(Kept(), "third", writable=True),
    ]
    stores[0] = named(kept, writable=True)
    wrong: list[tuple[list[Any], str]] = [
        (["nonexistent"], "'nonexistent' not found"),
        ([Kept()], "'Kept' not found"),
        (["other"], "'other' is not writable"),
        (["messages-only"], "'messages-only' has no add method"),
        ([], "names no store"),
    ]
    for given, said in wrong:
        with pytest.raises(InvalidInput, match=said):
            MemoryManager(stores, add_tool=AddTool(stores=given))
    with pytest.raises(InvalidInput, match=r"search_tool\.stores: names no store"):
        MemoryManager(stores, search_tool=SearchTool(stores=[]))
    right: list[list[Any]] = [[kept], [stores[0]], ["personal", kept, stores[0]]]
    for given in right:
        (only,) = MemoryManager(stores, search_tool=False, add_tool=AddTool(stores=given)).tools
        assert only.parameters["properties"]["stores"]["description"] == "Names of memory stores: personal."


@pytest.mark.behaviour("E19", "E40", "E41", "AC-E17")
def test_searching_and_injection_are_on_and_adding_is_off_unless_told() -> None:
    from memory.agents.manager import Injection

    store, own = named(Kept(), writable=True), Injection(max_entries=1)
    manager = MemoryManager([store])
    assert [tool.name for tool in manager.tools] == ["search_memory"]
    assert manager.injection == Injection()
    assert MemoryManager([store], injection=False).injection is None
    assert MemoryManager([store], injection=own).injection is own
    assert MemoryManager([store], search_tool=False).tools == []
    both = MemoryManager([store], search_tool=SearchTool(name="recall"), add_tool=AddTool(name="keep"))
    assert [tool.name for tool in both.tools] == ["recall", "keep"]


@pytest.mark.behaviour("E7", "E31", "E40")
async def test_a_tool_has_a_name_that_apis_take_and_no_other_has() -> None:
    for wrong in ("", "look it up", "x" * 65, None):
        with pytest.raises(InvalidInput, match=r"search_tool\.name: must have 1 to 64"):
            MemoryManager([named(Kept())], search_tool=SearchTool(name=wrong))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="tools: two tools are named 'memory'"):
        MemoryManager(
            [named(Kept(), writable=True)],
            search_tool=SearchTool(name="memory"),
            add_tool=AddTool(name="memory"),
        )

    class Brings(Kept):
        def get_tools(self) -> list[Tool]:
            return [Tool("search_memory", "another", {"type": "object", "properties": {}}, lambda: None)]

    with pytest.raises(InvalidInput, match="tools: two tools are named 'search_memory'"):
        await MemoryManager([named(Brings())]).open()


# -- searching -------------------------------------------------------------------------


@pytest.mark.behaviour("E1", "E3", "E20", "E25")
async def test_all_stores_are_asked_at_once_and_answer_in_their_order() -> None:
    both_asked, asked = asyncio.Event(), list[str]()

    class Waits(Searched):
        async def search(self, query: str, *, limit: int) -> Sequence[Any]:
            asked.append(query)
            if len(asked) == 2:
                both_asked.set()
            await both_asked.wait()
            return await super().search(query, limit=limit)

    manager = MemoryManager(
        [
            named(Waits(*entries("tea", "milk")), "a"),
            named(Waits({"content": "tea", "metadata": {"n": 1}}, "rum"), "b"),
        ]
    )
    found = await asyncio.wait_for(manager.search("drinks"), 60)
    assert texts(found) == [("a", "tea"), ("a", "milk"), ("b", "tea"), ("b", "rum")]
    assert found[2].metadata == {"n": 1}


@pytest.mark.behaviour("E21", "E26", "AC-E07")
async def test_the_caller_s_limit_wins_over_the_store_s_and_that_over_three() -> None:
    with_own, without = Searched(*entries(*"abcdef")), Searched(*entries(*"abcdef"))
    manager = MemoryManager([named(with_own, "a", limit=5), named(without, "b")])
    assert len(await manager.search("x")) == 5 + 3, "a store that returns more than it was asked for is cut"
    assert len(await manager.search("x", limit=2)) == 2 + 2
    assert (with_own.asked, without.asked) == ([("x", 5), ("x", 2)], [("x", 3), ("x", 2)])
    with pytest.raises(InvalidInput, match="limit"):
        await manager.search("x", limit=0)


@pytest.mark.behaviour("E22", "E23")
async def test_only_those_named_are_asked_and_an_unknown_name_before_any() -> None:
    a, b = Searched("tea"), Searched("rum")
    manager = MemoryManager([named(a, "a"), named(b, "b")])
    assert texts(await manager.search("x", stores=["b", "b"])) == [("b", "rum")]
    assert await manager.search("x", stores=[]) == []
    with pytest.raises(InvalidInput, match="memory store 'c' not found; there are a, b"):
        await manager.search("x", stores=["a", "c"])
    assert (a.asked, b.asked) == ([], [("x", 3)])


@pytest.mark.behaviour("E24", "AC-E09")
async def test_a_store_that_fails_is_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    manager = MemoryManager(
        [
            named(Searched(error=OSError("away")), "a"),
            named(Searched(object()), "odd"),
            named(Searched("rum"), "b"),
        ]
    )
    assert texts(await manager.search("x")) == [("b", "rum")]
    assert "memory store 'a' could not be searched: OSError: away" in caplog.text
    assert "store 'odd' returned a object without a content that is text" in caplog.text


@pytest.mark.behaviour("E3", "E24")
@pytest.mark.parametrize("answer", ["Ada", {"content": "Ada"}], ids=["text", "mapping"])
async def test_what_is_no_list_of_things_found_is_not_taken_for_one(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    odd = Searched()
    odd.found = answer
    assert texts(await MemoryManager([named(odd, "odd"), named(Searched("rum"), "b")]).search("x")) == [
        ("b", "rum")
    ]
    assert "store 'odd' returned a" in caplog.text


class Cancels(Kept):
    """A store that ends as cancelled, as one does whose own task was."""

    async def search(self, query: str, *, limit: int) -> Sequence[Any]:
        raise asyncio.CancelledError

    async def add(self, content: str, metadata: Mapping[str, Any] | None = None) -> None:
        raise asyncio.CancelledError


@pytest.mark.behaviour("E24", "E30", "E58", "E72", "E78")
async def test_a_store_that_cancels_itself_has_failed_and_cancels_nobody() -> None:
    learns = Extraction(EveryTurn(), extractor=lambda messages, context: ["tea"])
    stores = [named(Cancels(), "a", writable=True, extraction=learns), named(Searched("rum"), "b")]
    manager = MemoryManager(stores)
    assert texts(await manager.search("x")) == [("b", "rum")]
    assert "rum" in str(await manager.inject([{"role": "user", "content": "x"}]))
    with pytest.raises(StoreAddFailure, match="'a': the function raised CancelledError"):
        await manager.add("tea")
    recording = await manager.record()
    await recording.add({"role": "user", "content": "x"})
    await recording.turn_ended()
    await manager.flush()
    assert not await recording.close()


@pytest.mark.behaviour("E20")
async def test_who_is_cancelled_while_a_store_is_asked_is_cancelled() -> None:
    class Hangs(Searched):
        async def search(self, query: str, *, limit: int) -> Sequence[Any]:
            await asyncio.Event().wait()
            return []

    manager = MemoryManager([named(Hangs(), "a"), named(Searched("rum"), "b")])
    for asked in (manager.search("x"), manager.inject([{"role": "user", "content": "x"}])):
        task = asyncio.ensure_future(asked)
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


# -- adding ----------------------------------------------------------------------------


@pytest.mark.behaviour("E4", "E5", "E8", "E27")
async def test_what_is_added_goes_to_every_writable_store_that_takes_texts() -> None:
    a, b, read_only = Kept(), Kept(), Kept()
    manager = MemoryManager(
        [
            named(a, "a", writable=True),
            named(b, "b", writable=True),
            named(read_only, "c"),
            named(Heard(), "d", writable=True),
        ]
    )
    await manager.add("tea", {"source": "said"})
    await manager.add("rum", stores=["b", "b"])
    assert a.added == [("tea", {"source": "said"})]
    assert b.added == [("tea", {"source": "said"}), ("rum", None)]
    assert read_only.added == []
    for wrong in ("", " ", 3, "\x00"):
        with pytest.raises(InvalidInput, match="content"):
            await manager.add(wrong)  # type: ignore[arg-type]


@pytest.mark.behaviour("E28", "E29", "AC-E11")
async def test_where_nothing_can_be_added_is_said_before_anything_is() -> None:
    a = Kept()
    manager = MemoryManager(
        [named(a, "a", writable=True), named(Kept(), "b"), named(Heard(), "c", writable=True)]
    )
    for names, said in [
        (["a", "x"], "'x' not found"),
        (["a", "b"], "'b' is read-only"),
        (["a", "c"], "'c' has no add method"),
        ([], "no writable store"),
    ]:
        with pytest.raises(InvalidInput, match=said):
            await manager.add("tea", stores=names)
    with pytest.raises(InvalidInput, match="no writable store matched"):
        await MemoryManager([named(Kept())]).add("tea")
    assert a.added == []


@pytest.mark.behaviour("E30")
async def test_a_store_that_fails_keeps_no_other_from_it_and_is_named() -> None:
    error, a, b = OSError("disk"), Kept(), Kept()
    b.refuses = error
    manager = MemoryManager([named(b, "b", writable=True), named(a, "a", writable=True)])
    with pytest.raises(StoreAddFailure, match="failed to add 1 of 1 entries: 'b': disk") as failed:
        await manager.add("tea")
    assert (failed.value.stores, failed.value.causes) == (("b",), (error,))
    assert a.added == [("tea", None)]
    b.refuses = TimeoutError()
    with pytest.raises(StoreAddFailure, match=r"failed to add 1 of 1 entries: 'b': TimeoutError$"):
        await manager.add("tea")


@pytest.mark.behaviour("E27")
async def test_each_store_has_metadata_of_its_own() -> None:
    class Changes(Kept):
        async def add(self, content: str, metadata: Any = None) -> None:
            await super().add(content, dict(metadata))
            metadata["tags"].append("changed")
            metadata["more"] = True

    mine = {"tags": ["a"]}
    a, b = Changes(), Changes()
    await MemoryManager([named(a, "a", writable=True), named(b, "b", writable=True)]).add("tea", mine)
    assert (mine, b.added[0][1]) == ({"tags": ["a"]}, {"tags": ["a", "changed"]}), "changed once, by itself"
    assert a.added[0][1] == {"tags": ["a", "changed"]}


# -- its life --------------------------------------------------------------------------


class Lives(Kept):
    def __init__(self, name: str, life: list[str], tools: Sequence[Tool] = ()) -> None:
        super().__init__()
        self.name, self.life, self.own = name, life, tools

    async def initialize(self) -> None:
        self.life.append(self.name)

    def get_tools(self) -> Sequence[Tool]:
        return self.own


def tool(name: str) -> Tool:
    async def nothing() -> str:
        return name

    return Tool(name, "Does nothing.", {"type": "object", "properties": {}}, nothing)


@pytest.mark.behaviour("E6", "E7", "E40")
async def test_stores_are_initialized_once_in_order_and_their_tools_come_behind() -> None:
    life: list[str] = []
    stores = [
        named(Lives("a", life, [tool("a1"), tool("a2")]), "a", writable=True),
        named(Kept(), "k"),
        named(Lives("b", life, [tool("b1")]), "b"),
    ]
    manager = MemoryManager(stores, add_tool=True)
    assert [one.name for one in manager.tools] == ["search_memory", "add_memory"]
    async with manager:
        await asyncio.gather(manager.open(), manager.open())
        assert life == ["a", "b"]
        assert [one.name for one in manager.tools] == ["search_memory", "add_memory", "a1", "a2", "b1"]
        assert await manager.dispatch("b1") == "b1"


@pytest.mark.behaviour("E31")
@pytest.mark.parametrize(
    "more",
    [{"search_tool": SearchTool(description=None)}, {"add_tool": AddTool(description=5)}],  # type: ignore[arg-type]
    ids=["search", "add"],
)
@pytest.mark.parametrize("described", [None, "What Ada likes"])
def test_a_tool_s_description_is_text(more: dict[str, Any], described: str | None) -> None:
    with pytest.raises(InvalidInput, match=r"_tool\.description: must be text"):
        MemoryManager([named(Kept(), writable=True, description=described)], **more)


@pytest.mark.behaviour("E40")
async def test_what_a_store_brings_that_is_no_tool_is_refused() -> None:
    lives = Lives("a", [], [{"type": "function", "function": {"name": "a1"}}])  # type: ignore[list-item]
    with pytest.raises(InvalidInput, match="must return Tools, each with a name, not dict"):
        await MemoryManager([named(lives, "a")]).open()


@pytest.mark.behaviour("E6")
async def test_a_store_that_cannot_be_initialized_ends_the_opening() -> None:
    class Fails(Kept):
        async def initialize(self) -> None:
            raise OSError("no disk")

    manager = MemoryManager([named(Fails())])
    for _ in range(2):
        with pytest.raises(OSError, match="no disk"):
            await manager.open()


@pytest.mark.behaviour("E6")
async def test_an_opening_that_is_tried_again_initializes_none_twice() -> None:
    class Slow(Kept):
        tries = 0

        async def initialize(self) -> None:
            self.tries += 1
            if self.tries == 1:
                raise OSError("not yet")

    life: list[str] = []
    slow = Slow()
    manager = MemoryManager(
        [named(Lives("a", life, []), "a"), named(slow, "slow"), named(Lives("b", life, []), "b")]
    )
    with pytest.raises(OSError, match="not yet"):
        await manager.open()
    assert life == ["a"]
    await manager.open()
    await manager.open()
    assert (life, slow.tries) == (["a", "b"], 2)


# -- over a memory, and blocking -------------------------------------------------------


@pytest.mark.backend("in_memory")
async def test_scopes_of_a_memory_are_stores() -> None:
    async with Memory("memory://", embedder="none", accept_loss=True) as memory:
        manager = MemoryManager(
            [named(memory.scoped("user:ada"), "ada", writable=True), named(memory.scoped("user:bob"), "bob")]
        )
        await memory.write("Bob likes rum", scope="user:bob", title="Drinks")
        await manager.add("Ada likes tea", {"n": 1})
        assert [entry.metadata for entry in await memory.retrieve("user:ada")] == [{"n": 1}]
        tea, rum = await manager.search("likes")
        assert (tea.content, tea.store_name, tea.metadata) == ("Ada likes tea", "ada", {"n": 1})
        assert (rum.content, rum.store_name, rum.metadata) == ("Drinks: Bob likes rum", "bob", None)
        assert {(hit.score, hit.relevance is not None and hit.relevance > 0.5) for hit in (tea, rum)} == {
            (None, True)
        }


async def test_a_store_whose_methods_block_is_called_beside_the_event_loop() -> None:
    threads = set[int]()

    class Blocks:
        def search(self, query: str, *, limit: int) -> list[str]:
            threads.add(threading.get_ident())
            return [query]

        def add(self, content: str, metadata: Any = None) -> None:
            threads.add(threading.get_ident())

    manager = MemoryManager([named(Blocks(), writable=True)])
    assert texts(await manager.search("tea")) == [("personal", "tea")]
    await manager.add("rum")
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.backend("in_memory")
def test_the_blocking_twin_does_all_of_it_without_an_event_loop() -> None:
    with BlockingMemory("memory://", embedder="none", accept_loss=True) as memory:
        stores = [NamedStore("ada", memory.scoped("user:ada"), writable=True)]
        with BlockingMemoryManager(stores, add_tool=True) as manager:
            manager.add("Ada likes tea")
            assert manager.dispatch("add_memory", {"entries": ["Ada likes rum"]}) == {"stored": 1}
            search, _ = manager.tools
            assert {one["content"] for one in search(query="likes")} == {"Ada likes tea", "Ada likes rum"}
            assert search.name == "search_memory"
            (said,) = manager.inject([{"role": "user", "content": "tea?"}])
            assert "Ada likes tea" in said["content"]
        learns = NamedStore("bob", memory.scoped("user:bob"), writable=True, extraction=True)
        with BlockingMemoryManager(
            [learns], memory=memory, model=lambda _: '[{"content": "Bob sails"}]'
        ) as manager:
            session = memory.session("s1")
            recording = manager.record(session)
            session.append({"role": "user", "content": "I sail"})
            recording.turn_ended()
            assert recording.close() is True
        assert [entry.content for entry in memory.retrieve("user:bob")] == ["Bob sails"]
