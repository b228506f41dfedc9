"""An argument that a call cannot honour is refused by its name, never ignored."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memory import (
    ConfigError,
    InvalidInput,
    Memory,
    PartialWrite,
    Scope,
    SessionOwnerMismatch,
    StoreUnavailable,
)
from memory.facade.config.settings import load

ADA = Scope.user("ada")


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    async with Memory(tmp_path / "a.db", embedder="none") as opened:
        yield opened


async def test_a_blank_query_refuses_a_threshold_and_accepts_what_only_orders(memory: Memory) -> None:
    await memory.write("tea", scope=ADA)
    for search in (partial(memory.search, " \n", scope=ADA), partial(memory.scoped(ADA).search, "")):
        with pytest.raises(InvalidInput, match=r"^min_relevance: cannot be combined with a blank query"):
            await search(min_relevance=0.5)
        ordered: dict[str, Any] = {
            "half_life": timedelta(days=3),
            "decay_floor": 0.2,
            "expand": True,
            "rerank": "two-stage",
        }
        assert [hit.content for hit in await search(**ordered)] == ["tea"]


async def test_a_context_refuses_what_belongs_to_a_budget_or_a_recall(memory: Memory) -> None:
    session = memory.session("s", user="ada")
    await session.append({"role": "user", "content": "tea"})
    for name, value in {"slack": 0.5, "by": "turns", "min_relevance": 0.5}.items():
        with pytest.raises(InvalidInput, match=f"^{name}: "):
            await session.context(last=2, **{name: value})  # type: ignore[arg-type]
    assert len((await session.context(slack=0.5, by="turns")).messages) == 1
    with pytest.raises(InvalidInput, match=r"^min_relevance: cannot be combined with a blank query"):
        await session.context(recall=" ", min_relevance=0.5)
    assert (
        len((await session.context(1_000, slack=0.5, by="turns", recall="tea", min_relevance=0.5)).messages)
        == 1
    )


NEW: dict[str, tuple[Any, Any]] = {
    "system": ("You help.", "You hinder."),
    "title": ("Trip", "Journey"),
    "tags": (["a", "b"], ["a"]),
    "metadata": ({"n": 1}, {"n": 2}),
    "expires_at": (timedelta(days=3), timedelta(days=4)),
    "user": ("ada", "bob"),
    "agent": ("guide", "critic"),
    "namespace": ("team", "other"),
}
"""What a new session gets, and another value of it."""


async def test_what_a_new_session_gets_is_refused_where_the_session_says_otherwise(memory: Memory) -> None:
    given = inspect.signature(memory.session).parameters.keys() - {"session_id", "create", "shared"}
    assert given == NEW.keys(), "say what an existing session makes of it"
    await memory.session("s", **{name: value for name, (value, _) in NEW.items()}).append(
        {"role": "user", "content": "hello"}
    )
    for name, (same, other) in NEW.items():
        assert (await memory.session("s", **{name: same}).info()).message_count == 2
        with pytest.raises(SessionOwnerMismatch, match=f"^{name}: session 's' ") as refused:
            await memory.session("s", **{name: other}).info()
        assert refused.value.field == name
        if name in inspect.signature(memory.sessions.update).parameters:
            assert f"memory.sessions.update(session_id, {name}=…)" in str(refused.value)
    with pytest.raises(SessionOwnerMismatch, match=r"^shared: session 's' exists and is not shared"):
        await memory.session("s", shared=True).info()
    await memory.sessions.update("s", title="Journey", tags=["a"], metadata={"n": 2}, expires_at=None)
    assert (
        await memory.session("s", title="Journey", tags=["a"], metadata={"n": 2}).info()
    ).title == "Journey"


async def test_drafts_take_every_argument_of_a_write(memory: Memory) -> None:
    old = await memory.write("tea", scope=ADA, key="drink")
    await memory.sessions.create("talk")
    given: dict[str, Any] = {
        "content": "coffee",
        "scope": ADA,
        "type": "user",
        "title": "Drink",
        "source": "web",
        "tags": ["a"],
        "metadata": {"n": 1},
        "confidence": 0.7,
        "created_at": 1_000_000_000,
        "expires_at": timedelta(days=3),
        "conversation_id": "talk",
        "speaker": "Ada",
        "number_in_conversation": 1,
        "artifact_id": None,
        "agent": "guide",
        "run": "r1",
        "origins": ["source:web:example.com"],
        "key": "new",
        "revive": False,
        "consistency": "replicated",
        "supersedes": [],
        "if_exists": "error",
        "expected_version": None,
        "detect_conflicts": False,
        "resolve": None,
        "auto_tag": False,
        "auto_supersede": False,
        "request_id": "r1",
        "data": {"cups": 2},
        "vector": None,
        "searchable": True,
        "refresh_on_read": False,
    }
    assert given.keys() == inspect.signature(memory.write).parameters.keys()
    for name in given.keys() - {"content", "scope", "number_in_conversation"}:
        await memory.write_many([{"content": f"by {name}", "scope": ADA, name: given[name]}])
    before, replaced, updated, after = await memory.write_many(
        [
            {"content": "before", "scope": ADA},
            {"content": "coffee", "scope": ADA, "supersedes": old.id, "confidence": 0.7},
            {"content": "water", "scope": ADA, "key": "current", "if_exists": "replace"},
            {"content": "after", "scope": ADA},
        ]
    )
    assert (await memory.entries.history(old.id))[-1].valid_to is not None or await memory.get(old.id) is None
    assert [one.content for one in (before, replaced, updated, after)] == [
        "before",
        "coffee",
        "water",
        "after",
    ]
    assert (replaced.confidence, before.confidence) == (0.7, None)
    assert (await memory.update(replaced.id, confidence=0.9)).confidence == 0.9
    with pytest.raises(InvalidInput, match=r"^confidence: must be a number from 0 to 1"):
        await memory.update(replaced.id, confidence=2)
    with pytest.raises(InvalidInput, match=r"^drafts\[1\]\.resolve: needs detect_conflicts=True"):
        await memory.write_many(
            [{"content": "unwritten", "scope": ADA}, {"content": "x", "scope": ADA, "resolve": print}]
        )
    with pytest.raises(PartialWrite) as partly:
        await memory.write_many(
            [
                {"content": "kept", "scope": ADA},
                {"content": "x", "scope": ADA, "supersedes": old.id},
                {"content": "kept too", "scope": ADA},
            ]
        )
    assert (set(partly.value.written), set(partly.value.conflicts)) == ({0, 2}, {1})
    contents = {entry.content for entry in await memory.retrieve(ADA, limit=100)}
    assert {"kept", "kept too"} <= contents
    assert "unwritten" not in contents


async def test_a_store_that_is_read_only_is_not_told_what_was_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for url in (f"sqlite:///{tmp_path / 'b.db'}", f"file:{tmp_path / 'b'}"):
        async with Memory(url, embedder="none") as memory:
            entry = await memory.write("tea", scope=ADA)
        async with Memory(f"{url}?mode=ro", embedder="none") as memory:
            assert await memory.get(entry.id) is not None
            await memory.search("tea", scope=ADA)
    assert [one.getMessage() for one in caplog.records if one.levelname in ("WARNING", "ERROR")] == []


async def test_a_setting_is_neither_blank_nor_given_twice_differently(tmp_path: Path) -> None:
    for name in ("TENANT", "EMBEDDER", "TIERS__LONG", "STORES__MAIN__URL", "DURATIONS__DEADLINE"):
        for blank in ("", " \t"):
            with pytest.raises(ConfigError, match=f"^MEMORY__{name}: is blank"):
                load(environ={f"MEMORY__{name}": blank}, folder=tmp_path)
    with pytest.raises(ConfigError, match=r"tenant: must not be blank"):
        Memory(tmp_path / "a.db", tenant=" ")
    for url, name, one, other in (
        ("redis://localhost:1/0", "prefix", "ours", "theirs"),
        ("postgresql://localhost:1/d", "pool_size", "3", 4),
        ("mysql://localhost:1/d", "pool_size", "3", 4),
        ("mongodb://localhost:1/d", "timeout", "3", 4),
        ("qdrant://localhost:1", "timeout", "3", 4),
        (f"qdrant+edge:///{tmp_path / 'edge'}", "collection", "one", "other"),
        (f"sqlite:///{tmp_path / 'c.db'}", "mode", "ro", "rw"),
        (f"file:{tmp_path / 'c'}", "fsync", "true", False),
    ):
        stores = {"it": {"url": f"{url}?{name}={one}", "options": {name: other}}}
        memory = Memory(
            {"stores": stores, "tiers": dict.fromkeys(("short", "mid", "long"), "it"), "accept_loss": True},
            embedder="none",
        )
        with pytest.raises(
            ConfigError, match=f"the option {name} has one value in the URL and another in options"
        ):
            await memory.open()


async def test_a_port_that_speaks_no_http_is_named(tmp_path: Path) -> None:
    def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"-ERR unknown command\r\n")
        writer.close()

    for answers in (silent, other):
        async with await asyncio.start_server(answers, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            memory = Memory(
                {"tiers": dict.fromkeys(("short", "mid", "long"), f"qdrant://127.0.0.1:{port}")},
                require_all=True,
            )
            with pytest.raises(StoreUnavailable, match="this port is not its HTTP port"):
                await memory.open()


USED_ALONE: dict[str, tuple[str, Callable[[Memory], Awaitable[Any]]]] = {
    "revive": ("key=", lambda m: m.write("x", scope=ADA, revive=True)),
    "revive of a report": ("key=", lambda m: m.write_with_report("x", scope=ADA, revive=True)),
    "revive of a draft": ("key=", lambda m: m.write_many([{"content": "x", "scope": ADA, "revive": True}])),
    "revive in a scope": ("key=", lambda m: m.scoped(ADA).write("x", revive=True)),
    "session_id": ("include_narrower=", lambda m: m.retrieve(ADA, session_id="s")),
    "session_id of a search": ("include_narrower=", lambda m: m.search("x", scope=ADA, session_id="s")),
}


@pytest.mark.parametrize("name", USED_ALONE)
async def test_an_argument_that_would_have_no_effect_is_refused(memory: Memory, name: str) -> None:
    field = name.split()[0]
    lacking, call = USED_ALONE[name]
    with pytest.raises(InvalidInput, match=f"^(drafts\\[0\\]\\.)?{field}: needs .*{lacking}"):
        await call(memory)
