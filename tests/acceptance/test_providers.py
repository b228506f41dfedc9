"""The ready-made providers of messages (section C of the catalogue), each over the
sessions of a memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import pytest

from memory import InvalidInput, Memory, Message
from memory.agents.providers import (
    BufferProvider,
    CompositeProvider,
    Provider,
    SemanticProvider,
    SessionProvider,
    SlidingWindowProvider,
    SummarizingProvider,
    SummaryRequest,
    turn_of,
)
from memory.domain.errors import ProviderFailure
from memory.domain.message import Role
from tests.acceptance.support import HOUR, Clock

Made = Callable[[Memory], SessionProvider]

EACH: dict[str, Made] = {
    "buffer": BufferProvider,
    "sliding-window": SlidingWindowProvider,
    "summarizing": lambda memory: SummarizingProvider(memory, lambda _: "summary"),
    "semantic": SemanticProvider,
}
each_provider = pytest.mark.parametrize("kind", EACH)


def q(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **more}


def r(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def calls(*ids: str) -> dict[str, Any]:
    return r("", tool_calls=[{"id": one, "name": "look", "arguments": "{}"} for one in ids])


def found(call: str, text: str = "found") -> dict[str, Any]:
    return {"role": "tool", "content": text, "tool_call_id": call}


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


async def said(memory: Memory, session_id: str) -> list[str]:
    """All that the history of a provider's session has."""
    return [item.message.text for item in (await memory.session(session_id, create=False).history()).items]


# -- what all of them do ---------------------------------------------------------------


@pytest.mark.behaviour("C1", "C2", "C3", "C10", "AC-C01")
@each_provider
async def test_what_is_written_is_read_and_an_unknown_session_is_empty(memory: Memory, kind: str) -> None:
    provider = EACH[kind](memory)
    assert isinstance(provider, Provider)
    assert provider.type == kind
    assert (await provider.read(), await provider.read("nobody"), await provider.entries("nobody")) == (
        [],
        [],
        [],
    )
    assert await memory.sessions.get(f"{kind}/nobody") is None
    talk = [
        q("hello"),
        r("let me see", reasoning="hm", tool_calls=[{"id": "c1", "name": "look", "arguments": '{"a": 1}'}]),
        found("c1"),
        r("there"),
    ]
    assert await provider.write(talk) == []
    for read in (await provider.read(), await provider.read("default"), await EACH[kind](memory).read()):
        assert texts(read) == ["hello", "let me see", "found", "there"]
        assert (read[1].reasoning, read[1].tool_calls[0].arguments, read[2].tool_call_id) == (
            "hm",
            '{"a": 1}',
            "c1",
        )


@pytest.mark.behaviour("C4", "C7", "C8", "C9", "AC-C29")
@each_provider
async def test_an_entry_says_when_and_by_whom_and_a_read_when_it_was_read(
    memory: Memory, clock: Clock, kind: str
) -> None:
    provider = EACH[kind](memory)
    await provider.write([q("hello")], "s1", tags=["work"], agent="planner")
    (entry,) = await provider.entries("s1")
    assert (entry.session_id, entry.agent, entry.tags, entry.accessed_at, texts(entry.messages)) == (
        "s1",
        "planner",
        ["work"],
        None,
        ["hello"],
    )
    assert entry.token_count == 6
    moments = []
    for _ in range(2):
        clock.advance(HOUR)
        await provider.read("s1")
        moments.append((await provider.entries("s1"))[0].accessed_at)
    assert entry.created_at < moments[0] < moments[1]  # type: ignore[operator]
    assert (await EACH[kind](memory).entries("s1"))[0].accessed_at == moments[1]
    await provider.write([q("hello"), r("hi")], "s1")
    (again,) = await provider.entries()
    assert (again.id, again.created_at, again.agent, again.tags) == (entry.id, entry.created_at, None, [])


@pytest.mark.behaviour("C4", "C11", "AC-C05")
@each_provider
async def test_limit_and_tags_and_query_are_honoured(memory: Memory, kind: str) -> None:
    provider = EACH[kind](memory)
    await provider.write([q(f"m{n}") for n in range(20)], "s1", tags=["work", "home"])
    assert texts(await provider.read("s1", limit=3)) == ["m17", "m18", "m19"]
    assert len(await provider.read("s1", tags=["home"])) == len(await provider.read("s1"))
    assert await provider.read("s1", tags=["home", "other"]) == []
    assert "m12" in texts(await provider.read("s1", query="m12"))
    for wrong in ({"limit": 0}, {"limit": True}, {"tags": "work"}, {"query": 1}):
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            await provider.read("s1", **wrong)


