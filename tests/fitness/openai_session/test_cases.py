"""What a demanding user asks of a session of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin

import pytest
from openai._types import SequenceNotStr
from openai.types.responses import ResponseInputItemParam
from typing_extensions import get_type_hints, is_typeddict

from memory import InvalidInput, Memory, SessionOwnerMismatch
from tests.fitness.openai_session.adapter import MemorySession
from tests.fitness.suites import memory, shared_memory
from tests.support.conversations import drawn

__all__ = ["memory", "shared_memory"]
ROOT = Path(__file__).resolve().parents[3]


def said(text: str, role: str = "user") -> Any:
    return {"role": role, "content": text}


def call(number: int) -> Any:
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"c{number}",
        "name": "look",
        "arguments": "{}",
    }


def result(number: int) -> Any:
    return {"type": "function_call_output", "call_id": f"c{number}", "output": f"found {number}"}


REASONING: Any = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAB"}


async def test_items_of_every_kind_come_back_equal_and_are_popped_equal(memory: Memory) -> None:
    for seed in range(10):
        items: list[Any] = drawn("openai_responses", seed).items
        session = MemorySession(f"s{seed}", memory)
        await session.add_items(items)
        assert await session.get_items() == items
        assert [await session.pop_item() for _ in items] == items[::-1]
        assert (await session.pop_item(), await session.get_items()) == (None, [])


@pytest.mark.parametrize(
    "items",
    [
        [said("hi"), call(1), said("still there?"), result(1)],
        [said("hi"), call(1), call(2), result(2), result(1)],
        [said("hi"), REASONING, call(1)],
        [result(7), said("hi")],
        [said("hi"), call(1), result(1), result(1)],
        [said("rules", "system"), said("hi"), said("more rules", "developer"), said("hi")],
        [said(""), said("same"), said("same"), REASONING, REASONING],
    ],
    ids="late unordered interrupted uncalled twice system repeated".split(),
)
async def test_no_item_is_moved_added_or_left_out(memory: Memory, items: list[Any]) -> None:
    session = MemorySession("s", memory)
    for item in items:
        await session.add_items([item])
    for most in range(1, len(items) + 2):
        assert await session.get_items(limit=most) == items[-most:]
    assert await session.get_items(limit=0) == []
    for left in range(len(items) - 1, -1, -1):
        assert await session.pop_item() == items[left]
        assert await session.get_items() == items[:left]


async def test_a_cleared_session_begins_anew(memory: Memory) -> None:
    session = MemorySession("s", memory)
    await session.clear_session()
    await session.add_items([said("rules", "system"), said("hello"), call(1)])
    await session.clear_session()
    assert (await session.get_items(), await session.pop_item()) == ([], None)
    await session.add_items([said("again")])
    assert await session.get_items() == [said("again")]


WRONG: list[Any] = ["text", None, 7, {"role": "user", "content": object()}, {"x": float("nan")}, {"x": b"1"}]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
async def test_what_is_no_json_is_refused_and_nothing_of_its_call_is_stored(
    memory: Memory, wrong: Any
) -> None:
    session = MemorySession("s", memory)
    with pytest.raises(InvalidInput):
        await session.add_items([said("hi"), wrong])
    assert await session.get_items() == []


UNKNOWN: list[Any] = [
    {},
    {"__enc__": 1, "v": 1, "kid": "hkdf-v1", "payload": "gAAAAB" * 20_000},
    {"type": "invented_call", "id": "i1", "call_id": "c1", "input": {"a": [1, 2.5, None, True]}},
    {"role": "narrator", "content": "once"},
    {"role": "user", "content": [{"type": "hologram", "data": {}}]},
    {"type": "item_reference", "id": "memory-tiers"},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": json.loads("[" * 60 + "]" * 60)},
]


async def test_items_that_the_api_does_not_have_are_kept(memory: Memory) -> None:
    session = MemorySession("s", memory)
    await session.add_items([said("hi"), *UNKNOWN, said("ho")])
    for item in UNKNOWN:
        await session.add_items([item])
    items = [said("hi"), *UNKNOWN, said("ho"), *UNKNOWN]
    assert await session.get_items() == items
    assert [await session.pop_item() for _ in items] == items[::-1]


def is_required(hint: Any) -> bool:
    origin: Any = get_origin(hint)
    return origin is Required


def example(kind: Any) -> Any:
    """Return a smallest value of a type of the SDK."""
    origin: Any = get_origin(kind)
    inner = get_args(kind)
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        asked = [name for name, hint in hints.items() if kind.__total__ or is_required(hint)]
        return {name: example(hints[name]) for name in asked}
    if origin in (Literal,):
        return inner[0]
    if origin in (Union, UnionType):
        return example(inner[0])
    if origin in (Required, NotRequired, Annotated):
        return example(inner[0])
    if origin in (list, Iterable, Sequence, SequenceNotStr):
        return [example(inner[0])]
    if origin is dict or kind is dict:
        return {}
    return {str: "x", int: 1, float: 0.5, bool: True, object: "x", Any: "x"}[kind]


async def test_each_type_of_item_that_the_sdk_knows_is_kept(memory: Memory) -> None:
    for kind in get_args(ResponseInputItemParam):
        session, item = MemorySession(kind.__name__, memory), example(kind)
        await session.add_items([item])
        assert await session.get_items() == [item] == [await session.pop_item()]


@pytest.mark.parametrize("name", ["a:b", "ü/ñ ", "100%", "x" * 500, "session:s1", "..", "*"])
async def test_odd_session_ids_name_sessions_of_their_own(memory: Memory, name: str) -> None:
    session = MemorySession(name, memory)
    await session.add_items([said(name)])
    await MemorySession("other", memory).add_items([said("other")])
    assert await MemorySession(name, memory).get_items() == [said(name)]


async def test_tenants_and_users_are_apart(memory: Memory) -> None:
    await MemorySession("s", memory, user="ada").add_items([said("of ada")])
    with pytest.raises(SessionOwnerMismatch):
        await MemorySession("s", memory, user="bob").get_items()
    assert await MemorySession("s", memory.for_tenant("acme"), user="bob").get_items() == []


async def test_many_and_big_items(memory: Memory) -> None:
    session = MemorySession("s", memory)
    items = [said(f"message {number}") for number in range(1_200)]
    image = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64," + "A" * 5_000_000}
    await session.add_items(items)
    await session.add_items([{"role": "user", "content": [image]}])
    assert await session.get_items(limit=3) == [*items[-2:], {"role": "user", "content": [image]}]
    assert await session.pop_item() == {"role": "user", "content": [image]}
    assert await session.get_items() == items


async def test_each_item_is_popped_once_by_several_callers(memory: Memory) -> None:
    await MemorySession("s", memory).add_items([said(f"{number}") for number in range(30)])
    popped = await asyncio.gather(*(MemorySession("s", memory).pop_item() for _ in range(40)))
    texts = [item["content"] for item in popped if item is not None]
    assert sorted(texts, key=int) == [f"{number}" for number in range(30)]


def test_threads_with_loops_of_their_own_lose_nothing(config: dict[str, Any]) -> None:
    memory = Memory(config, loop="own")

    def talk(thread: int) -> None:
        async def add() -> None:
            for number in range(10):
                await MemorySession("s", memory).add_items(
                    [said(f"{thread}.{number}"), said("ok", "assistant")]
                )

        asyncio.run(add())

    async def read() -> list[Any]:
        async with memory:
            await asyncio.gather(*(asyncio.to_thread(talk, thread) for thread in range(4)))
            return list(await MemorySession("s", memory).get_items())

    items = asyncio.run(read())
    for thread in range(4):
        own = [item["content"] for item in items if item["content"].startswith(f"{thread}.")]
        assert own == [f"{thread}.{number}" for number in range(10)]
    assert all(items[at + 1] == said("ok", "assistant") for at in range(0, len(items), 2)), (
        "a call is one step"
    )


PROGRAM = """
import asyncio, json, sys
from memory import Memory
from tests.fitness.openai_session.adapter import MemorySession

