"""Frameworks copy agents and their dependencies: the memory in them stays the same."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict

from memory import BlockingMemory, CompositeProvider, Memory, MemoryManager, NamedStore, SlidingWindowProvider

OWN: list[Literal["own"] | None] = [None, "own"]


def handles_of(memory: Memory) -> list[Any]:
    session = memory.session("monday", user="ada")
    window = SlidingWindowProvider(memory, max_turns=10)
    return [
        memory,
        memory.for_tenant("acme"),
        memory.restrict(["user:ada"]),
        memory.scoped("user:ada"),
        memory.documents,
        memory.admin.legal_holds,
        session,
        session.tasks,
        session.stream(role="assistant"),
        window,
        CompositeProvider([window]),
        MemoryManager([NamedStore("notes", memory.scoped("user:ada"))]),
    ]


@dataclasses.dataclass
class Dependencies:
    memory: Memory
    names: list[str]


class Agent(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    memory: Memory
    names: list[str]


@pytest.mark.parametrize("loop", OWN)
async def test_a_copy_of_each_handle_is_of_the_same_memory(loop: Literal["own"] | None) -> None:
    async with Memory("memory://", embedder="none", loop=loop) as memory:
        for handle in handles_of(memory):
            for copied in (copy.copy(handle), copy.deepcopy(handle), copy.deepcopy({"a": [handle]})["a"][0]):
                assert type(copied) is type(handle)
        await copy.deepcopy(memory).write("Ada drinks tea", scope="user:ada")
        await copy.deepcopy(memory.documents).put("user:ada", "size", 1)
        await copy.deepcopy(memory.session("monday", user="ada")).append({"role": "user", "content": "Hello"})
        assert [one.content for one in await memory.retrieve("user:ada")] == ["Ada drinks tea"]
        assert [one.content for one in (await memory.session("monday").context()).messages] == ["Hello"]
        assert await memory.documents.get("user:ada", "size") is not None


@pytest.mark.parametrize("loop", OWN)
async def test_objects_with_a_memory_are_copied_with_it(loop: Literal["own"] | None) -> None:
    async with Memory("memory://", embedder="none", loop=loop) as memory:
        as_dict = dataclasses.asdict(Dependencies(memory, ["a"]))
        agent = Agent(memory=memory, names=["a"])
        model = agent.model_copy(deep=True)
        assert as_dict["memory"] is memory
        assert model.memory is memory
        assert model.names is not agent.names


def test_a_copy_of_a_blocking_memory_is_of_the_same_memory() -> None:
    with BlockingMemory("memory://", embedder="none") as memory:
        copy.deepcopy(memory).write("Ada drinks tea", scope="user:ada")
        assert [one.content for one in copy.copy(memory).retrieve("user:ada")] == ["Ada drinks tea"]
        with pytest.raises(TypeError, match="Pass the configuration"):
            pickle.dumps(memory.session("monday"))


@pytest.mark.parametrize("loop", OWN)
async def test_no_handle_is_pickled_and_the_error_says_what_to_do(loop: Literal["own"] | None) -> None:
    async with Memory("memory://", embedder="none", loop=loop) as memory:
        for handle in handles_of(memory):
            with pytest.raises(TypeError, match="Pass the configuration, and open a Memory"):
                pickle.dumps(handle)
