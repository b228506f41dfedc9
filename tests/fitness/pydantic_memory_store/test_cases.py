"""What a demanding user asks of a memory store of the Pydantic AI harness."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai_harness.memory import (
    InMemoryStore,
    MemoryConflictError,
    MemoryFile,
    MemoryMutation,
    MemoryOperation,
    MemoryOperationConflictError,
    MetadataMemoryStore,
)

from memory import Memory
from tests.fitness.pydantic_memory_store.adapter import DocumentMemoryStore
from tests.fitness.suites import memory, shared_memory

__all__ = ["memory", "shared_memory"]
SCOPE = "user:ada"


@pytest.fixture
def store(memory: Memory) -> DocumentMemoryStore:
    return DocumentMemoryStore(memory, SCOPE)


PATHS = [
    f"{folder}{name}" for folder in ("", "a/", "a/b/", "a-b/", "a.b/", "ab/") for name in ("x.md", "Y", "0")
]


Call = Callable[[Any, str | None], Awaitable[Any]]
"""A call of a store. It takes the version that this store gave."""


def drawn_call(draw: random.Random, path: str) -> Call:
    prefix, text = path[: draw.randint(0, len(path))], " ".join(draw.choices(["tea", "Porto", "uv"], k=20))
    size, limit, files = draw.randint(1, 40), draw.randint(1, 8), draw.randint(1, 9)
    known = MemoryOperation(f"op {draw.randint(0, 60)}", draw.choice("ab"))
    operation = known if draw.random() < 0.5 else None
    noted = draw.choice([{}, {"by": "ada"}, {"by": "x" * 5_000}])
    bounds = {"limit": limit, "max_files": files, "max_chars": size * 8, "max_file_chars": size}
    calls: list[Call] = [
        lambda store, version: store.write(path, text, expected_version=version, operation=operation),
        lambda store, version: store.write_with_metadata(
            path, "tea", expected_version=version, metadata=noted, operation=operation
        ),
        lambda store, version: store.delete(path, expected_version=version, operation=operation),
        lambda store, version: store.read(path, max_chars=size),
        lambda store, version: store.list_paths(prefix, limit=limit),
        lambda store, version: store.search(prefix, "tea porto", **bounds),
        lambda store, version: store.get_operation(known),
    ]
    return draw.choice(calls)


def without_version(result: Any) -> Any:
    """Versions are opaque: only whether there is one must be the same."""
    if isinstance(result, MemoryMutation):
        return replace(result, version=result.version and "a version")
    return replace(result, version="a version") if isinstance(result, MemoryFile) else result


async def test_drawn_uses_come_to_what_the_store_of_the_harness_says(store: DocumentMemoryStore) -> None:
    draw, theirs = random.Random(7), InMemoryStore()  # noqa: S311
    versions: dict[str, list[tuple[str | None, str | None]]] = {path: [(None, None)] for path in PATHS}

    async def result(call: Call, of: Any, version: str | None) -> Any:
        try:
            return await call(of, version)
        except (MemoryConflictError, MemoryOperationConflictError, ValueError) as error:
            return type(error)

    for number in range(300):
        path = draw.choice(PATHS)
        call, (mine, other) = drawn_call(draw, path), draw.choice(versions[path][-2:])
        one, two = await result(call, store, mine), await result(call, theirs, other)
        assert without_version(one) == without_version(two), (number, path)
        if isinstance(one, MemoryMutation) and not one.replayed:
            versions[path].append((one.version, two.version))


async def test_one_operation_sent_by_several_callers_is_made_once(store: DocumentMemoryStore) -> None:
    made = await asyncio.gather(
        *(
            store.write("a.md", "tea", expected_version=None, operation=MemoryOperation("op", "f"))
            for _ in range(10)
        )
    )
    assert [one.replayed for one in made].count(False) == 1
    assert len({one.version for one in made}) == 1
    other = await asyncio.gather(
        *(store.delete("a.md", expected_version=made[0].version) for _ in range(10)), return_exceptions=True
    )
    assert sum(isinstance(one, MemoryMutation) for one in other) == 1
    assert sum(isinstance(one, MemoryConflictError) for one in other) == 9


async def test_files_and_receipts_are_there_after_a_restart(config: dict[str, Any]) -> None:
    operation = MemoryOperation("op", "f")
    async with Memory(config) as memory:
        first = await DocumentMemoryStore(memory, SCOPE).write(
            "a.md", "t\u00e9a " * 300_000, expected_version=None, operation=operation
        )
    async with Memory(config) as memory:
        store = DocumentMemoryStore(memory, SCOPE)
        again = await store.write("a.md", "tea", expected_version=None, operation=operation)
        assert (again.replayed, again.version) == (True, first.version)
        read = await store.read("a.md", max_chars=2_000_000)
        assert read is not None
        assert (read.content, read.truncated, read.version) == ("t\u00e9a " * 300_000, False, first.version)


async def test_stores_of_other_scopes_and_tenants_are_apart_and_erased_alone(memory: Memory) -> None:
    stores = [
        DocumentMemoryStore(memory, SCOPE),
        DocumentMemoryStore(memory, "user:bob"),
        DocumentMemoryStore(memory.for_tenant("other"), SCOPE),
    ]
    operation = MemoryOperation("op", "f")
    for store in stores:
        made = await store.write("a.md", "tea", expected_version=None, operation=operation)
        assert not made.replayed
    await memory.admin.erase_user("ada")
    assert [await store.list_paths(limit=9) for store in stores] == [[], ["a.md"], ["a.md"]]
    assert await stores[0].get_operation(operation) is None


@pytest.mark.parametrize(
    "path",
    ["", "/a", "a/", "a//b", "..", "a/../b", ".", "a/./b", "a b", "\u00fc", "~a", "a\n", "a/" * 260 + "a"],
)
async def test_wrong_paths_are_refused(store: DocumentMemoryStore, path: str) -> None:
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: store.read(path, max_chars=1),
        lambda: store.write(path, "x", expected_version=None),
        lambda: store.delete(path, expected_version=None),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="memory path"):
            await call()
    assert await store.list_paths(limit=1) == []


def test_metadata_are_supported(store: DocumentMemoryStore) -> None:
    assert isinstance(store, MetadataMemoryStore)
