"""A call with a `request_id` is cut off at every store call, and repeated after that by
another process: it changes nothing twice, and returns the first result.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from memory import ABSENT, Entry, Memory, MemoryTiersError, Scope
from memory.domain.session import SessionInfo
from memory.facade.resources.session import Session
from tests.support.cut_off import cut_off_at

pytestmark = pytest.mark.backend("sqlite")

ADA, TALK = Scope.user("ada"), Scope.session("talk")
WRITES = ("apply", "delete_matching")
CALLS = ("get", "query", "count", *WRITES)
MOST_CALLS = 150
Call = Callable[[Memory, dict[str, str]], Awaitable[Any]]


async def prepared(memory: Memory) -> dict[str, str]:
    """Store what the calls change; return ids and versions by name."""
    plain = await memory.write("plain", scope=ADA)
    keyed = await memory.write("keyed", scope=ADA, key="k")
    other = await memory.write("other", scope=ADA)
    short = await memory.write("short", scope=TALK)
    await memory.sessions.create("talk", title="old")
    await memory.session("talk").append({"role": "user", "content": "said before"})
    relation = await memory.relations.relate(keyed.id, "supports", other.id)
    return {
        "relation": relation.id,
        "plain": plain.id,
        "plain_version": plain.version,
        "keyed_version": keyed.version,
        "other": other.id,
        "short": short.id,
    }


OPERATIONS: dict[str, Call] = {
    "write": lambda m, a: m.write("new", scope=ADA, request_id="r"),
    "write in a session": lambda m, a: m.write("new", scope=TALK, request_id="r"),
    "write under a key": lambda m, a: m.write("new", scope=ADA, key="n", request_id="r"),
    "create": lambda m, a: m.write("new", scope=ADA, key="n", expected_version=ABSENT, request_id="r"),
    "replace": lambda m, a: m.write("new", scope=ADA, key="k", if_exists="replace", request_id="r"),
    "merge": lambda m, a: m.write(
        scope=ADA,
        key="k",
        tags=["t"],
        if_exists="update",
        expected_version=a["keyed_version"],
        request_id="r",
    ),
    "supersede": lambda m, a: m.write("new", scope=ADA, supersedes=a["plain"], request_id="r"),
    "supersede elsewhere": lambda m, a: m.write("new", scope=TALK, supersedes=a["plain"], request_id="r"),
    "detect conflicts": lambda m, a: m.write("plain", scope=ADA, detect_conflicts=True, request_id="r"),
    "write many": lambda m, a: m.write_many(
        [
            {"content": "a", "scope": ADA},
            {"content": "b", "scope": TALK},
            {"content": "c", "scope": ADA, "key": "k", "if_exists": "replace"},
            {"content": "d", "scope": ADA, "key": "d"},
        ],
        request_id="r",
    ),
    "update": lambda m, a: m.update(a["plain"], content="new", request_id="r"),
    "update at a version": lambda m, a: m.update(
        a["plain"], content="new", expected_version=a["plain_version"], request_id="r"
    ),
    "update in a session": lambda m, a: m.update(a["short"], content="new", request_id="r"),
    "invalidate": lambda m, a: m.entries.invalidate(a["plain"], request_id="r"),
    "delete": lambda m, a: m.delete(a["plain"], request_id="r"),
    "delete at a version": lambda m, a: m.delete(
        a["plain"], expected_version=a["plain_version"], request_id="r"
    ),
    "promote": lambda m, a: m.promote(a["plain"], "org:o", request_id="r"),
    "move up": lambda m, a: m.promote(a["plain"], "org:o", delete_original=True, request_id="r"),
    "compact": lambda m, a: m.compact([a["plain"], a["other"]], _summary, request_id="r"),
    "compact and delete": lambda m, a: m.compact(
        [a["plain"], a["other"]], _summary, delete_sources=True, request_id="r"
    ),
    "relate": lambda m, a: m.relations.relate(a["plain"], "refines", a["other"], request_id="r"),
    "unrelate": lambda m, a: m.relations.unrelate(a["relation"], request_id="r"),
    "create a session": lambda m, a: m.sessions.create(title="new", request_id="r"),
    "create a named session": lambda m, a: m.sessions.create("named", system="Be kind.", request_id="r"),
    "update a session": lambda m, a: m.sessions.update("talk", title="new", request_id="r"),
    "append": lambda m, a: m.session("talk").append({"role": "user", "content": "hello"}, request_id="r"),
    "note": lambda m, a: m.scratchpads.append("note", "builder", request_id="r"),
    "long note": lambda m, a: m.scratchpads.append("note" * 40_000, request_id="r"),
    "append several": lambda m, a: m.session("talk").append(
        [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two", "id": "mine"},
            {"role": "user", "content": "three" * 20_000},
        ],
        request_id="r",
    ),
}

_numbers = itertools.count()


def _summary(entries: Sequence[Entry]) -> str:
    """Summarise like a model: each call says it in other words."""
    return f"summary {next(_numbers)}"


async def state_of(memory: Memory) -> list[Any]:
    """Return all that is stored, without ids and moments."""
    found: list[Any] = []
    for scope in (ADA, TALK, Scope.org("o")):
        entries = [one async for one in memory.entries.iterate(scope, include_retired=True)]
        for entry in entries:
            versions = [
                (one.content.partition(" ")[0], one.tags, one.valid_to is None)
                for one in await memory.entries.history(entry.id)
            ]
            found.append((scope.text, entry.key, versions))
    relations = [one async for one in memory.relations.all()]
    sessions = sorted(str(one.title) for one in (await memory.sessions.list()).sessions)
    history = await memory.session("talk", create=False).history()
    said = [item.message.text for item in history.items]
    notes = [(await memory.scratchpads.read(agent)).content.split("\n", 1)[-1] for agent in ("builder", None)]
    return [sorted(found, key=repr), len(relations), sessions, said, notes]


@pytest.mark.parametrize("name", OPERATIONS)
async def test_a_call_cut_off_anywhere_is_repeated_safely(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "base"
    base.mkdir()
    async with Memory(base / "memory.db", embedder="none") as memory:
        given = await prepared(memory)

    async def call(memory: Memory) -> Any:
        return _shown(await OPERATIONS[name](memory, given))

    await check_cut_off(call, state_of, base, tmp_path, monkeypatch)


async def check_cut_off(
    call: Callable[[Memory], Awaitable[Any]],
    state_of: Callable[[Memory], Awaitable[Any]],
    base: Path,
    tmp_path: Path,
    patch: pytest.MonkeyPatch,
) -> None:
    """Cut a call off after each write; its repeat must bring the state of a whole call.

    Whoever is cut off at a read, or before a write, leaves what the write before left.
    """
    whole = _copy(base, tmp_path / "whole")
    async with Memory(whole, embedder="none") as memory:
        with cut_off_at(MOST_CALLS, CALLS, patch) as made:
            await call(memory)
        await memory.admin.sweep()
        expected = await state_of(memory)
    for number in range(1, MOST_CALLS):
        if number <= len(made) and made[number - 1] not in WRITES:
            continue
        path = _copy(base, tmp_path / f"cut{number}")
        first = None
        killed = Memory(path, embedder="none")
        await killed.open()
        with cut_off_at(number, CALLS, patch) as seen:
            with suppress(MemoryTiersError):
                first = await call(killed)
            calls = len(seen)
            await killed.close()
        async with Memory(path, embedder="none") as memory:
            again = await call(memory)
            assert await call(memory) == again, number
            assert first is None or again == first, number
            await memory.admin.sweep()
            assert await state_of(memory) == expected, number
        if calls < number:
            return
    raise AssertionError("the call makes more store calls than this test cuts off")


def _shown(result: Any) -> Any:
    """Return a result as a repeat returns it: without a report of conflicts."""
    if isinstance(result, list):
        return [_shown(one) for one in result]
    if isinstance(result, Session):
        return result.id
    if isinstance(result, SessionInfo):
        return result.title
    return result.to_dict() if isinstance(result, Entry) else result


def _copy(base: Path, to: Path) -> Path:
    shutil.copytree(base, to)
    return to / "memory.db"
