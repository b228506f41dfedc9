"""What users of a LangGraph store do beyond LangGraph's own tests."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypedDict

import pytest
from langgraph.config import get_store
from langgraph.graph import START, StateGraph
from langgraph.store.base import PutOp
from langmem import create_manage_memory_tool, create_search_memory_tool

from memory import InvalidInput, Memory
from tests.fitness.langgraph_store.adapter import BatchedEntryStore, EntryStore


@pytest.fixture
async def memory(config: dict[str, Any]) -> AsyncIterator[Memory]:
    async with Memory(config | {"embedder": "wordllama"}, loop="own") as opened:
        yield opened


@pytest.fixture
def store(memory: Memory) -> EntryStore:
    return EntryStore(memory, fields=["text"])


async def test_a_prefix_matches_whole_labels_only(store: EntryStore) -> None:
    spaces = [
        ("tenant", "acme"),
        ("tenant", "acme-corp"),
        ("tenant", "acme", "notes"),
        ("tenant", "Acme"),
        ("tenant", "acme\n"),
        ("tenant", "a%"),
        ("tenant", "acme/notes"),
        ("tenant", "*"),
        ("ten",),
    ]
    for space in spaces:
        await store.aput(space, "k", {"text": "a secret of " + space[-1]})
    for query in (None, "secret"):
        for space in spaces:
            found = {item.namespace for item in await store.asearch(space, query=query, limit=20)}
            assert found == {one for one in spaces if one[: len(space)] == space}
            assert set(await store.alist_namespaces(prefix=space)) >= found
    await store.adelete(("tenant", "acme"), "k")
    assert ("tenant", "acme") not in await store.alist_namespaces()


async def test_tenants_and_roots_never_mix(memory: Memory, store: EntryStore) -> None:
    other = EntryStore(memory.for_tenant("globex"))
    beside = EntryStore(memory, root="path:langgraph-2/")
    await store.aput(("users", "ada"), "k", {"text": "tea"})
    for stranger in (other, beside):
        assert await stranger.aget(("users", "ada"), "k") is None
        assert await stranger.asearch(()) == []
        assert await stranger.asearch((), query="tea") == []
        assert await stranger.alist_namespaces() == []


async def test_items_are_found_by_meaning_in_the_fields_that_are_indexed(store: EntryStore) -> None:
    await store.aput(("n",), "boat", {"text": "Ada sails a small dinghy at weekends", "n": 1})
    await store.aput(("n",), "bread", {"text": "Ben bakes bread with rye flour", "n": 2})
    await store.aput(("n",), "other", {"body": "a yacht race", "text": "nothing"}, index=["body"])
    await store.aput(("n",), "hidden", {"text": "a boat trip"}, index=False)
    found = await store.asearch(("n",), query="boats and sailing", limit=2)
    assert {item.key for item in found} == {"boat", "other"}
    assert all(item.score is not None and item.score > 0 for item in found)
    found = await store.asearch(("n",), query="boats", filter={"n": {"$gte": 2}})
    assert {item.key for item in found} <= {"bread"}
    assert {item.key for item in await store.asearch(("n",))} == {"boat", "bread", "other", "hidden"}


async def test_values_survive_as_they_are(config: dict[str, Any]) -> None:
    values = [
        {},
        {"text": ""},
        {"a": None},
        {"n": 1.5, "deep": {"list": [1, [2, {"x": "ü"}]]}},
        {"$": {"a.b": True}},
    ]
    async with Memory(config, loop="own") as memory:
        store = EntryStore(memory)
        for place, value in enumerate(values):
            await store.aput(("v",), f"key {place} /.%*", value)
    async with Memory(config, loop="own") as memory:
        store = EntryStore(memory)
        for place, value in enumerate(values):
            found = await store.aget(("v",), f"key {place} /.%*")
            assert found is not None
            assert found.value == value


async def test_filters_reach_into_values(store: EntryStore) -> None:
    await store.aput(("docs",), "a", {"meta": {"lang": "de", "pages": {"count": 3}}, "a.b": 1})
    await store.aput(("docs",), "b", {"meta": {"lang": "en", "pages": {"count": 9}}})
    await store.aput(("docs",), "c", {"a": {"b": 1}})
    for wanted, keys in (
        ({"meta": {"lang": "de"}}, {"a"}),
        ({"meta": {"lang": "de", "pages": {"count": 9}}}, set()),
        ({"meta": {"pages": {"count": {"$gt": 2}}}}, {"a", "b"}),
        ({"meta": {"pages": {"count": {"$gt": 2, "$lt": 9}}}}, {"a"}),
        ({"meta": {}}, {"a", "b"}),
        ({"a.b": 1}, {"a"}),
        ({"a": {"b": 1}}, {"c"}),
    ):
        assert {item.key for item in await store.asearch(("docs",), filter=wanted)} == keys, wanted


async def test_a_batch_with_a_bad_value_stores_nothing(store: EntryStore) -> None:
    bad: list[tuple[str, Any]] = [
        ("k" * 600, {"a": 1}),
        ("large", {"text": "x" * 70_000}),
        ("object", {"a": object()}),
        ("surrogate", {"text": "half a smile \ud83d"}),
    ]
    for key, value in bad:
        with pytest.raises(InvalidInput):
            await store.abatch([PutOp(("n",), "good", {"a": 1}), PutOp(("n",), key, value)])
    with pytest.raises(InvalidInput):
        await store.aput(tuple("abcdefghijklmnopq"), "deep", {"a": 1})
    assert await store.asearch(()) == []


async def test_a_replaced_item_keeps_nothing_of_the_earlier_one(store: EntryStore) -> None:
    await store.aput(("n",), "k", {"text": "Ada drinks tea", "old": 1}, ttl=10)
    first = await store.aget(("n",), "k")
    await store.aput(("n",), "k", {"text": "Ada drinks coffee"})
    second = await store.aget(("n",), "k")
    assert first is not None
    assert second is not None
    assert second.value == {"text": "Ada drinks coffee"}
    assert second.created_at == first.created_at
    assert second.updated_at > first.updated_at
    assert await store.asearch(("n",), filter={"old": 1}) == []
    await store.adelete(("n",), "k")
    await store.adelete(("n",), "k")
    await store.aput(("n",), "k", {"text": "again"})
    again = await store.aget(("n",), "k")
    assert again is not None
    assert again.value == {"text": "again"}


async def test_threads_loops_and_batches_share_one_store(store: EntryStore) -> None:
    def work(number: int) -> None:
        for turn in range(5):
            if number % 2:
                store.put(("n", str(number)), f"k{turn}", {"turn": turn})
            else:
                asyncio.run(store.aput(("n", str(number)), f"k{turn}", {"turn": turn}))
            store.put(("shared",), "k", {"number": number})

    with ThreadPoolExecutor(4) as pool:
        await asyncio.gather(*(asyncio.wrap_future(pool.submit(work, number)) for number in range(8)))
    merging = BatchedEntryStore(store)
    found = await asyncio.gather(
        *(merging.aget(("n", str(number)), f"k{turn}") for number in range(8) for turn in range(5))
    )
    assert [item.value["turn"] if item else None for item in found] == [0, 1, 2, 3, 4] * 8
    assert len(await store.alist_namespaces(prefix=("n",))) == 8
    await asyncio.gather(*(merging.aput(("last",), "k", {"turn": turn}) for turn in range(9)))
    last = await merging.aget(("last",), "k")
    assert last is not None
    assert last.value == {"turn": 8}


READER = """
import sys, json
from memory import BlockingMemory, Memory
from tests.fitness.langgraph_store.adapter import EntryStore
memory = Memory(json.loads(sys.argv[1]), loop="own")
with BlockingMemory(memory):
    store = EntryStore(memory)
    store.put(("n",), "second", {"text": "from the other process"})
    print(store.get(("n",), "first").value["text"], store.list_namespaces())
