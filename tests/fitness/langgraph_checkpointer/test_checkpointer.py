"""What users of a checkpointer do beyond LangGraph's conformance suite."""

from __future__ import annotations

import asyncio
import json
import operator
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import create_checkpoint, empty_checkpoint
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from memory import BlockingMemory, LegalHoldActive, Memory
from tests.fitness.langgraph_checkpointer.adapter import INLINE_BYTES, DocumentSaver


@pytest.fixture
async def memory(config: dict[str, Any]) -> AsyncIterator[Memory]:
    async with Memory(config, loop="own") as opened:
        yield opened


@pytest.fixture
def saver(memory: Memory) -> DocumentSaver:
    return DocumentSaver(memory)


class State(TypedDict, total=False):
    steps: Annotated[list[str], operator.add]
    answer: str


def extend(state: list[str], writes: list[list[str]]) -> list[str]:
    return [*state, *(item for write in writes for item in write)]


class Log(TypedDict):
    lines: Annotated[list[str], DeltaChannel(extend, list)]


def thread(name: object, namespace: str = "", checkpoint: str | None = None) -> Any:
    named: dict[str, Any] = {"thread_id": name, "checkpoint_ns": namespace}
    return {"configurable": named | ({"checkpoint_id": checkpoint} if checkpoint else {})}


def agent(saver: DocumentSaver) -> Any:
    """Return a graph that asks a person between two steps."""

    def ask(state: State) -> State:
        return {"answer": interrupt("which?"), "steps": ["ask"]}

    builder = StateGraph(State)
    builder.add_node("first", lambda state: {"steps": ["first"]})
    builder.add_node("ask", ask)
    builder.add_node("last", lambda state: {"steps": ["last"]})
    builder.add_edge(START, "first")
    builder.add_edge("first", "ask")
    builder.add_edge("ask", "last")
    builder.add_edge("last", END)
    return builder.compile(checkpointer=saver)


async def put(saver: DocumentSaver, config: Any, values: dict[str, Any], **metadata: Any) -> Any:
    """Store a checkpoint whose channels are all new."""
    versions = {name: saver.get_next_version(None, None) for name in values}
    checkpoint = create_checkpoint(empty_checkpoint(), None, 1)
    checkpoint |= {"channel_values": values, "channel_versions": versions}
    return await saver.aput(config, checkpoint, {"source": "loop", "step": 1, **metadata}, versions)


async def read_values(saver: DocumentSaver, config: Any) -> dict[str, Any] | None:
    found = await saver.aget_tuple(config)
    return found.checkpoint["channel_values"] if found else None


# -- graphs --------------------------------------------------------------------------------


async def test_a_graph_waits_for_an_answer_and_resumes_in_another_memory(config: dict[str, Any]) -> None:
    async with Memory(config, loop="own") as memory:
        await agent(DocumentSaver(memory)).ainvoke({"steps": []}, thread("t"))
    async with Memory(config, loop="own") as memory:
        graph = agent(DocumentSaver(memory))
        assert (await graph.aget_state(thread("t"))).next == ("ask",)
        done = await graph.ainvoke(Command(resume="tea"), thread("t"))
        assert done == {"steps": ["first", "ask", "last"], "answer": "tea"}
        history = [state async for state in graph.aget_state_history(thread("t"))]
    assert [len(state.values.get("steps", [])) for state in history] == [3, 2, 1, 0, 0]


async def test_a_graph_is_called_without_async_inside_an_event_loop(saver: DocumentSaver) -> None:
    graph = agent(saver)
    graph.invoke({"steps": []}, thread("t"))
    assert graph.invoke(Command(resume="tea"), thread("t"))["answer"] == "tea"
    assert len(list(graph.get_state_history(thread("t")))) == 5
    saver.delete_thread("t")
    assert saver.get_tuple(thread("t")) is None
    assert list(saver.list(None)) == []