@pytest.mark.behaviour("C11")
async def test_a_buffer_that_is_asked_shows_what_answers_only(memory: Memory) -> None:
    provider = BufferProvider(memory)
    await provider.write(
        [q("the heron stands"), r("on one leg"), calls("c1"), found("c1"), q("and the kite flies")]
    )
    assert texts(await provider.read(query="heron")) == ["the heron stands"]
    assert await provider.read(query="nothing of it") == []


@pytest.mark.behaviour("C4", "C11")
@pytest.mark.parametrize("kind", [*EACH, "merge", "first-hit"])
async def test_a_limited_answer_is_the_best_of_what_the_read_may_show(memory: Memory, kind: str) -> None:
    """Not the newest, and nothing that left the window: that would answer better."""
    told = [
        q("the red heron nests by the river"),
        calls("c1"),
        found("c1"),
        r("a heron"),
        q("tea at noon"),
        r("the red kite"),
        q("herons, perhaps"),
    ]
    if kind in EACH:
        provider: Any = EACH[kind](memory)
        sessions = [memory.session(f"{provider.namespace}/s1", create=False)]
        await provider.write(told, "s1")
    else:
        provider = CompositeProvider(
            [BufferProvider(memory, namespace=name) for name in ("a", "b")],
            read=kind,  # type: ignore[arg-type]
        )
        sessions = [memory.session(f"{name}/s1", create=False) for name in ("a", "b")]
        await provider.write(told, "s1")
    for limit in (1, 2):
        assert texts(await provider.read("s1", query="red heron nests", limit=limit))[0] == told[0]["content"]
    if kind == "semantic":
        return  # it finds however old, and nothing leaves its window
    for session in sessions:
        await session.replace((await session.context()).messages[1:])
    shown = texts(await provider.read("s1", query="red heron nests", limit=2))
    assert len(shown) == 2
    assert set(shown) <= {"a heron", "the red kite", "herons, perhaps"}


@pytest.mark.behaviour("C24", "C31")
@pytest.mark.parametrize("kind", ["buffer", "sliding"])
async def test_where_few_tokens_fit_the_best_answers_are_shown(memory: Memory, kind: str) -> None:
    of: Any = {"buffer": BufferProvider, "sliding": SlidingWindowProvider}[kind]
    few = of(memory, namespace="n", max_tokens=20)
    await few.write(
        [q("the red heron nests"), r("so"), *[q(f"a heron, number {n}, stands there") for n in range(6)]]
    )
    shown = texts(await few.read(query="red heron nests"))
    assert shown[0] == "the red heron nests"
    assert len(shown) < 4


@pytest.mark.behaviour("C12", "AC-C07")
@each_provider
async def test_what_was_read_is_a_copy(memory: Memory, kind: str) -> None:
    provider = EACH[kind](memory)
    given = q("hello", metadata={"a": [1]})
    await provider.write([given])
    given["content"] = "changed"
    read = await provider.read()
    read[0].content = "changed"
    read[0].metadata["a"].append(2)
    read.append(Message(role="user", content="more"))
    assert [(m.text, m.metadata) for m in await provider.read()] == [("hello", {"a": [1]})]


@pytest.mark.behaviour("C5", "C6", "C13", "C14")
@each_provider
async def test_clear_reaches_the_sessions_of_its_namespace_only(memory: Memory, kind: str) -> None:
    provider, other = EACH[kind](memory), BufferProvider(memory, namespace="other")
    for loose in (memory.session("a"), memory.session("b", namespace=kind), memory.session(f"{kind}/loose")):
        await loose.append(q("no provider's"))
    await provider.clear()
    await provider.clear("nobody")
    for session_id in ("a", "b", "c/d"):
        await provider.write([q(f"in {session_id}")], session_id)
        await other.write([q("the other's")], session_id)
    assert [entry.session_id for entry in await provider.entries()] == ["a", "b", "c/d"]
    await provider.clear("a")
    assert [await provider.read("a"), texts(await provider.read("b")), texts(await provider.read("c/d"))] == [
        [],
        ["in b"],
        ["in c/d"],
    ]
    for call in (provider.clear, provider.entries, provider.read):
        with pytest.raises(InvalidInput, match="session_id: must not be empty"):
            await call("")
    assert texts(await provider.read("b")) == ["in b"]
    await provider.clear()
    assert await provider.entries() == []
    assert len(await other.entries()) == 3
    for name in ("a", "b", f"{kind}/loose"):
        assert texts((await memory.session(name, create=False).context()).messages) == ["no provider's"]
    await provider.write([q("new")], "b")
    assert texts(await provider.read("b")) == ["new"]


@each_provider
async def test_a_session_that_another_cleared_is_empty_and_can_be_written_again(
    memory: Memory, kind: str
) -> None:
    one, other = EACH[kind](memory), EACH[kind](memory)
    await one.write([q("old")])
    await other.read()
    await one.clear()
    assert await other.read() == []
    await one.write([q("new")])
    assert texts(await other.read()) == ["new"]
    await one.clear()
    await one.write([q("again")])
    assert texts(await other.read()) == ["again"]
    await one.clear()
    await other.write([q("newer")])
    assert texts(await one.read()) == ["newer"]