"""


async def test_another_process_sees_the_items(config: dict[str, Any]) -> None:
    if any(url.startswith("qdrant+edge") for url in config["tiers"].values()):
        pytest.skip("the files of Edge belong to one process")
    async with Memory(config, loop="own") as memory:
        store = EntryStore(memory)
        await store.aput(("n",), "first", {"text": "hello"})
        command = [sys.executable, "-c", READER, json.dumps(config)]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        assert (done.stdout.strip(), done.returncode) == ("hello [('n',)]", 0), done.stderr
        found = await store.asearch(("n",), query="process")
        assert [item.key for item in found] == ["second"]


async def test_an_erased_user_is_neither_found_nor_listed(memory: Memory, store: EntryStore) -> None:
    await store.aput(("users", "ada", "notes"), "k", {"text": "tea"})
    await store.aput(("users", "ben"), "k", {"text": "tea"})
    await memory.admin.erase("path:langgraph/users/ada/**")
    assert await store.alist_namespaces() == [("users", "ben")]
    assert [item.namespace for item in await store.asearch((), query="tea")] == [("users", "ben")]
    assert await store.aget(("users", "ada", "notes"), "k") is None


class State(TypedDict, total=False):
    text: str


async def test_a_node_reads_and_writes_the_store(store: EntryStore) -> None:
    async def note(state: State) -> State:
        inside = get_store()
        await inside.aput(("notes",), "k", {"text": state["text"]})
        (found,) = await inside.asearch(("notes",), query="tea")
        return {"text": found.value["text"] + "!"}

    builder = StateGraph(State)
    builder.add_node("note", note)
    builder.add_edge(START, "note")
    assert await builder.compile(store=store).ainvoke({"text": "tea"}) == {"text": "tea!"}


async def test_the_tools_of_langmem_work(memory: Memory) -> None:
    store = EntryStore(memory, fields=["content"])
    space = ("memories", "{langgraph_user_id}")
    manage, search = (
        create_manage_memory_tool(space, store=store),
        create_search_memory_tool(space, store=store),
    )
    ada, ben = ({"configurable": {"langgraph_user_id": name}} for name in ("ada", "ben"))
    done = await manage.ainvoke({"content": "Ada prefers tea", "action": "create"}, ada)
    name = str(done).rsplit(" ", 1)[-1]
    assert "Ada prefers tea" in str(await search.ainvoke({"query": "what does Ada drink?"}, ada))
    assert "tea" not in str(await search.ainvoke({"query": "what does Ada drink?"}, ben))
    manage.invoke({"content": "Ada prefers coffee", "action": "update", "id": name}, ada)
    assert "coffee" in str(search.invoke({"query": "what does Ada drink?"}, ada))
    await manage.ainvoke({"action": "delete", "id": name}, ada)
    assert "coffee" not in str(await search.ainvoke({"query": "what does Ada drink?"}, ada))
