"""A cursor continues the list that returned it, with any limit, and no other list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from memory import InvalidInput, Scope
from memory.facade.memory import Memory
from tests.acceptance.support import Clock

OTHERS: dict[str, tuple[dict[str, Any], ...]] = {
    "sessions": (
        {"by": "created"},
        {"order": "oldest"},
        {"user": "ada"},
        {"agent": "a"},
        {"namespace": "n"},
        {"status": "active"},
        {"tags": ["t"]},
        {"since": "2020-01-01T00:00:00Z"},
        {"until": "2050-01-01T00:00:00Z"},
    ),
    "runs of all": (
        {"order": "newest"},
        {"session_id": "s0"},
        {"child_id": "c"},
        {"status": "queued"},
        {"mode": "foreground"},
        {"run_id": "r0"},
    ),
    "runs": ({"order": "newest"}, {"child_id": "c"}, {"status": "queued"}, {"mode": "foreground"}),
    "tasks": ({"order": "newest"}, {"status": "pending"}, {"parent_id": None}, {"parent_id": "t0"}),
    "history": (
        {"order": "newest"},
        {"roles": ["user"]},
        {"summaries": False},
        {"first": 1},
        {"last": 9},
        {"ids": ["m0"]},
        {"archived_by": "c"},
    ),
    "artifacts": ({"session_id": "s1"},),
    "relations": (
        {"label": "supports"},
        {"source_id": True},
        {"target_id": True},
        {"active": True},
        {"as_of": "2050-01-01T00:00:00Z"},
        {"known_at": "2050-01-01T00:00:00Z"},
    ),
    "scopes": ({"kind": "path"}, {"prefix": "path:a/"}, {"max_depth": 1}),
    "documents": ({"order": "updated"}, {"reverse": True}, {"scope": "user:bo"}),
    "documents of a key": ({"key": "other"}, {"scope": "path:a/b0/**"}),
}


@pytest.fixture
async def lists(memory: Memory, clock: Clock) -> dict[str, Callable[..., Awaitable[Any]]]:
    """Every list with pages, over a memory that has at least two items for each."""
    entries = [await memory.write(f"entry {n}", scope=Scope.path("a", f"b{n}")) for n in range(3)]
    ids = [entry.id for entry in entries]
    for n in range(2):
        clock.advance()
        await memory.relations.relate(ids[0], "supports", ids[n + 1])
        session = memory.session(f"s{n}", user="ada")
        await session.append({"role": "user", "content": "hello"}, id=f"m{n}")
        for m in range(2):
            await memory.artifacts.put(f"s{n}", f"file{m}", b"x")
            await memory.documents.put("user:ada", f"k{m}", n)
            await memory.documents.put(Scope.path("a", f"b{m}"), "k", n)
    session = memory.session("s0")
    await session.append({"role": "user", "content": "again"}, id="m2")
    for n in range(2):
        await session.tasks.save(f"t{n}")
        await session.runs.save(f"r{n}", child_id="c")

    async def artifacts(session_id: str = "s0", **asked: Any) -> Any:
        return await memory.artifacts.list(session_id, **asked)

    async def relations(**asked: Any) -> Any:
        for name in asked.keys() & {"source_id", "target_id"}:
            asked[name] = ids[0]
        return await memory.relations.find(**asked)

    async def documents(scope: str = "user:ada", **asked: Any) -> Any:
        return await memory.documents.list(scope, **asked)

    async def of_key(scope: str = "path:a/**", key: str = "k", **asked: Any) -> Any:
        return await memory.documents.find(scope, key, **asked)

    return {
        "sessions": memory.sessions.list,
        "runs of all": memory.sessions.runs,
        "runs": session.runs.list,
        "tasks": session.tasks.list,
        "history": session.history,
        "artifacts": artifacts,
        "relations": relations,
        "scopes": memory.scopes.list,
        "documents": documents,
        "documents of a key": of_key,
    }


@pytest.mark.parametrize("name", OTHERS)
async def test_a_cursor_continues_its_own_list_with_any_limit_and_no_other(
    lists: dict[str, Callable[..., Awaitable[Any]]], name: str
) -> None:
    list_them = lists[name]
    first = await list_them(limit=1)
    assert first.cursor is not None
    second = await list_them(limit=2, cursor=first.cursor)
    assert list(second)
    assert next(iter(first)) not in list(second)
    for other in OTHERS[name]:
        with pytest.raises(InvalidInput, match=r"^cursor: "):
            await list_them(limit=1, cursor=first.cursor, **other)