def test_a_namespace_holds_no_slash(plain: Memory) -> None:
    with pytest.raises(InvalidInput, match="namespace: must not contain '/'"):
        BufferProvider(plain, namespace="a/b")


# -- buffer ----------------------------------------------------------------------------


@pytest.mark.behaviour("C21", "C22", "C25", "AC-C03")
async def test_a_buffer_becomes_the_list_that_is_written(memory: Memory) -> None:
    provider = BufferProvider(memory, seed={"s1": [q("seed")], "s2": [q("seed")]})
    assert await provider.session_count() == 2
    assert texts(await provider.read("s1")) == ["seed"]
    (before,) = await provider.entries("s1")
    await provider.write([{"role": "system", "content": "You are kind."}, q("only")], "s1")
    assert texts(await provider.read("s1")) == ["only"]
    (after,) = await provider.entries("s1")
    assert (after.id, after.created_at) == (before.id, before.created_at)
    await provider.clear("s2")
    assert [await provider.read("s2"), await provider.session_count()] == [[], 1]


@pytest.mark.behaviour("C22")
async def test_a_history_gains_only_what_is_new(memory: Memory) -> None:
    provider = BufferProvider(memory)
    talk: list[Any] = []
    for n in range(3):
        talk += [q("ok"), r(f"r{n}")]
        await provider.write(talk, "s1")
        await provider.write(talk, "s1")
    assert (
        texts(await provider.read("s1"))
        == ["ok", "r0", "ok", "r1", "ok", "r2"]
        == await said(memory, "buffer/s1")
    )
    read = await provider.read("s1")
    read[1].content = "changed"
    await provider.write([*read[1:], q("more")], "s1")
    assert texts(await provider.read("s1")) == ["changed", "ok", "r1", "ok", "r2", "more"]
    assert await said(memory, "buffer/s1") == ["ok", "changed", "ok", "r1", "ok", "r2", "more"]


@pytest.mark.behaviour("C22")
async def test_what_another_wrote_since_it_was_read_stays(memory: Memory) -> None:
    mine, other = BufferProvider(memory), BufferProvider(memory)
    await mine.write([q("q1"), r("r1")])
    read = await mine.read()
    await other.write([q("meanwhile")], new=True)
    await mine.write([*read[1:], q("q2")])
    assert texts(await mine.read()) == ["r1", "meanwhile", "q2"]


@pytest.mark.behaviour("C23", "C26", "C27", "AC-C09")
async def test_a_buffer_keeps_the_newest_and_no_result_without_its_call(memory: Memory) -> None:
    twenty, none, two = (
        BufferProvider(memory),
        BufferProvider(memory, namespace="none", max_messages=0),
        BufferProvider(memory, max_messages=2),
    )
    await twenty.write([q(f"m{n}") for n in range(25)])
    assert texts(await twenty.read()) == [f"m{n}" for n in range(5, 25)]
    await none.write([q("a"), q("b")])
    assert await none.read() == []
    await two.write([q("a"), calls("c1"), found("c1"), r("b")], "s2")
    assert texts(await two.read("s2")) == ["b"]


@pytest.mark.behaviour("C21")
async def test_what_a_buffer_is_given_is_there_for_calls_at_once(memory: Memory) -> None:
    provider = BufferProvider(memory, seed={name: [q(name)] for name in "abcdefgh"})
    read = await asyncio.gather(*(provider.read(name) for name in "abcdefgh"))
    assert [texts(messages) for messages in read] == [[name] for name in "abcdefgh"]
    with pytest.raises(InvalidInput, match="seed"):
        BufferProvider(memory, seed={"": [q("nobody's")]})


@pytest.mark.behaviour("C24")
async def test_a_buffer_s_budget_is_applied_when_it_is_read(memory: Memory) -> None:
    await BufferProvider(memory, max_tokens=10).write([r("aaaa"), q("bbbb"), r("cccc")])
    assert texts(await BufferProvider(memory, max_tokens=10).read()) == ["bbbb", "cccc"]
    assert texts(await BufferProvider(memory).read()) == ["aaaa", "bbbb", "cccc"]


@pytest.mark.behaviour("C22", "C30")
async def test_no_more_is_shown_than_is_kept_however_many_write_at_once(memory: Memory) -> None:
    async def run(provider: SessionProvider, number: int) -> None:
        async with provider.turn(f"q{number}") as turn:
            turn.add(r(f"r{number}"))

    for provider in (BufferProvider(memory, max_messages=8), SlidingWindowProvider(memory, max_turns=4)):
        await asyncio.gather(*(run(provider, number) for number in range(20)))
        shown = texts(await provider.read())
        assert len(shown) == 8
        assert len(await said(memory, f"{provider.type}/default")) == 40
        await provider.write([*await provider.read(), Message(role=Role.USER, content="next")])
        assert (
            texts(await provider.read()) == [*shown[1:], "next"]
            if provider.type == "buffer"
            else [*shown[2:], "next"]
        )