async def test_a_fork_of_an_older_state_keeps_both_branches(saver: DocumentSaver) -> None:
    graph = agent(saver)
    await graph.ainvoke({"steps": []}, thread("t"))
    await graph.ainvoke(Command(resume="tea"), thread("t"))
    states = [state async for state in graph.aget_state_history(thread("t"))]
    forked = await graph.aupdate_state(states[2].config, {"steps": ["x" * INLINE_BYTES]})
    assert (await graph.aget_state(forked)).values["steps"] == ["first", "x" * INLINE_BYTES]
    assert (await graph.aget_state(states[0].config)).values["steps"] == ["first", "ask", "last"]


async def test_a_graph_inside_a_graph_keeps_its_own_checkpoints(saver: DocumentSaver) -> None:
    builder = StateGraph(State)
    builder.add_node("inner", agent(True))  # type: ignore[arg-type]
    builder.add_edge(START, "inner")
    graph = builder.compile(checkpointer=saver)
    await graph.ainvoke({"steps": []}, thread("t"))
    state = await graph.aget_state(thread("t"), subgraphs=True)
    assert state.tasks[0].state.next == ("ask",)
    done = await graph.ainvoke(Command(resume="tea"), thread("t"))
    assert done["steps"][-3:] == ["first", "ask", "last"]
    namespaces = {
        found.config["configurable"]["checkpoint_ns"]
        async for found in saver.alist({"configurable": {"thread_id": "t"}})
    }
    assert namespaces == {"", "inner"}


async def test_a_delta_channel_is_rebuilt_and_its_chain_is_kept(saver: DocumentSaver) -> None:
    builder = StateGraph(Log)
    builder.add_node("log", lambda state: {"lines": [f"line {len(state['lines'])}"]})
    builder.add_edge(START, "log")
    graph = builder.compile(checkpointer=saver)
    for _ in range(4):
        await graph.ainvoke({"lines": ["in"]}, thread("t"))
    expected = ["in", "line 1", "in", "line 3", "in", "line 5", "in", "line 7"]
    assert (await graph.aget_state(thread("t"))).values["lines"] == expected
    assert graph.get_state(thread("t")).values["lines"] == expected
    with pytest.raises(NotImplementedError, match="DeltaChannel"):
        await saver.aprune(["t"])
    await saver.acopy_thread("t", "u")
    await saver.aprune(["t"], strategy="delete")
    assert (await graph.aget_state(thread("u"))).values["lines"] == expected


# -- values and ids ------------------------------------------------------------------------


@pytest.mark.parametrize("size", [INLINE_BYTES - 100, INLINE_BYTES + 100, 300_000, 5_000_000])
async def test_values_of_every_size_return_equal(saver: DocumentSaver, size: int) -> None:
    values = {"bytes": b"\0" * size, "text": "ä" * size, "small": {"set": {3}, "none": None}}
    stored = await put(saver, thread("t"), values)
    assert await read_values(saver, stored) == values


async def test_a_larger_value_is_stored_once_for_each_version(memory: Memory, saver: DocumentSaver) -> None:
    large = "x" * 1_000_000
    version = saver.get_next_version(None, None)
    config = thread("t")
    for step in range(5):
        checkpoint = create_checkpoint(empty_checkpoint(), None, step)
        checkpoint |= {"channel_values": {"large": large}, "channel_versions": {"large": version}}
        config = await saver.aput(config, checkpoint, {"step": step}, {} if step else {"large": version})
        assert await read_values(saver, config) == {"large": large}
    page = await memory.documents.list("object:langgraph:checkpoints", limit=1_000)
    assert 1_000_000 <= sum(one.size for one in page.documents) < 1_100_000
    await saver.aprune(["t"])
    assert await read_values(saver, thread("t")) == {"large": large}
    await saver.adelete_thread("t")
    page = await memory.documents.list("object:langgraph:checkpoints", limit=1_000)
    assert page.documents == []


