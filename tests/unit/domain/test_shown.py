"""Results in a line to people, and as JSON to programs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memory.domain.entry import Entry
from memory.domain.message import Message, Role
from memory.domain.results import cut
from memory.domain.session import HistoryItem
from memory.facade.memory import Memory

LONG = "the ferry runs on Sundays and " * 2_000
pytestmark = pytest.mark.backend("in_memory")


@pytest.fixture
async def memory() -> AsyncIterator[Memory]:
    async with Memory("memory://", embedder="none") as opened:
        yield opened


async def _everything(memory: Memory) -> list[Any]:
    """One of each thing that a call returns, made of long texts and many of them."""
    about = {
        "tags": ["boat", "ferry"],
        "metadata": {"confidence": 0.5, "notes": [LONG[:50]] * 30},
        "expires_at": timedelta(days=30),
    }
    session = await memory.write_many(
        [{"content": LONG[:9_000] + str(n), "scope": "session:s", **about} for n in range(30)]
    )
    entry, other = [
        await memory.write(LONG, title=LONG[:200], scope="user:ada", metadata={"a": LONG[:60_000]})
        for _ in range(2)
    ]
    await memory.update(entry.id, content="short")
    found = await memory.search("the ferry", scope=["user:ada", "session:s"], explain=True)
    return [
        entry,
        found,
        found[0],
        await memory.retrieve("session:s", limit=30),
        await memory.relations.relate(entry.id, "refines", other.id),
        await memory.sessions.end("s"),
        await memory.admin.move([e.id for e in session], to="long"),
        await memory.admin.sweep(),
        await memory.admin.stats(),
        (await memory.admin.check())[0],
        (await memory.admin.where(entry.id))[0],
        memory.admin.route("user:ada"),
    ]


async def test_whatever_a_call_returns_is_shown_in_one_short_line(memory: Memory) -> None:
    for thing in await _everything(memory):
        said = repr(thing)
        assert said.startswith(f"{type(thing).__name__}(")
        assert "\n" not in said
        assert len(said) < 2_000, said
        assert LONG[:61] not in said
        assert str(thing) == said or isinstance(thing, Entry)


async def test_whatever_a_call_returns_is_json_without_loss(memory: Memory) -> None:
    for thing in await _everything(memory):
        made = thing.to_dict()
        assert json.loads(json.dumps(made, allow_nan=False)) == made
        names = (
            {*type(thing).model_fields}
            if isinstance(thing, Entry)
            else set(getattr(type(thing), "__slots__", ()))
        )
        assert names <= set(made)


async def test_an_entry_says_what_tells_it_from_others(memory: Memory) -> None:
    entry = await memory.write(LONG, scope="user:ada", tags=["boat"])
    said = (
        f"Entry(id='{entry.id}', scope='user:ada', type='context', content='{LONG[:59]}…', tags=['boat'],"
        f" tier='mid', version={entry.version!r})"
    )
    assert repr(entry) == said
    made = entry.to_dict()
    assert (made["scope"], made["content"], made["created_at"]) == (
        "user:ada",
        LONG,
        entry.created_at.isoformat().replace("+00:00", "Z"),
    )
    assert Entry(**{**made, "scope": entry.scope}) == entry


async def test_results_say_how_many_there_are_and_what_is_missing(memory: Memory) -> None:
    await memory.write_many([{"content": f"ferry {n}", "scope": "user:ada"} for n in range(5)])
    found = await memory.search("ferry", scope="user:ada")
    assert "… 2 more]" in repr(found)
    assert repr(found).endswith("degraded=[])")
    made = found.to_dict()
    assert [hit["entry"]["id"] for hit in made["hits"]] == [hit.entry.id for hit in found]
    assert [hit["score"] for hit in made["hits"]] == [hit.score for hit in found]
    browsed = await memory.retrieve("user:ada")
    assert [entry["id"] for entry in browsed.to_dict()["entries"]] == [entry.id for entry in browsed]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("x" * 60, repr("x" * 60)),
        ("x" * 61, repr("x" * 59 + "…")),
        ("two\nlines", "'two\\nlines'"),
        ([1, 2, 3], "[1, 2, 3]"),
        ((1, 2, 3, 4), "[1, 2, 3, … 1 more]"),
        ({"a": "b" * 70}, "{'a': '" + "b" * 59 + "…'}"),
        (
            datetime(2026, 1, 1, tzinfo=UTC),
            "datetime.datetime(2026, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)",
        ),
    ],
)
def test_what_is_long_is_cut(value: object, said: str) -> None:
    assert cut(value) == said


def test_messages_within_are_json_too() -> None:
    at = datetime(2026, 1, 31, tzinfo=UTC)
    said = HistoryItem(Message(id="u1", role=Role.USER, content="hello"), 1, 0, at, at).to_dict()
    assert (said["message"]["role"], said["message"]["content"]) == ("user", "hello")
    assert json.loads(json.dumps(said)) == said