async def main():
    async with Memory(json.loads(sys.argv[1])) as memory:
        session = MemorySession("s", memory)
        for number in range(10):
            await session.add_items([{"role": "user", "content": sys.argv[2] + str(number)}])

asyncio.run(main())
"""


@pytest.mark.nightly
async def test_two_processes_share_a_session_and_it_is_there_after_them(config: dict[str, Any]) -> None:
    if "qdrant+edge" in str(config):
        config["tiers"]["long"] = config["tiers"]["mid"]  # Edge is of one process

    def run(name: str) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-c", PROGRAM, json.dumps(config), name]
        return subprocess.run(command, cwd=ROOT, check=True, timeout=600)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, "ab"))
    async with Memory(config) as memory:
        items: list[Any] = await MemorySession("s", memory).get_items()
    for name in "ab":
        own = [item["content"] for item in items if item["content"].startswith(name)]
        assert own == [f"{name}{number}" for number in range(10)]


@pytest.mark.parametrize("change", ["add", "pop", "clear"])
async def test_a_cancelled_change_has_ended_when_its_caller_continues(memory: Memory, change: str) -> None:
    for turns in range(6):
        session = MemorySession(f"s{turns}", memory)
        await session.add_items([said("before")])
        changes = {
            "add": session.add_items([said("more")]),
            "pop": session.pop_item(),
            "clear": session.clear_session(),
        }
        chosen = changes.pop(change)
        for other in changes.values():
            other.close()
        task = asyncio.ensure_future(chosen)
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        begun = turns > 0
        after = [said("before"), said("more")] if change == "add" else []
        assert await session.get_items() == (after if begun else [said("before")])


async def test_what_an_agent_said_is_found_summarised_and_erased(memory: Memory) -> None:
    session = MemorySession("s", memory, user="ada")
    await session.add_items([said("I moved to Porto"), said("Noted.", "assistant"), said("And now?")])
    (found,) = await memory.search_messages("Porto", user="ada")
    assert "Porto" in found.message.text
    await memory.session("s", user="ada").compact(lambda messages: "Ada lives in Porto", keep_last=1)
    summary, last = await session.get_items()
    assert "Ada lives in Porto" in str(summary)
    assert last == said("And now?")
    assert await memory.sessions.delete("s")
    assert await MemorySession("s", memory, user="ada").get_items() == []
    assert await memory.search_messages("Porto", user="ada") == []