ODD = [
    "t",
    "t!",
    "t!!",
    "t%21",
    "T",
    "t\n",
    "t/1",
    "ü" * 3,
    "x" * 2_000,
    "x" * 2_001,
    "*",
    "a b",
    "\0",
    "",
    7,
    "!",
]


async def test_threads_with_odd_ids_never_mix(saver: DocumentSaver) -> None:
    for name in ODD:
        await put(saver, thread(name, namespace=str(name)), {"name": str(name)})
    for name in ODD:
        assert await read_values(saver, thread(name, namespace=str(name))) == {"name": str(name)}
        (found,) = [found async for found in saver.alist({"configurable": {"thread_id": name}})]
        assert found.config["configurable"]["thread_id"] == str(name)
    await saver.adelete_thread("t")
    assert len([found async for found in saver.alist(None)]) == len(ODD) - 1


async def test_tenants_have_threads_of_their_own(memory: Memory) -> None:
    acme, globex = (DocumentSaver(memory.for_tenant(name)) for name in ("acme", "globex"))
    await put(acme, thread("t"), {"name": "acme"})
    assert await globex.aget_tuple(thread("t")) is None
    await put(globex, thread("t"), {"name": "globex"})
    await globex.adelete_thread("t")
    assert await read_values(acme, thread("t")) == {"name": "acme"}


async def test_an_encrypted_checkpoint_shows_no_text(memory: Memory) -> None:
    pytest.importorskip("Crypto")
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"k" * 16)
    saver = DocumentSaver(memory, serde=serde)
    stored = await put(saver, thread("t"), {"secret": "a lump of gold"})
    await saver.aput_writes(stored, [("secret", "a bag of gold")], "task")
    found = await saver.aget_tuple(stored)
    assert found is not None
    assert found.pending_writes == [("task", "secret", "a bag of gold")]
    page = await memory.documents.list("object:langgraph:checkpoints", values=True)
    assert not any(b"gold" in one.value for one in page.documents)  # type: ignore[attr-defined]


async def test_all_threads_are_listed_newest_first(saver: DocumentSaver) -> None:
    stored = [
        await put(saver, thread(name), {}, place=place) for place, name in enumerate(["b", "a", "c", "a"])
    ]
    listed = [found async for found in saver.alist(None)]
    assert [found.metadata["place"] for found in listed] == [3, 2, 1, 0]
    assert [found.config for found in listed] == stored[::-1]
    older = [found async for found in saver.alist(None, before=stored[2], limit=1)]
    assert [found.metadata["place"] for found in older] == [1]
    assert [found async for found in saver.alist(None, limit=0)] == []


# -- writes --------------------------------------------------------------------------------


async def test_writes_that_arrive_before_their_checkpoint_are_kept(saver: DocumentSaver) -> None:
    await put(saver, thread("t"), {"step": 0})
    checkpoint = create_checkpoint(empty_checkpoint(), None, 1)
    await saver.aput_writes(thread("t", checkpoint=checkpoint["id"]), [("channel", "early")], "task")
    assert await read_values(saver, thread("t")) == {"step": 0}
    await saver.aput(thread("t"), checkpoint, {}, {})
    found = await saver.aget_tuple(thread("t"))
    assert found is not None
    assert found.pending_writes == [("task", "channel", "early")]


async def test_writes_are_ordered_by_path_task_and_place(saver: DocumentSaver) -> None:
    stored = await put(saver, thread("t"), {})
    await saver.aput_writes(stored, [("c", 1), ("c", 2)], "task-1", task_path="~__pregel_pull, b")
    await saver.aput_writes(stored, [("c", 3)], "task-2", task_path="~__pregel_pull, a")
    await saver.aput_writes(stored, [("c", 9), ("c", 9), ("d", 4)], "task-1", task_path="~__pregel_pull, b")
    found = await saver.aget_tuple(stored)
    assert found is not None
    assert found.pending_writes == [
        ("task-2", "c", 3),
        ("task-1", "c", 1),
        ("task-1", "c", 2),
        ("task-1", "d", 4),
    ]