@pytest.mark.behaviour("C52")
@each_provider
async def test_what_a_run_is_given_is_checked_before_it_begins(memory: Memory, kind: str) -> None:
    given: list[dict[str, Any]] = [{"tags": "work"}, {"agent": ""}, {"system": 5}, {"limit": 0}, {"query": 1}]
    for wrong in given:
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            async with EACH[kind](memory).turn("hello", **wrong):
                raise AssertionError("the run has begun")


@pytest.mark.behaviour("C17", "C18", "C19", "C24", "AC-C13")
@pytest.mark.parametrize(
    ("most", "shown"), [(0, 0), (4, 0), (5, 1), (9, 1), (10, 2), (15, 3), (19, 3), (20, 4)]
)
async def test_a_buffer_shows_the_newest_that_fit_and_nothing_that_does_not(
    memory: Memory, most: int, shown: int
) -> None:
    provider = BufferProvider(memory, max_tokens=most)
    talk = [q("aaaa"), r("bbbb"), q("cccc"), r("dddd")]
    await provider.write(talk)
    assert texts(await provider.read()) == ["aaaa", "bbbb", "cccc", "dddd"][4 - shown :]
    await provider.write([q("x" * 400), *talk[4 - shown :]], "long")
    assert texts(await provider.read("long")) == ["aaaa", "bbbb", "cccc", "dddd"][4 - shown :]


# -- sliding window --------------------------------------------------------------------


@pytest.mark.behaviour("C28", "C30", "C31")
async def test_a_sliding_window_appends_and_keeps_the_newest_turns(memory: Memory) -> None:
    provider = SlidingWindowProvider(memory, max_turns=3)
    for n in range(1, 5):
        await provider.write([q(f"q{n}"), r(f"r{n}")])
    assert texts(await provider.read()) == ["q2", "r2", "q3", "r3", "q4", "r4"]
    assert len(await said(memory, "sliding-window/default")) == 8


@pytest.mark.behaviour("C29", "C32", "AC-C15")
async def test_a_turn_ends_at_an_answer_without_calls(memory: Memory) -> None:
    provider = SlidingWindowProvider(memory)
    await provider.write(
        [
            q("q"),
            r("", tool_calls=[{"id": "c1", "name": "t", "arguments": "{}"}]),
            found("c1", "r"),
            r("done"),
            q("tail"),
        ]
    )
    assert await provider.stats("nobody") is None
    assert await provider.stats() == {"turns": 2, "estimated_tokens": 25}
    assert (await provider.entries())[0].token_count == 25


@pytest.mark.behaviour("C33")
@pytest.mark.parametrize("reads", [True, False])
async def test_a_talk_that_is_written_back_whole_doubles_nothing(memory: Memory, reads: bool) -> None:
    provider = SlidingWindowProvider(memory, max_turns=2)
    talk: list[Any] = []
    for n in range(1, 5):
        talk += [q("again"), r(f"r{n}")]
        await provider.write(talk)
        if reads:
            talk = [
                {"role": message.role.value, "content": message.text} for message in await provider.read()
            ]
    assert texts(await provider.read()) == ["again", "r3", "again", "r4"]
    assert await said(memory, "sliding-window/default") == [
        "again",
        "r1",
        "again",
        "r2",
        "again",
        "r3",
        "again",
        "r4",
    ]


@pytest.mark.behaviour("C33")
async def test_ids_tell_what_was_written_and_new_says_that_it_was_not(memory: Memory) -> None:
    await SlidingWindowProvider(memory).write([q("q1", id="1"), r("r1", id="2")])
    fresh = SlidingWindowProvider(memory)
    await fresh.write([q("q1", id="1"), r("changed", id="2"), q("q2", id="3")])
    assert texts(await fresh.read()) == ["q1", "changed", "q2"]
    await fresh.write([q("q1")], new=True)
    assert texts(await fresh.read()) == ["q1", "changed", "q2", "q1"]


@pytest.mark.behaviour("C34", "AC-C17")
async def test_a_turn_is_shown_whole_or_not_at_all(memory: Memory) -> None:
    turn = [q("user"), calls("c1"), found("c1"), r("answer")]
    for most in range(4, 40):
        provider = SlidingWindowProvider(memory, max_tokens=most, namespace=f"at {most}")
        await provider.write([q("before"), r("it"), *turn])
        assert texts(await provider.read()) in (
            ["user", "", "found", "answer"],
            ["before", "it", "user", "", "found", "answer"],
        )


