"""What still works while one store is down: the table in docs/backends.md, cell by
cell.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memory import DocumentPut, Memory
from memory.domain.entry import Entry
from memory.domain.errors import StoreError, StoreUnavailable
from memory.domain.relation import Relation
from memory.domain.session import Context
from tests.support.three_stores import STORES, THREE_STORES, embed, take_down

TABLE = Path(__file__).parents[3] / "docs" / "backends.md"


@dataclass
class Known:
    """What was written while all was well."""

    session: Entry
    moved: Entry
    user: Entry
    linked: Entry
    relation: Relation


Call = Callable[[Memory, Known], Awaitable[Any]]

CALLS: dict[str, Call] = {
    "`write` for a session": lambda m, k: m.write("text new", scope="session:s"),
    "`write` for a user, a workspace, an org": lambda m, k: m.write("text new", scope="user:ada"),
    "`write` with a key, for a session": lambda m, k: m.write("text new", scope="session:s", key="new"),
    "`write` with a key, for others": lambda m, k: m.write("text new", scope="user:ada", key="new"),
    "`update`, `entries.invalidate` of a session's entry": lambda m, k: m.update(
        k.session.id, content="text changed"
    ),
    "`update`, `entries.invalidate` of others": lambda m, k: m.update(k.user.id, content="text changed"),
    "`get` of a session's entry": lambda m, k: m.get(k.session.id),
    "`get` of others": lambda m, k: m.get(k.user.id),
    "`get` of an entry in `long`": lambda m, k: m.get(k.moved.id),
    "`get` of what is nowhere": lambda m, k: m.get(k.user.id[:-4] + "0000"),
    "`entries.history` of a session's entry": lambda m, k: m.entries.history(k.session.id),
    "`entries.history` of others": lambda m, k: m.entries.history(k.user.id),
    "`retrieve`": lambda m, k: m.retrieve("user:ada", include_narrower=True, session_id="s"),
    "`search`": lambda m, k: m.search("text", scope=["user:ada", "session:s"]),
    "`search` with `messages`": lambda m, k: m.search(
        "text hello", scope=["user:ada", "session:s", "session:chat"], messages=True
    ),
    "`entries.iterate`, `entries.delete_many`, `admin.export`": lambda m, k: _listed(m),
    "`promote` of a session's entry": lambda m, k: m.promote(k.session.id, "user:ada"),
    "`promote` of others": lambda m, k: m.promote(k.user.id, "org:o"),
    "`compact` of a session's entries": lambda m, k: m.compact(
        [k.session.id], lambda entries: "text in short"
    ),
    "`compact` of others": lambda m, k: m.compact([k.user.id], lambda entries: "text in short"),
    "`documents.put`, `documents.apply`, `documents.delete`": lambda m, k: _kept(m),
    "`documents.get`, `documents.list`": lambda m, k: _looked(m),
    "`relations.relate`": lambda m, k: m.relations.relate(k.linked.id, "refines", k.user.id),
    "`relations.unrelate`": lambda m, k: m.relations.unrelate(k.relation.id),
    "`relations.find`": lambda m, k: m.relations.find(source_id=k.user.id),
    "`sessions.end`, `admin.move` to `mid`": lambda m, k: _moved(m, k),
    "`session.search`, `search_messages`": lambda m, k: m.search_messages("hello"),
    "`session.context`, `session.window` of what this process saw within the last minute": lambda m, k: (
        _read_window(m)
    ),
    "`session.append`, `session.history`, `session.state`, `session.pop`, `sessions.list`": lambda m, k: (
        _talked(m)
    ),
    "`delete` of a session's entry": lambda m, k: m.delete(k.session.id),
    "`delete` of others": lambda m, k: m.delete(k.user.id),
    "`admin.erase`": lambda m, k: m.admin.erase("session:s"),
    "`admin.sweep`": lambda m, k: m.admin.sweep(),
    "`admin.stats`": lambda m, k: m.admin.stats(),
    "`admin.check`": lambda m, k: m.admin.check(),
}


async def _read_window(memory: Memory) -> Context:
    session = memory.session("chat")
    window, context = await session.window(last=2), await session.context(last=2)
    assert window.degraded == context.degraded
    return context


async def _kept(memory: Memory) -> None:
    await memory.documents.put("user:ada", "k", 1)
    await memory.documents.apply([DocumentPut("user:ada", "k", 2)])
    await memory.documents.delete("user:ada", "k")


async def _looked(memory: Memory) -> None:
    await memory.documents.get("user:ada", "k")
    await memory.documents.list("user:ada")


async def _listed(memory: Memory) -> list[Entry]:
    """What the others do too: they walk all stores."""
    await memory.entries.delete_many({"metadata.none": 1})
    return [entry async for entry in memory.entries.iterate()]


async def _talked(memory: Memory) -> None:
    """All of them, each of which fails alone too."""
    session = memory.session("chat")
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: session.append({"role": "user", "content": "more"}),
        session.history,
        session.state,
        session.pop,
        memory.sessions.list,
    ]
    failed = list[StoreError]()
    for call in calls:
        try:
            await call()
        except StoreError as error:
            failed.append(error)
    assert len(failed) in (0, len(calls))
    if failed:
        raise failed[0]


async def _moved(memory: Memory, known: Known) -> Any:
    report = await memory.admin.move([known.session.id], "mid")
    if not report.moved:
        raise StoreUnavailable("", report.kept[0].because)
    return report


async def _known(memory: Memory) -> Known:
    session = await memory.write("text of the session", scope="session:s")
    moved = await memory.write("text moved", scope="session:s")
    await memory.admin.move([moved.id], "long")
    user, linked = (
        await memory.write("text of the user", scope="user:ada"),
        await memory.write("text linked", scope="user:ada"),
    )
    await memory.update(session.id, tags=["edited"])
    await memory.update(user.id, tags=["edited"])
    relation = await memory.relations.relate(user.id, "supports", linked.id)
    await memory.session("chat").append(
        [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "well"}]
    )
    return Known(session, moved, user, linked, relation)


async def _what_happens(call: Call, down: str) -> str:
    async with Memory(THREE_STORES, embedder=embed) as memory:
        known = await _known(memory)
        take_down(memory, down)
        try:
            answer = await call(memory, known)
        except StoreError as error:
            named_rightly = error.store in (down, "")
            assert named_rightly, error  # noqa: PT017
            return "fails"
    said = [getattr(answer, "degraded", ()), getattr(answer, "waiting", ())]
    if isinstance(answer, list) and answer and hasattr(answer[0], "ok"):
        said.append([report.detail for report in answer if not report.ok])
    named = [text for texts in said for text in texts]
    assert all(down in text for text in named), named
    return "partly" if named else "works"


def _table() -> dict[str, dict[str, str]]:
    """The table's rows: call, and under each store what happens while it is down."""
    rows = re.findall(r"^\| (.+?) \| (\w+) \| (\w+) \| (\w+) \|$", TABLE.read_text(), re.MULTILINE)
    return {call: dict(zip(STORES, cells, strict=True)) for call, *cells in rows if call in CALLS}


def test_the_table_has_a_row_for_every_call() -> None:
    assert list(_table()) == list(CALLS)


@pytest.mark.parametrize("down", STORES)
async def test_what_the_table_says_happens_while_a_store_is_down_happens(down: str) -> None:
    told, wrong = _table(), {}
    for name, call in CALLS.items():
        happens = await _what_happens(call, down)
        if told[name][down] != happens:
            wrong[name] = f"says {told[name][down]}, but {happens}"
    assert wrong == {}


if __name__ == "__main__":  # prints the rows as they are
    import asyncio

    for row, made in CALLS.items():
        cells = [asyncio.run(_what_happens(made, name)) for name in STORES]
        print(f"| {row} | {' | '.join(cells)} |")
