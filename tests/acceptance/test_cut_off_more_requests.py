"""Changes of sessions, tasks, documents, files and notes are cut off at every store call,
and repeated after that by another process: they change nothing twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from pathlib import Path
from typing import Any

import pytest

from memory import Document, DocumentDelete, DocumentPut, Memory, Scope
from memory.facade.resources.session import Session
from tests.acceptance.support import ADA
from tests.acceptance.test_cut_off_requests import check_cut_off

pytestmark = pytest.mark.backend("sqlite")

Call = Callable[[Memory], Awaitable[Any]]


def talk(memory: Memory) -> Session:
    return memory.session("talk")


async def prepared(memory: Memory) -> None:
    await memory.sessions.create("talk", system="Be kind.", title="old")
    session = talk(memory)
    await session.append([{"role": "user", "content": f"{n}", "id": f"m{n}"} for n in range(6)])
    await session.exclude("m2")
    await session.tasks.save("t1", title="first")
    await session.tasks.save("t2", title="second")
    await session.runs.save("r1", child_id="child")
    await memory.documents.put(ADA, "kept", {"n": 1})
    await memory.documents.put(ADA, "gone", b"data")
    await memory.documents.put(ADA, "large", b"." * 300_000)
    await memory.artifacts.put("talk", "report.md", b"old")
    await memory.scratchpads.append("noted")
    for n in range(3):
        await memory.write(f"draft {n}", scope=ADA, metadata={"kind": "draft"})


def _summary(messages: Any) -> str:
    return f"summary of {len(messages)}"


CALLS: dict[str, Call] = {
    "pop": lambda m: talk(m).pop(2, request_id="r"),
    "update a message": lambda m: talk(m).update("m1", content="new", request_id="r"),
    "update the system message": lambda m: talk(m).update("system", content="Be brief.", request_id="r"),
    "exclude": lambda m: talk(m).exclude("m3", request_id="r"),
    "restore": lambda m: talk(m).restore("m2", request_id="r"),
    "erase a message": lambda m: talk(m).erase("m3", request_id="r"),
    "clear": lambda m: talk(m).clear(request_id="r"),
    "replace": lambda m: talk(m).replace(
        [{"role": "user", "content": "0"}, {"role": "user", "content": "new"}], request_id="r"
    ),
    "checkpoint": lambda m: talk(m).checkpoint("mark", request_id="r"),
    "compact": lambda m: talk(m).compact(_summary, keep_last=2, request_id="r"),
    "archive": lambda m: talk(m).archive(request_id="r"),
    "end": lambda m: talk(m).end(request_id="r"),
    "end by id": lambda m: m.sessions.end("talk", request_id="r"),
    "fork": lambda m: talk(m).fork("m4", request_id="r"),
    "delete a session": lambda m: m.sessions.delete("talk", request_id="r"),
    "save a task": lambda m: talk(m).tasks.save("t1", title="new", request_id="r"),
    "delete a task": lambda m: talk(m).tasks.delete("t1", request_id="r"),
    "replace all tasks": lambda m: talk(m).tasks.replace_all([{"id": "t2"}, {"id": "t3"}], request_id="r"),
    "save a run": lambda m: talk(m).runs.save("r2", child_id="child", request_id="r"),
    "delete a run": lambda m: talk(m).runs.delete("r1", request_id="r"),
    "put": lambda m: m.documents.put(ADA, "kept", {"n": 2}, request_id="r"),
    "put large": lambda m: m.documents.put(ADA, "new", b"+" * 300_000, if_exists="error", request_id="r"),
    "delete a document": lambda m: m.documents.delete(ADA, "large", request_id="r"),
    "delete documents": lambda m: m.documents.delete_many(ADA, prefix="g", request_id="r"),
    "apply": lambda m: m.documents.apply(
        [DocumentPut(ADA, "kept", 3), DocumentPut(ADA, "new", 1), DocumentDelete(ADA, "gone")],
        request_id="r",
    ),
    "apply apart": lambda m: m.documents.apply(
        [DocumentPut(ADA, "kept", 3), DocumentPut("user:bob", "new", 1)], atomic=False, request_id="r"
    ),
    "put a file": lambda m: m.artifacts.put("talk", "report.md", b"new", request_id="r"),
    "delete a file": lambda m: m.artifacts.delete(("talk", "report.md"), request_id="r"),
    "clear a scratchpad": lambda m: m.scratchpads.clear(request_id="r"),
    "delete entries": lambda m: m.entries.delete_many({"metadata.kind": "draft"}, request_id="r"),
    "hold": lambda m: m.admin.legal_holds.add("case", reason="a lawsuit", user="ada", request_id="r"),
    "block a source": lambda m: m.admin.block_source(source="web", reason="wrong", request_id="r"),
}
IN_CI = {"pop", "replace", "put", "delete entries"}
UNKNOWN = {"delete documents", "delete entries"}
"""Calls whose repeat reports only what it deletes itself, if the first was cut off."""


def shown(result: Any) -> Any:
    """Return a result without moments, versions and new ids."""
    if isinstance(result, Session):
        return "session"
    if isinstance(result, list):
        return [shown(one) for one in result]
    if hasattr(result, "to_dict"):
        result = result.to_dict()
    elif hasattr(result, "model_dump"):
        result = result.model_dump(mode="json")
    if isinstance(result, dict):
        names = ("version", "id", "session_id", "incarnation")
        return {n: shown(v) for n, v in result.items() if n not in names and not n.endswith("_at")}
    return result


async def state_of(memory: Memory) -> list[Any]:
    """Return all that is stored, without ids and moments."""
    found: list[Any] = []
    for info in sorted((await memory.sessions.list()).sessions, key=lambda one: one.message_count):
        session = memory.session(info.id, create=False)
        context = await session.context()
        history = [(item.message.text, item.excluded) for item in (await session.history()).items]
        tasks = [shown(task) for task in (await session.tasks.list()).tasks]
        runs = [shown(run) for run in (await session.runs.list()).runs]
        files = [(one.path, one.size, one.sha256) for one in (await memory.artifacts.list(info.id)).artifacts]
        window = [message.text for message in context.messages]
        found.append([info.status, window, history, tasks, runs, files])
    for scope in (ADA, Scope.user("bob")):
        page = await memory.documents.list(scope, values=True)
        values = [(one.key, one.value) for one in page.documents if isinstance(one, Document)]
        entries = sorted([entry.content async for entry in memory.entries.iterate(scope)])
        found.append([values, entries])
    found.append((await memory.scratchpads.read()).content.split("\n", 1)[-1])
    found += [len(await memory.admin.legal_holds.list()), len(await memory.admin.blocked_sources())]
    return found


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[] if one in IN_CI else pytest.mark.nightly) for one in CALLS]
)
async def test_a_change_cut_off_anywhere_is_repeated_safely(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "base"
    base.mkdir()
    async with Memory(base / "memory.db", embedder="none") as memory:
        await prepared(memory)

    async def call(memory: Memory) -> Any:
        async def make() -> Any:
            return await CALLS[name](memory)

        done = await asyncio.create_task(make(), context=Context())  # as another process
        return None if name in UNKNOWN else shown(done)

    await check_cut_off(call, state_of, base, tmp_path, monkeypatch)
