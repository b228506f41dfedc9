"""Messages are found over sessions: by words, with scores that compare, and never what
was excluded, deleted or is another's.
"""

from __future__ import annotations

from typing import Any

import pytest

from memory import InvalidInput, Memory
from tests.acceptance.support import HOUR, Clock
from tests.acceptance.talking import SYSTEM, assistant, summary, user


async def found(memory: Memory, query: str, **asked: Any) -> list[tuple[str, str]]:
    return [(hit.session_id, str(hit.message.id)) for hit in await memory.search_messages(query, **asked)]


async def talked(memory: Memory, clock: Clock) -> None:
    one = memory.session("s1", system=SYSTEM, user="ada", agent="helper", namespace="n")
    await one.append(
        [
            user("tea with milk", "m1"),
            assistant("noted", "m2"),
            user("a heron at the lake", "m3") | {"name": "Ada"},
        ]
    )
    clock.advance(HOUR)
    two = memory.session("s2", user="bo", agent="helper")
    await two.append([user("tea, tea and tea again", "m1"), user("herons eat fish", "m2")])
    await memory.write("an entry about tea", scope="user:ada")


async def test_messages_are_found_over_sessions_with_session_number_and_speaker(
    memory: Memory, clock: Clock
) -> None:
    await talked(memory, clock)
    assert await found(memory, "tea") == [("s2", "m1"), ("s1", "m1")]
    (best,) = await memory.search_messages("lake heron", limit=1)
    assert (best.session_id, best.item.number, best.speaker, best.message.text) == (
        "s1",
        4,
        "Ada",
        "a heron at the lake",
    )
    assert await found(memory, "nothing of the kind") == await found(memory, "  ") == []


async def test_messages_are_found_by_user_agent_namespace_and_time(memory: Memory, clock: Clock) -> None:
    await talked(memory, clock)
    assert await found(memory, "tea", user="ada") == [("s1", "m1")]
    assert await found(memory, "tea", agent="helper") == [("s2", "m1"), ("s1", "m1")]
    assert await found(memory, "tea", agent="helper", user="bo") == [("s2", "m1")]
    assert await found(memory, "tea", namespace="n") == [("s1", "m1")]
    first = (await memory.session("s1").history(ids=["m1"])).items[0].created_at
    assert await found(memory, "tea", since=first, until=first) == [("s1", "m1")]
    assert await found(memory, "tea", since=first + HOUR / 2) == [("s2", "m1")]
    assert await found(memory, "tea", until=first - HOUR) == []


async def test_relevance_means_the_same_in_every_session(memory: Memory, clock: Clock) -> None:
    """The same words weigh the same, however many of a session's messages have them."""
    await memory.session("s1").append(
        [user("the green heron", "m1"), *[user(f"heron {n}", f"h{n}") for n in range(5)]]
    )
    await memory.session("s2").append(user("the green heron", "m1"))
    relevance = {
        hit.session_id: hit.relevance for hit in await memory.search_messages("green heron", limit=2)
    }
    assert relevance["s1"] == pytest.approx(relevance["s2"])


async def test_relevance_says_how_well_a_message_answers(memory: Memory, clock: Clock) -> None:
    await talked(memory, clock)
    (best,) = await memory.search_messages("heron lake", limit=1)
    (half,) = await memory.search_messages("heron unicorn", limit=1)
    assert half.relevance is not None
    assert best.relevance is not None
    assert 0 < half.relevance < best.relevance < 1
    assert await memory.search_messages("heron unicorn", min_relevance=half.relevance + 0.01) == []
    assert [
        hit.content for hit in await memory.search_messages("heron lake", min_relevance=best.relevance)
    ] == [best.message.text]


async def test_what_was_said_beside_a_message_and_by_whom_orders_those_that_say_the_same(
    memory: Memory,
) -> None:
    for session_id in ("s1", "s2", "s3", "s4", "s5"):
        opening = "When does the heron expedition leave?" if session_id == "s3" else "What is new?"
        name = "Grace" if session_id == "s4" else "Ada"
        await memory.session(session_id).append(
            [user(opening, "m1"), user("It will leave at seven", "m2") | {"name": name}]
        )
    assert (await found(memory, "heron expedition leave"))[:2] in (
        [("s3", "m1"), ("s3", "m2")],
        [("s3", "m2"), ("s3", "m1")],
    )
    assert (await found(memory, "when will Grace leave"))[0] == ("s4", "m2")


async def test_a_message_that_shows_what_is_asked_for_comes_first(memory: Memory) -> None:
    for n, kind in enumerate(("red", "tall", "two", "dark", "old")):
        await memory.session(f"s{n}").append(user(f"we bought {kind} lamps", "m1"))
    assert (await found(memory, "how many lamps"))[0] == ("s2", "m1")
    await memory.session("s4").update("m1", content="we bought ten lamps")
    assert set((await found(memory, "how many lamps"))[:2]) == {("s2", "m1"), ("s4", "m1")}
    await memory.session("s2").update("m1", content="we bought new lamps")
    assert (await found(memory, "how many lamps"))[0] == ("s4", "m1")


async def test_compacted_messages_are_found_excluded_and_deleted_ones_are_not(
    memory: Memory, clock: Clock
) -> None:
    await talked(memory, clock)
    one, two = memory.session("s1"), memory.session("s2")
    await one.compact(summary("sum"), keep_last=0)
    await two.exclude("m1")
    assert await found(memory, "tea") == [("s1", "m1")]
    await two.restore("m1")
    await two.append(user("tea for the model alone", "hint"), in_history=False)
    assert await found(memory, "tea") == [("s2", "m1"), ("s1", "m1")]
    await two.update("m1", content="coffee")
    assert await found(memory, "tea") == [("s1", "m1")]
    await memory.sessions.delete("s1")
    assert await found(memory, "tea heron") == [("s2", "m2")]
    await memory.session("s1").append(user("tea", "new"))
    assert await found(memory, "tea") == [("s1", "new")]


async def test_as_many_are_found_as_are_asked_for_whatever_was_excluded(memory: Memory) -> None:
    for session_id in ("s1", "s2", "s3"):
        session = memory.session(session_id)
        await session.append([user(f"heron {n}", f"m{n}") for n in range(8)])
        for n in range(7):
            await session.exclude(f"m{n}")
    assert sorted(await found(memory, "heron", limit=3)) == [("s1", "m7"), ("s2", "m7"), ("s3", "m7")]


async def test_tenants_are_apart(memory: Memory, clock: Clock) -> None:
    await talked(memory, clock)
    async with memory.for_tenant("other") as other:
        assert await found(other, "tea") == []


async def test_what_cannot_be_asked_is_refused(plain: Memory) -> None:
    for asked in ({"user": ""}, {"agent": 7}, {"namespace": "\x00"}, {"since": "soon"}, {"limit": 0}):
        with pytest.raises(InvalidInput, match=next(iter(asked))):
            await plain.search_messages("tea", **asked)