# -- summarising -----------------------------------------------------------------------


class Summariser:
    """Says how many messages it was asked about, and remembers what it was asked."""

    def __init__(self, says: str | None = None, *, fails: int = 0) -> None:
        self.asked: list[SummaryRequest] = []
        self._says = says
        self._fails = fails

    async def __call__(self, asked: SummaryRequest) -> str:
        self.asked.append(asked)
        if len(self.asked) <= self._fails:
            raise RuntimeError("the model is away")
        return f"of {len(asked.messages)}" if self._says is None else self._says


HUNDRED = "x" * 384
"""A message of it costs a hundred tokens."""


@pytest.mark.behaviour("C35", "C36", "C37", "C40")
async def test_the_older_half_becomes_a_summary(memory: Memory) -> None:
    model = Summariser()
    provider = SummarizingProvider(memory, model, active_tokens=30)
    assert await provider.write([q("q1"), r("r1"), q("q2"), r("r2"), q("q3")]) == []
    assert (texts(await provider.read()), await provider.summary()) == (["q1", "r1", "q2", "r2", "q3"], None)
    await provider.write(
        [
            {"role": "system", "content": "You are kind."},
            q("q1"),
            r("r1"),
            q("q2"),
            r("r2"),
            q("q3"),
            r("r3"),
            q("q4"),
        ]
    )
    read = await provider.read()
    assert texts(read) == ["[Conversation summary so far]\nof 3", "r2", "q3", "r3", "q4"]
    assert (read[0].role.value, await provider.summary(), texts(model.asked[0].messages)) == (
        "system",
        "of 3",
        ["q1", "r1", "q2"],
    )
    assert (await provider.entries())[0].token_count == 4 * (4 + 2), "of what is active (C40)"
    assert await provider.summary("nobody") is None
    for wrong in (None, "a model"):
        with pytest.raises(InvalidInput, match="summarise: must be a function"):
            SummarizingProvider(memory, wrong)  # type: ignore[arg-type]


@pytest.mark.behaviour("C38", "C41", "B49")
async def test_the_request_has_the_earlier_summary_and_who_said_what(memory: Memory) -> None:
    model = Summariser()
    provider = SummarizingProvider(memory, model, active_tokens=18, prompt="Be short.")
    talk = [q("q1"), r("r1"), q("q2"), r("r2")]
    await provider.write(talk)
    await provider.write([*talk, q("q3"), r("r3")])
    first, second = (asked.to_messages() for asked in model.asked)
    assert first == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "USER: q1\nASSISTANT: r1"},
    ]
    thought = SummaryRequest([Message(role="assistant", reasoning="She means tea.")], None, 10, "Be short.")
    assert thought.to_messages()[1]["content"] == "ASSISTANT: She means tea."
    assert (
        second[1]["content"] == "Previous summary:\nof 2\n\nNew conversation to add:\nUSER: q2\nASSISTANT: r2"
    )
    await provider.write([*talk, q("q3"), r("r3"), q("q4")])
    assert texts(await provider.read())[1:] == ["q3", "r3", "q4"]
    assert await said(memory, "summarizing/default") == [
        "q1",
        "r1",
        "q2",
        "r2",
        "of 2",
        "q3",
        "r3",
        "of 2",
        "q4",
    ]


@pytest.mark.behaviour("C39", "AC-C19")
async def test_a_summary_is_no_longer_than_it_may_be(memory: Memory) -> None:
    provider = SummarizingProvider(memory, Summariser("x" * 5_004), active_tokens=9, summary_tokens=10)
    await provider.write([q("q1"), r("r1")])
    assert len(str(await provider.summary())) == 40


@pytest.mark.behaviour("C42", "AC-C21")
async def test_a_failing_summariser_costs_no_message_and_no_run(memory: Memory) -> None:
    provider = SummarizingProvider(memory, Summariser(fails=1), active_tokens=12)
    (note,) = await provider.write([q("q1"), r("r1"), q("q2")])
    assert "the model is away" in note
    assert texts(await provider.read()) == ["q1", "r1", "q2"]
    assert await provider.write([q("q1"), r("r1"), q("q2")]) == []
    assert texts(await provider.read())[1:] == ["r1", "q2"]
    silent = SummarizingProvider(memory, Summariser(""), active_tokens=12)
    (note,) = await silent.write([*(await provider.read()), q("q3")])
    assert "the summary is empty" in note
    assert (await provider.summary(), texts(await provider.read())[1:]) == ("of 1", ["r1", "q2", "q3"])


