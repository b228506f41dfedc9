"""Objects that hold an open memory: their copies, and why they cannot be pickled."""

from __future__ import annotations

import asyncio
import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

from memory import (
    BlockingBufferProvider,
    BlockingMemory,
    BufferProvider,
    Memory,
    MemoryManager,
    NamedStore,
)


def handles(memory: Any, provider: Any) -> dict[str, Any]:
    """One object of each class that holds a memory."""
    session = memory.session("s1", user="ada")
    names = ("entries", "sessions", "documents", "relations", "admin", "artifacts", "scopes", "short_ids")
    return {
        "memory": memory,
        "tenant": memory.for_tenant("acme"),
        "view": memory.scoped("user:ada"),
        "restricted": memory.restrict(["user:ada"]),
        "session": session,
        "tasks": session.tasks,
        "runs": session.runs,
        "stream": session.stream(role="assistant"),
        "holds": memory.admin.legal_holds,
        "provider": provider,
        **{name: getattr(memory, name) for name in names},
    }


def check(held: dict[str, Any]) -> None:
    agent = {"name": "planner", "holds": held, "notes": ["a"]}
    copied: Any = copy.deepcopy(agent)
    assert copied["notes"] is not agent["notes"]
    for name, handle in held.items():
        assert copy.copy(handle) is handle, name
        assert copied["holds"][name] is handle, name
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps({name: handle})


async def test_a_copied_agent_uses_the_same_memory(tmp_path: Path) -> None:
    async with Memory(tmp_path / "m.db", embedder="none") as memory:
        held = handles(memory, BufferProvider(memory))
        check({**held, "manager": MemoryManager([NamedStore("notes", memory.scoped("user:ada"))])})
        await copy.deepcopy(held["session"]).append({"role": "user", "content": "hello"})
        assert [message.text for message in (await held["session"].context()).messages] == ["hello"]
    check(held)


def test_a_copy_of_a_blocking_object_is_the_object(tmp_path: Path) -> None:
    with BlockingMemory(tmp_path / "m.db", embedder="none") as memory:
        check(handles(memory, BlockingBufferProvider(memory)))


def test_a_copy_of_an_object_on_a_private_loop_is_the_object(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "m.db", embedder="none", loop="own")
    asyncio.run(memory.open())
    check(handles(memory, BufferProvider(memory)))
    asyncio.run(memory.close())