async def test_tasks_that_write_at_once_lose_nothing(saver: DocumentSaver) -> None:
    stored = await put(saver, thread("t"), {})
    await asyncio.gather(
        *(saver.aput_writes(stored, [("c", task)], f"task-{task:02}") for task in range(20)),
        *(saver.aput_writes(stored, [("c", 0)] * place, "shared") for place in range(1, 6)),
    )
    found = await saver.aget_tuple(stored)
    assert found is not None
    assert found.pending_writes is not None
    assert len(found.pending_writes) == 25
    assert [write[2] for write in found.pending_writes if write[0] != "shared"] == list(range(20))


# -- threads, loops, processes -------------------------------------------------------------


async def test_threads_with_and_without_loops_share_one_saver(saver: DocumentSaver) -> None:
    graph = agent(saver)

    def run(number: int) -> str:
        if number % 2:
            graph.invoke({"steps": []}, thread(number))
            return str(graph.invoke(Command(resume="tea"), thread(number))["answer"])

        async def both() -> str:
            await graph.ainvoke({"steps": []}, thread(number))
            return str((await graph.ainvoke(Command(resume="tea"), thread(number)))["answer"])

        return asyncio.run(both())

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(12))) == ["tea"] * 12
    assert threading.active_count() < 50


READER = """
import sys, json
from memory import BlockingMemory, Memory
from tests.fitness.langgraph_checkpointer.adapter import DocumentSaver
memory = Memory(json.loads(sys.argv[1]), loop="own")
with BlockingMemory(memory):
    saver = DocumentSaver(memory)
    found = saver.get_tuple({"configurable": {"thread_id": "t"}})
    saver.put_writes(found.config, [("c", "from the other process")], "task")
    print(found.checkpoint["channel_values"]["text"])
"""


async def test_another_process_reads_and_writes_the_same_thread(
    config: dict[str, Any], saver: DocumentSaver
) -> None:
    if any(url.startswith("qdrant+edge") for url in config["tiers"].values()):
        pytest.skip("the files of Edge belong to one process")
    await put(saver, thread("t"), {"text": "hello"})
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", READER, json.dumps(config)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == ("hello", 0), done.stderr
    found = await saver.aget_tuple(thread("t"))
    assert found is not None
    assert found.pending_writes == [("task", "c", "from the other process")]


async def test_a_legal_hold_keeps_a_thread(memory: Memory, saver: DocumentSaver) -> None:
    stored = await put(saver, thread("t"), {"text": "evidence"})
    await memory.admin.legal_holds.add("lawsuit", scope="object:langgraph:checkpoints", reason="a lawsuit")
    with pytest.raises(LegalHoldActive):
        await saver.adelete_thread("t")
    assert await read_values(saver, stored) == {"text": "evidence"}


async def test_an_erased_scope_has_no_thread(memory: Memory, saver: DocumentSaver) -> None:
    await put(saver, thread("t"), {"text": "x" * 100_000})
    await memory.admin.erase("object:langgraph:checkpoints")
    assert [found async for found in saver.alist(None)] == []
    stored = await put(saver, thread("t"), {"text": "new"})
    assert await read_values(saver, stored) == {"text": "new"}


async def test_the_blocking_half_works_without_any_loop(config: dict[str, Any]) -> None:
    def work() -> None:
        memory = Memory(config, loop="own")
        with BlockingMemory(memory):
            saver = DocumentSaver(memory)
            stored = saver.put(thread("t"), empty_checkpoint(), {"run_id": "r"}, {})
            saver.put_writes(stored, [("c", 1)], "task")
            saver.copy_thread("t", "u")
            saver.delete_for_runs(["other"])
            assert saver.get_tuple(thread("t")) is not None
            saver.prune(["t"])
            (found,) = saver.list(thread("u"))
            assert found.pending_writes == [("task", "c", 1)]

    await asyncio.to_thread(work)