@pytest.mark.behaviour("C42")
@pytest.mark.parametrize("text", ["half a pair: \ud800", "a NUL: \0"])
async def test_a_summary_that_no_message_can_say_is_a_note_and_nothing_has_changed(
    memory: Memory, text: str
) -> None:
    provider = SummarizingProvider(memory, lambda _: text, active_tokens=20)
    (note,) = await provider.write([q("x" * 40), r("y" * 40), q("z")])
    assert "no summary was made" in note
    assert "content" in note
    assert (texts(await provider.read()), await provider.summary()) == (["x" * 40, "y" * 40, "z"], None)


@pytest.mark.behaviour("C43")
async def test_one_message_that_is_too_long_is_kept_and_said(memory: Memory) -> None:
    model = Summariser()
    (note,) = await SummarizingProvider(memory, model, active_tokens=50).write([q(HUNDRED)])
    assert "exceeds active_tokens=50 by 50 tokens" in note
    assert (model.asked, texts(await SummarizingProvider(memory, model).read())) == ([], [HUNDRED])


@pytest.mark.behaviour("C44", "AC-C23")
async def test_it_is_compacted_until_it_fits(memory: Memory) -> None:
    model = Summariser()
    provider = SummarizingProvider(memory, model, active_tokens=100)
    assert await provider.write([q(f"{letter}{HUNDRED[1:]}") for letter in "abcdefghij"]) == []
    assert [message.text[0] for message in (await provider.read())[1:]] == ["j"]
    assert sum(len(asked.messages) for asked in model.asked) == 9


@pytest.mark.behaviour("C45")
async def test_a_call_goes_into_the_summary_with_its_results(memory: Memory) -> None:
    model = Summariser()
    provider = SummarizingProvider(memory, model, active_tokens=20)
    await provider.write([q("q1"), calls("c1", "c2"), found("c1"), found("c2"), r("r1")])
    for asked in model.asked:
        assert [message.role.value for message in asked.messages] in (["user"], ["assistant", "tool", "tool"])
    assert texts(await provider.read())[1:] == ["r1"]


# -- semantic --------------------------------------------------------------------------


@pytest.mark.behaviour("C4", "C11")
async def test_what_answers_is_found_however_old_and_stands_before_the_last(memory: Memory) -> None:
    provider = SemanticProvider(memory, last=2)
    await provider.write([q("my cat is called Tom"), r("noted"), *[q(f"word {n}") for n in range(20)]])
    assert texts(await provider.read()) == ["word 18", "word 19"]
    assert texts(await provider.read(query="what is the cat called?")) == [
        "my cat is called Tom",
        "word 18",
        "word 19",
    ]
    read = await provider.read(query="cat")
    await provider.write([*read, q("and now?")])
    assert (texts(await provider.read()), len(await said(memory, "semantic/default"))) == (
        ["word 19", "and now?"],
        23,
    )


# -- composite -------------------------------------------------------------------------


class Bare:
    """All that a part of a composite must have."""

    type = "bare"

    def __init__(self, *, fails: bool = False) -> None:
        self.kept: dict[str, list[Message]] = {}
        self.fails = fails

    async def read(
        self,
        session_id: str = "default",
        *,
        limit: int | None = None,
        query: str | None = None,
        tags: Sequence[str] = (),
    ) -> Sequence[Message]:
        if self.fails:
            raise ConnectionError("bare is away")
        return self.kept.get(session_id, [])

    async def write(
        self,
        messages: Sequence[Message],
        session_id: str = "default",
        *,
        tags: Sequence[str] = (),
        agent: str | None = None,
    ) -> None:
        if self.fails:
            raise ConnectionError("bare is away")
        self.kept[session_id] = list(messages)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda memory: SummarizingProvider(memory, str, active_tokens=0),
        lambda memory: SummarizingProvider(memory, str, summary_tokens=0),
        lambda memory: SemanticProvider(memory, found=1_001),
    ],
)
def test_a_number_with_which_a_provider_cannot_work_is_refused(
    plain: Memory, wrong: Callable[[Memory], object]
) -> None:
    with pytest.raises(InvalidInput, match=r"(_tokens|found): must be "):
        wrong(plain)


@pytest.mark.behaviour("C46")
def test_a_composite_has_parts(plain: Memory) -> None:
    with pytest.raises(InvalidInput, match=r"At least one provider required\."):
        CompositeProvider([])
    with pytest.raises(InvalidInput, match="must have read and write, and str does not"):
        CompositeProvider(["buffer"])  # type: ignore[list-item]
    with pytest.raises(InvalidInput, match="must have different namespaces, not buffer, buffer"):
        CompositeProvider([BufferProvider(plain), BufferProvider(plain)])


