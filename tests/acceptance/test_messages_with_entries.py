"""A search with `messages`: what was remembered and what was said, in one order, under
one limit.
"""

from __future__ import annotations

from typing import Any

import pytest

from memory import FoundEntry, FoundMessage, InvalidInput, Memory, Scope
from tests.acceptance.support import HOUR, Clock
from tests.acceptance.talking import assistant, user

ADA, SESSION = Scope.user("ada"), Scope.session("s1")


async def found(memory: Memory, query: str, **asked: Any) -> list[tuple[str, str]]:
    """What was found: an entry's scope and text, a message's session and text."""
    hits = await memory.search(query, messages=True, **asked)
    return [
        (h.entry.scope.text, h.entry.content) if isinstance(h, FoundEntry) else (h.session_id, h.message.text)
        for h in hits
    ]


async def known(memory: Memory, clock: Clock) -> None:
    await memory.session("s1", user="ada").append(
        [user("the heron nests by the lake", "m1"), assistant("a quiet place", "m2")]
    )
    await memory.session("s2", user="bo").append(user("the heron nests in the reeds", "m1"))
    clock.advance(HOUR)
    await memory.write("herons eat fish", scope=ADA, type="learning")
    await memory.write("a heron was seen", scope=SESSION)


async def test_entries_and_messages_come_in_one_order_under_one_limit(memory: Memory, clock: Clock) -> None:
    await known(memory, clock)
    assert await found(memory, "where does the heron nest", scope=ADA) == [
        ("s1", "the heron nests by the lake"),
        ("user:ada", "herons eat fish"),
    ]
    assert (await found(memory, "heron fish", scope=ADA))[0] == ("user:ada", "herons eat fish")
    assert await found(memory, "where does the heron nest", scope=ADA, limit=1) == [
        ("s1", "the heron nests by the lake")
    ]
    hits = await memory.search("where does the heron nest", scope=ADA, messages=True)
    assert [type(hit) for hit in hits] == [FoundMessage, FoundEntry]
    first, second = hits
    assert [hit.score for hit in hits] == sorted((hit.score or 0.0 for hit in hits), reverse=True)
    assert 1.0 > (first.relevance or 0.0) > (second.relevance or 0.0) > 0.0
    assert (first.content, second.content, second.id) == (
        "the heron nests by the lake",
        "herons eat fish",
        second.to_dict()["entry"]["id"],
    )
    assert [hit.entry.content for hit in await memory.search("heron nest", scope=ADA)] == ["herons eat fish"]


async def test_messages_are_those_of_the_asked_sessions_and_of_sessions_with_the_asked_users(
    memory: Memory, clock: Clock
) -> None:
    await known(memory, clock)
    said = {"s1": ("s1", "the heron nests by the lake"), "s2": ("s2", "the heron nests in the reeds")}
    here = ("session:s1", "a heron was seen")
    assert set(await found(memory, "heron", scope=SESSION)) == {said["s1"], here}
    assert set(await found(memory, "heron", scope=Scope.user("bo"))) == {said["s2"]}
    assert set(await found(memory, "heron", scope=[Scope.session("s2"), ADA])) == {
        said["s1"],
        said["s2"],
        ("user:ada", "herons eat fish"),
    }
    assert set(await found(memory, "heron", scope=[Scope.session("s2"), SESSION])) == {
        said["s1"],
        said["s2"],
        here,
    }
    for scope in (Scope.workspace("ada"), Scope.org("ada"), Scope.object("session", "s1")):
        assert await found(memory, "heron", scope=scope) == []
    async with memory.for_tenant("other") as other:
        assert await found(other, "heron", scope=[ADA, SESSION]) == []


async def test_what_a_message_cannot_be_asked_about_leaves_messages_out(memory: Memory, clock: Clock) -> None:
    await known(memory, clock)
    entry = ("user:ada", "herons eat fish")
    for asked in ({"filter": {"types": ["learning"]}}, {"as_of": clock()}, {"known_at": clock()}):
        assert await found(memory, "heron", scope=ADA, **asked) == [entry], asked
    for given in ({"tags": ["a"]}, {"any_tags": ["a"]}, {"metadata": {"a": 1}}):
        assert await found(memory, "heron", scope=ADA, filter=given) == [], given
    assert await found(memory, "heron", scope=ADA, since=clock() - HOUR / 2) == [entry]
    assert await found(memory, "heron", scope=ADA, filter={"before": clock() - HOUR / 2}) == [
        ("s1", "the heron nests by the lake")
    ]
    assert await found(memory, " ", scope=ADA) == [entry]


async def test_what_was_excluded_erased_or_deleted_is_not_found_with_entries_either(
    memory: Memory, clock: Clock
) -> None:
    await known(memory, clock)
    session = memory.session("s1")
    await session.exclude("m1")
    assert await found(memory, "heron", scope=ADA) == [("user:ada", "herons eat fish")]
    result = await memory.search("heron", scope=ADA, messages=True, explain=True)
    assert [len(ids) for ids in result.left_out.values()] == [1]
    await session.restore("m1")
    assert len(await found(memory, "heron", scope=ADA)) == 2
    await memory.sessions.delete("s1")
    assert await found(memory, "heron", scope=ADA) == [("user:ada", "herons eat fish")]


async def test_an_explained_message_tells_how_it_came_to_its_place(memory: Memory, clock: Clock) -> None:
    await known(memory, clock)
    first, second = await memory.search("heron nest lake", scope=ADA, messages=True, explain=True)
    assert [(hit.explanation["rank"], hit.explanation["ranks"]["lexical"]) for hit in (first, second)] == [
        (1, 1),
        (2, 2),
    ]
    assert first.explanation.keys() == second.explanation.keys()


async def test_a_view_of_a_scope_searches_messages_too(memory: Memory, clock: Clock) -> None:
    await known(memory, clock)
    (message, entry) = await memory.scoped(ADA).search("heron nest", messages=True)
    assert (isinstance(message, FoundMessage), isinstance(entry, FoundEntry)) == (True, True)
    with pytest.raises(InvalidInput, match="messages"):
        await memory.search("heron", scope=ADA, messages="yes")  # type: ignore[call-overload]