@pytest.mark.behaviour("C47", "C50", "C51", "AC-C25")
async def test_the_first_that_has_something_answers_and_those_before_it_are_filled(memory: Memory) -> None:
    first, second = BufferProvider(memory, namespace="first"), BufferProvider(memory, namespace="second")
    both = CompositeProvider([first, second])
    assert await both.read() == []
    await second.write([q("from the second")], tags=["work"], agent="planner")
    assert texts(await both.read(limit=1)) == ["from the second"]
    assert await first.read() == []
    assert texts(await both.read()) == texts(await first.read()) == ["from the second"]
    (filled,) = await first.entries()
    assert (filled.tags, filled.agent, filled.messages) == (["work"], "planner", await second.read())
    await both.write([q("to both")], "s2")
    assert texts(await first.read("s2")) == texts(await second.read("s2")) == ["to both"]
    assert (await first.read("s2"))[0].id == (await second.read("s2"))[0].id


@pytest.mark.behaviour("C4", "C11", "C46")
@pytest.mark.parametrize("way", ["first-hit", "merge"])
async def test_parts_are_asked_nothing_that_is_refused_and_a_limit_holds_whatever_they_do(
    memory: Memory, way: Any
) -> None:
    bare = Bare()
    both = CompositeProvider([bare, BufferProvider(memory)], read=way)
    reads: list[dict[str, Any]] = [
        {"limit": 0},
        {"limit": 1_001},
        {"limit": True},
        {"query": 1},
        {"tags": "work"},
    ]
    for wrong in reads:
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            await both.read(**wrong)
    writes: list[dict[str, Any]] = [{"tags": "work"}, {"agent": ""}, {"tags": ["\0"]}]
    for wrong in writes:
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            await both.write([q("hello")], **wrong)
    assert (bare.kept, await both.entries()) == ({}, [])
    await both.write([q("m1"), r("m2"), q("m3")])
    assert texts(await both.read(limit=2)) == ["m2", "m3"]


@pytest.mark.behaviour("C15", "C50", "AC-C27")
async def test_a_part_without_clear_and_entries_is_passed_over(memory: Memory) -> None:
    bare = Bare()
    both = CompositeProvider([bare, BufferProvider(memory)])
    await both.write([q("hello")])
    assert [entry.session_id for entry in await both.entries()] == ["default"]
    await both.clear("default")
    await both.clear()
    assert (await both.entries(), texts(bare.kept["default"])) == ([], ["hello"])
    with pytest.raises(InvalidInput, match="session_id: must not be empty"):
        await both.clear("")


@pytest.mark.behaviour("C48", "C49")
async def test_merged_parts_show_each_message_once_and_repeated_ones_as_often_as_they_were_said(
    memory: Memory,
) -> None:
    one, other = BufferProvider(memory), SlidingWindowProvider(memory)
    both = CompositeProvider([one, other], read="merge")
    await both.write([q("ok"), r("well"), q("ok")])
    await other.write([q("only the other's")], new=True)
    assert texts(await both.read()) == ["ok", "well", "ok", "only the other's"]
    assert texts(await both.read(limit=2)) == ["ok", "only the other's"]


@pytest.mark.behaviour("C48", "C49")
async def test_what_was_written_to_the_parts_one_by_one_is_merged_by_what_it_says(memory: Memory) -> None:
    one, other = BufferProvider(memory), SlidingWindowProvider(memory)
    await one.write([q("hi"), r("ok")])
    await other.write([q("hi"), r("ok"), q("and you?"), r("ok")])
    both = CompositeProvider([one, other], read="merge")
    assert texts(await both.read()) == ["hi", "ok", "and you?", "ok"]
    async with both.turn("bye") as turn:
        turn.add(r("bye"))
    assert texts(await both.read()) == ["hi", "ok", "bye", "bye", "and you?", "ok"], "part by part"


@pytest.mark.behaviour("C49")
@pytest.mark.parametrize("read", ["merge", "first-hit"])
@pytest.mark.parametrize("change", ["none", "no ids", "edited", "one more"])
@pytest.mark.parametrize("is_read_here", [True, False])
async def test_a_list_that_is_written_back_doubles_nothing_in_parts_with_other_ids(
    memory: Memory, read: Literal["merge", "first-hit"], change: str, is_read_here: bool
) -> None:
    parts: list[SessionProvider] = [BufferProvider(memory), SlidingWindowProvider(memory)]
    for part in parts:
        await part.write([q("hi"), r("ok"), q("and you?"), r("ok")])
    both = CompositeProvider(parts, read=read)
    shown = await both.read()
    wanted = ["hi", "ok", "and you?", "ok"]
    if change == "no ids":
        shown = [one.model_copy(update={"id": None}) for one in shown]
    elif change == "edited" and is_read_here:
        shown[2], wanted[2] = shown[2].model_copy(update={"content": "well?"}), "well?"
    elif change == "one more":
        shown, wanted = [*shown, Message(**q("bye"))], [*wanted, "bye"]
    if not is_read_here:
        both = CompositeProvider(parts, read=read)
    for _ in range(2):
        await both.write(shown)
        for part in parts:
            assert texts(await part.read()) == wanted
    assert texts(await both.read()) == wanted


@pytest.mark.behaviour("C51")
async def test_a_write_tries_every_part_names_those_that_failed_and_can_be_repeated(memory: Memory) -> None:
    bare = Bare(fails=True)
    buffer, sliding = BufferProvider(memory), SlidingWindowProvider(memory)
    all_of_them = CompositeProvider([buffer, bare, sliding])
    with pytest.raises(ProviderFailure, match="bare: bare is away") as failed:
        await all_of_them.write([q("q1"), r("r1")])
    assert list(failed.value.failed) == ["bare"]
    bare.fails = False
    await all_of_them.write([q("q1"), r("r1")])
    await CompositeProvider([buffer, bare, sliding]).write([q("q1"), r("r1"), q("q2")])
    for part in (buffer, sliding):
        assert (
            texts(await part.read()) == ["q1", "r1", "q2"] == await said(memory, f"{part.namespace}/default")
        )
    assert texts(bare.kept["default"]) == ["q1", "r1", "q2"]


@pytest.mark.behaviour("C51")
async def test_a_part_that_cannot_be_read_or_filled_is_passed_over_unless_all_are(memory: Memory) -> None:
    bare, buffer = Bare(fails=True), BufferProvider(memory)
    await buffer.write([q("hello")])
    assert texts(await CompositeProvider([bare, buffer]).read()) == ["hello"]
    assert texts(await CompositeProvider([bare, buffer], read="merge").read()) == ["hello"]
    with pytest.raises(ProviderFailure, match="bare is away"):
        await CompositeProvider([bare]).read()
    with pytest.raises(ProviderFailure, match=r"bare 1: .*bare 3: ") as failed:
        await CompositeProvider([bare, buffer, Bare(fails=True)]).write([q("hello")])
    assert list(failed.value.failed) == ["bare 1", "bare 3"], "each is told, also those of one name"


# -- runs ------------------------------------------------------------------------------


@pytest.mark.behaviour("C52", "C54", "AC-C31")
@each_provider
async def test_a_run_reads_then_asks_then_writes_and_the_system_message_comes_first(
    memory: Memory, kind: str
) -> None:
    provider, told = EACH[kind](memory), list[tuple[str, Mapping[str, Any]]]()
    await provider.write([q("q1"), r("r1")], "s1")
    async with provider.turn(
        "q2", "s1", system="You are kind.", agent="planner", emit=lambda *event: told.append(event)
    ) as turn:
        assert [name for name, _ in told] == ["memory:read"]
        assert texts(turn.messages) == ["You are kind.", "q1", "r1", "q2"]
        assert [message.role.value for message in turn.messages] == ["system", "user", "assistant", "user"]
        turn.add(calls("c1"))
        turn.add([found("c1"), r("r2")])
    assert [(name, event["session_id"], event["agent"], event["messages"]) for name, event in told] == [
        ("memory:read", "s1", "planner", 2),
        ("memory:write", "s1", "planner", 4),
    ]
    assert texts(await provider.read("s1")) == ["q1", "r1", "q2", "", "found", "r2"]
    assert (await provider.entries("s1"))[0].agent == "planner"


@pytest.mark.behaviour("C52")
async def test_an_async_function_is_told_of_a_run_too(memory: Memory) -> None:
    told: list[str] = []

    async def emit(name: str, details: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)
        told.append(f"{name} {details['messages']}")

    async with BufferProvider(memory).turn("q1", "s1", emit=emit):
        assert told == ["memory:read 0"]
    assert told == ["memory:read 0", "memory:write 1"]


@pytest.mark.behaviour("C53", "AC-C31")
@each_provider
async def test_a_run_that_fails_writes_nothing(memory: Memory, kind: str) -> None:
    provider = EACH[kind](memory)

    async def run(error: BaseException) -> None:
        async with provider.turn("q1", "s1") as turn:
            turn.add(r("half"))
            raise error

    for error in (RuntimeError("the model is away"), asyncio.CancelledError()):
        with pytest.raises(type(error)):
            await run(error)
    assert (await provider.read("s1"), await provider.entries()) == ([], [])


@pytest.mark.behaviour("C52", "C53", "C54")
async def test_a_run_over_parts_and_over_anything_with_read_and_write(memory: Memory) -> None:
    bare, buffer = Bare(), BufferProvider(memory)
    for n in range(2):
        async with CompositeProvider([bare, buffer]).turn(f"q{n}", "s1") as turn:
            turn.add(r(f"r{n}"))
    assert texts(bare.kept["s1"]) == texts(await buffer.read("s1")) == ["q0", "r0", "q1", "r1"]
    async with turn_of(bare, "q2", "s1", limit=1) as turn:
        turn.add(r("r2"))
    assert texts(bare.kept["s1"]) == ["q0", "r0", "q1", "r1", "q2", "r2"]
