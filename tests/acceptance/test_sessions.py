"""Sessions: what was said, what of it a model is sent, and what became of the rest
(section B of the catalogue).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

import pytest

from memory import CompactionError, Conflict, InvalidInput, Memory, Message, NotFound
from memory.facade.memory import Memory as Opened
from memory.policies.compaction_thresholds import MessageThreshold, TurnThreshold
from memory.policies.list_compaction import CompactionSettings
from memory.policies.window import TokenThreshold
from memory.ports.contract.cells import cells
from tests.acceptance.support import HOUR, Clock
from tests.acceptance.talking import SYSTEM, assistant, history, summary, user, window


def saying(text: str) -> Callable[[list[Message]], str]:
    return lambda _: text


@pytest.mark.behaviour("B12")
async def test_a_session_is_created_once(memory: Memory) -> None:
    session = await memory.sessions.create("s1", system=SYSTEM)
    assert session.id == "s1"
    with pytest.raises(Conflict, match="Session already exists: s1"):
        await memory.sessions.create("s1")
    one, other = await memory.sessions.create(), await memory.sessions.create()
    assert one.id != other.id


@pytest.mark.behaviour("B13", "B14")
async def test_a_new_session_has_its_system_message_and_nothing_else(memory: Memory) -> None:
    session = await memory.sessions.create("s1", system=SYSTEM)
    info = await session.info()
    assert (info.message_count, info.compaction_count, info.status, info.version) == (1, 0, "active", 1)
    (item,) = (await session.history()).items
    assert (item.message.id, item.message.text, item.number, item.turn) == ("system", SYSTEM, 1, 0)
    assert await window(session) == ["system"]
    assert await session.compactions() == []


@pytest.mark.behaviour("B19")
async def test_a_handle_creates_its_session_or_says_that_there_is_none(memory: Memory) -> None:
    with pytest.raises(NotFound, match="session not found: nobody"):
        await memory.session("nobody", create=False).append(user("hello", "u1"))
    assert await memory.sessions.get("nobody") is None
    session = memory.session("s1", user="ada", system=SYSTEM)
    await session.append(user("hello", "u1"))
    assert await window(memory.session("s1", create=False)) == ["system", "u1"]
    info = await session.info()
    assert (info.user, info.version, info.message_count) == ("ada", 2, 2)


@pytest.mark.behaviour("B20", "B21", "B23", "AC-B09")
async def test_a_streamed_answer_is_one_message(memory: Memory) -> None:
    session = memory.session("s1", system=SYSTEM)
    await session.append([user("u1", "u1"), assistant("par", "a1")])
    await session.append(assistant("full", "a1", usage={"total": 7}, finish_reason="stop"))
    info = await session.info()
    assert (info.version, info.message_count) == (3, 3)
    last, (*_, item) = (await session.context()).messages[-1], (await session.history()).items
    assert (last.text, last.usage, last.finish_reason) == ("full", {"total": 7}, "stop")
    assert (item.message, item.number) == (last, 3)


@pytest.mark.behaviour("B22")
async def test_an_update_after_another_message_doubles_nothing(memory: Memory) -> None:
    session = memory.session("s1", system=SYSTEM)
    call = {"id": "c1", "name": "look", "arguments": "{}"}
    await session.append([user("u1", "u1"), assistant("", "a1", tool_calls=[call])])
    await session.append({"role": "tool", "content": "found", "tool_call_id": "c1", "id": "t1"})
    await session.append(assistant("looking", "a1", tool_calls=[call]))
    await session.append(assistant("done", "a2"))
    assert await window(session) == ["system", "u1", "a1", "t1", "a2"] == await history(session)


@pytest.mark.behaviour("B24", "B25", "AC-B11")
async def test_a_message_for_the_window_only_is_no_message_of_the_history(memory: Memory) -> None:
    session = memory.session("s1", system=SYSTEM)
    await session.append(user("n", "n"), in_history=False)
    assert await window(session) == ["system", "n"]
    assert await history(session) == ["system"]
    assert (await session.info()).message_count == 1


@pytest.mark.behaviour("B25")
async def test_a_session_has_as_many_messages_as_its_history_whoever_asks(memory: Memory) -> None:
    session = memory.session("s1", system=SYSTEM)
    changes: list[Callable[[], Awaitable[Any]]] = [
        session.info,
        lambda: session.append([user("u1", "u1"), user("u2", "u2")]),
        lambda: session.exclude("u1"),
        lambda: session.compact(summary("sum"), keep_last=0),
        session.clear,
    ]
    for change, count in zip(changes, (1, 3, 3, 4, 4), strict=True):
        await change()
        found, [listed] = await memory.sessions.get("s1"), (await memory.sessions.list()).sessions
        assert found is not None
        said = [found.message_count, listed.message_count, (await session.info()).message_count]
        assert [*said, len(await session.history())] == [count] * 4


@pytest.mark.behaviour("B24", "B25")
@pytest.mark.parametrize("meanwhile", ["nothing", "exclude", "compact", "stream"])
async def test_a_message_for_the_window_only_enters_the_history_when_it_is_appended_again(
    memory: Memory, meanwhile: str
) -> None:
    session = memory.session("s1", system=SYSTEM)
    await session.append([user("tea at noon", "n"), user("other hint", "o")], in_history=False)
    await session.append(user("u1", "u1"))
    if meanwhile == "exclude":
        await session.exclude("n")
    elif meanwhile == "compact":
        await session.compact(summary("sum"), keep_last=1)
    if meanwhile == "stream":
        async with session.stream(role="user", message_id="n") as stream:
            await stream.write("coffee at noon")
    else:
        await session.append([user("coffee at noon", "n"), user("u2", "u2"), user("coffee at noon", "n")])
    for handle in (session, memory.session("s1")):
        await handle.append(user("coffee at noon", "n"))
        told = {item.message.id: (item.number, item.message.text) for item in (await handle.history()).items}
        number = {"compact": 5, "stream": 3}.get(meanwhile, 4)
        assert told["n"] == (number, "coffee at noon")
        assert "o" not in told
        assert [item.message.id for item in (await handle.history(ids=["n", "o"])).items] == ["n"]
        assert sorted(number for number, _ in told.values()) == list(range(1, len(told) + 1))
        assert (await handle.info()).message_count == len(told)
        assert ("n" in await window(handle)) == (meanwhile != "compact")
        assert [hit.message.id for hit in await handle.search("coffee", mode="lexical")] == ["n"]
    await session.append(user("coffee at noon", "n"), in_history=False)
    assert "n" in await history(session)
    await session.erase("n")
    assert "" in [item.message.text for item in (await session.history(first=number, last=number)).items]


@pytest.mark.behaviour("B24", "B20")
async def test_many_who_append_a_message_for_the_window_only_give_it_one_number(memory: Memory) -> None:
    handles = [memory.session("s1") for _ in range(8)]
    await handles[0].append(user("n", "n"), in_history=False)
    await asyncio.gather(
        *(handle.append([user(f"m{at}", f"m{at}"), user("n", "n")]) for at, handle in enumerate(handles))
    )
    items = (await handles[0].history()).items
    assert sorted(item.number for item in items) == list(range(1, 10))
    assert (await handles[0].info()).message_count == 9
    await handles[0].append(user("late", "late"), in_history=False)
    await handles[0].end()
    with pytest.raises(Conflict, match="resume"):
        await handles[1].append(user("late", "late"))


@pytest.mark.behaviour("B26", "AC-B13")
async def test_an_update_changes_window_and_history_together(memory: Memory) -> None:
    session = memory.session("s1", system=SYSTEM)
    await session.append(assistant("a", "a1"))
    before = (await session.info()).version
    await session.update("a1", usage={"total": 3}, finish_reason="stop")
    said, item = (await session.context()).messages[-1], (await session.history()).items[-1]
    assert (said.usage, said.finish_reason, item.message) == ({"total": 3}, "stop", said)
    await session.update("system", content="You are curt.")
    for read in (await session.context()).messages[0], (await session.history()).items[0].message:
        assert (read.id, read.text) == ("system", "You are curt.")
    assert ((await session.info()).version, item.number) == (before, 2)
    with pytest.raises(NotFound, match="message not found: nothing"):
        await session.update("nothing", content="x")
    with pytest.raises(InvalidInput, match="id"):
        await session.update("a1", id="other")


@pytest.mark.behaviour("B27", "B28", "B29", "AC-B15")
async def test_what_is_excluded_is_marked_until_it_is_added_again(memory: Memory) -> None:
    session = memory.session("s1", system=SYSTEM)
    await session.append([user("u1", "u1"), user("u2", "u2")])
    assert (
        await session.exclude("u1", "invalid_input"),
        await session.exclude("u1"),
        await session.exclude("system"),
        await session.exclude("nobody"),
    ) == (True, False, False, False)
    assert await window(session) == ["system", "u2"]
    assert {item.message.id: item.excluded for item in (await session.history()).items} == {
        "system": None,
        "u1": "invalid_input",
        "u2": None,
    }
    assert (await session.info()).version == 4
    await session.append(user("u1", "u1"))
    assert await window(session) == ["system", "u1", "u2"]
    assert all(item.excluded is None for item in (await session.history()).items)
    assert (
        await session.exclude("u2"),
        await session.restore("u2"),
        await session.restore("u2"),
    ) == (True, True, False)
    assert await window(session) == ["system", "u1", "u2"]


@pytest.mark.behaviour("B30", "B31", "B32")
async def test_a_cleared_window_keeps_its_history_marked(memory: Memory) -> None:
    session = memory.session("s1", system=SYSTEM)
    await session.append([user("u1", "u1"), user("u2", "u2")])
    assert await session.clear() == 2
    assert await window(session) == ["system"]
    assert [item.excluded for item in (await session.history()).items] == [None, "manual", "manual"]
    assert (await session.info()).version == 4
    assert await session.clear() == 0


@pytest.mark.behaviour("B33")
async def test_a_history_is_asked_by_ids_numbers_summaries_and_compaction(memory: Memory) -> None:
    session = memory.session("s1", system=SYSTEM)
    await session.append([user(f"m{n}", f"m{n}") for n in range(1, 5)])
    made = await session.compact(summary("sum"), keep_last=2)
    assert await history(session, ids=["m4", "system", "m2"]) == ["system", "m2", "m4"]
    assert await history(session, first=2, last=3) == ["m1", "m2"]
    assert await history(session, summaries=False) == ["system", "m1", "m2", "m3", "m4"]
    assert await history(session, archived_by=made.id) == ["m1", "m2"]
    assert await history(session, limit=2, offset=1) == ["m1", "m2"]
    assert await history(session, order="newest", limit=2) == ["sum", "m4"]
    await session.append(assistant("a1", "a1"))
    assert await history(session, roles=["user"], last=3) == ["m1", "m2"]
    assert await history(session, roles=["assistant"]) == ["a1"]
    assert await history(session, roles=["assistant", "system"]) == ["system", "sum", "a1"]


async def test_lists_show_titles_and_how_sessions_begin(memory: Memory) -> None:
    named = await memory.sessions.create("s1", title="Where Ada lives")
    await named.append([assistant("How can I help?", "a1"), user("Where does\nAda live?", "u1")])
    silent = await memory.sessions.create("s2")
    (second, first) = (await memory.sessions.list(by="created")).sessions
    assert (first.id, first.title, first.preview, first.message_count) == (
        "s1",
        "Where Ada lives",
        "Where does Ada live?",
        2,
    )
    assert (second.id, second.title, second.preview, second.message_count) == ("s2", None, None, 0)
    assert (await memory.sessions.update(silent.id, title="Nothing yet")).title == "Nothing yet"
    assert (await memory.sessions.update(named.id, title=None)).title is None
    assert [info.title for info in (await memory.sessions.list(by="created")).sessions] == [
        "Nothing yet",
        None,
    ]
    with pytest.raises(InvalidInput, match="title"):
        await memory.sessions.update(silent.id, title="x" * 201)


@pytest.mark.behaviour("B35", "B36", "B37", "B38", "B39", "AC-B17")
async def test_a_summary_stands_for_all_but_the_last(memory: Memory) -> None:
    session = memory.session("s1", system=SYSTEM)
    await session.append([user(f"m{n}", f"m{n}") for n in range(1, 7)])
    made = await session.compact(summary("sum1"), keep_last=2)
    assert await window(session) == ["system", "sum1", "m5", "m6"]
    assert (made.messages_before, made.messages_after, made.archived_ids, made.reason) == (
        7,
        4,
        ["m1", "m2", "m3", "m4"],
        "manual",
    )
    items = (await session.history()).items
    assert [(item.number, item.message.id, item.is_summary) for item in (items[0], items[-1])] == [
        (1, "system", False),
        (8, "sum1", True),
    ]
    assert [item.archived_by for item in items] == [None, *[made.id] * 4, None, None, None]
    info = await session.info()
    assert (info.message_count, info.compaction_count, info.last_compaction_id) == (8, 1, made.id)
    assert await session.compactions() == [made]


@pytest.mark.behaviour("B34", "B41", "AC-B19")
async def test_keeping_none_or_more_than_there_are(memory: Memory) -> None:
    none, all_of_them = memory.session("none", system=SYSTEM), memory.session("all", system=SYSTEM)
    for session in (none, all_of_them):
        await session.append([user("m1", "m1"), user("m2", "m2")])
    made = await none.compact(summary("sum"), keep_last=-5)
    assert (await window(none), made.archived_ids) == (["system", "sum"], ["m1", "m2"])
    made = await all_of_them.compact(summary("sum"), keep_last=100)
    assert (await window(all_of_them), made.archived_ids) == (["system", "sum", "m1", "m2"], [])


@pytest.mark.behaviour("B40", "B42")
async def test_a_later_compaction_takes_the_earlier_summary(memory: Memory) -> None:
    session = memory.session("s1", system=SYSTEM)
    for n in range(4):
        await session.append(user(f"m{n}", f"m{n}"))
        await session.compact(summary(f"sum{n}"), keep_last=0)
    assert await window(session) == ["system", "sum3"]
    assert [made.archived_ids for made in await session.compactions()] == [
        ["m0"],
        ["sum0", "m1"],
        ["sum1", "m2"],
        ["sum2", "m3"],
    ]
    assert len(await history(session)) == 9
    assert not await session.restore("m0"), "what was compacted does not come back"


@pytest.mark.behaviour("B43", "B44", "B45", "B46", "B50")
async def test_a_window_is_compacted_before_a_model_is_asked_and_only_then(memory: Memory) -> None:
    session, policy = memory.session("s1", system=SYSTEM), TokenThreshold(100, keep_last=2)
    await session.append([user("x" * 64, "u1"), assistant("x" * 64, "a1"), user("x" * 64, "u2")])
    assert await session.compact_if_needed(policy, summary("sum")) is None
    await session.append(
        [
            assistant("", f"a{n}", tool_calls=[{"id": f"c{n}", "name": "look", "arguments": "{}"}])
            for n in range(2, 4)
        ]
    )
    await session.append(
        [{"role": "tool", "content": "found", "tool_call_id": f"c{n}", "id": f"t{n}"} for n in range(2, 4)]
    )
    assert len(await session.compactions()) == 0
    tools = [{"name": "look", "description": "x" * 60}]
    made = await session.compact_if_needed(policy, summary("sum"), tools=tools)
    assert made is not None
    assert (made.archived_ids, made.reason) == (["u1", "a1"], "token_limit")
    assert (
        await window(session)
        == await window(memory.session("s1"))
        == ["system", "sum", "u2", "a2", "t2", "a3", "t3"]
    )
    assert await session.compact_if_needed(TokenThreshold(1, keep_last=0), summary("again")) is None
    with pytest.raises(InvalidInput, match="policy: must be a TokenThreshold"):
        await session.compact_if_needed("tokens")  # type: ignore[arg-type]


@pytest.mark.behaviour("B43", "B48")
@pytest.mark.parametrize(
    "policy",
    [
        TokenThreshold(1_000),
        MessageThreshold(4, keep_last=2),
        TurnThreshold(2, keep_last=1),
        CompactionSettings(1_000, min_importance=0, deduplicate=False),
    ],
)
async def test_a_summary_that_says_nothing_archives_nothing_under_any_policy(
    memory: Memory, policy: Any
) -> None:
    session = memory.session("s1", system=SYSTEM)
    await session.append([user("before", "u0"), assistant("answer", "a0")])
    await session.compact(lambda _: "what was said before", keep_last=0)
    await session.append(
        [
            message
            for n in range(1, 9)
            for message in (user("word " * 80, f"u{n}"), assistant("word " * 80, f"a{n}"))
        ]
    )
    before = await session.context()
    with pytest.raises(CompactionError, match="Summary generation failed"):
        await session.compact_if_needed(policy, lambda _: "\n ")
    after = await session.context()
    assert [message.id for message in after.messages] == [message.id for message in before.messages]
    assert len(await session.compactions()) == 1


@pytest.mark.behaviour("B43", "B48")
async def test_a_long_summary_of_which_no_shorter_one_can_be_had_stays(memory: Memory) -> None:
    session, said = memory.session("s1", system=SYSTEM), iter(["long " * 2_000, ""])
    await session.append(
        [
            message
            for n in range(9)
            for message in (user("word " * 80, f"u{n}"), assistant("word " * 80, f"a{n}"))
        ]
    )
    made = await session.compact_if_needed(TokenThreshold(1_000), lambda _: next(said))
    assert made is not None
    assert next(said, "asked twice") == "asked twice"
    assert await session.compactions() == [made]
    assert made.summary.id in await window(session)


@pytest.mark.behaviour("B43")
async def test_a_policy_counts_messages_or_turns_and_needs_no_model(memory: Memory) -> None:
    by_messages, by_turns = memory.session("messages"), memory.session("turns")
    for session in (by_messages, by_turns):
        for n in range(3):
            await session.append([user(f"u{n}. And more.", f"u{n}"), assistant(f"a{n}", f"a{n}")])
    assert await by_messages.compact_if_needed(MessageThreshold(6, keep_last=3)) is None
    assert await by_turns.compact_if_needed(TurnThreshold(3, keep_last=1)) is None
    made = await by_messages.compact_if_needed(MessageThreshold(5, keep_last=3))
    other = await by_turns.compact_if_needed(TurnThreshold(2, keep_last=1))
    assert made is not None
    assert other is not None
    assert (made.archived_ids, other.archived_ids) == (["u0", "a0", "u1"], ["u0", "a0", "u1", "a1"])
    assert made.summary.text == "Summary of the conversation so far: u0. a0 u1."
    with pytest.raises(InvalidInput, match="keep_last: must be at most the 1"):
        MessageThreshold(most=1, keep_last=2)
    assert [
        (policy(most).keep_last, policy().keep_last)
        for policy in (MessageThreshold, TurnThreshold)
        for most in (0, 5)
    ] == [
        (0, 40),
        (2, 40),
        (0, 20),
        (2, 20),
    ], "what nobody gave fits what was given"
    for name in ("most", "keep_last"):
        for value in (-1, "3", 1.5, True):
            for policy in (MessageThreshold, TurnThreshold):
                with pytest.raises(InvalidInput, match=f"{name}: must be a whole number"):
                    policy(**{name: value})  # type: ignore[arg-type]
    for name in ("max_tokens", "max_output_tokens", "keep_last", "share", "target"):
        for wrong in (-1, "3", True, float("nan"), *([None] if name != "keep_last" else [])):
            with pytest.raises(InvalidInput, match=f"{name}: must be a "):
                TokenThreshold(**{"max_tokens": 100, name: wrong})  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="max_tokens: must be a whole number of at least 1"):
        TokenThreshold(0)
    with pytest.raises(InvalidInput, match=r"target: must be at most the share of 0\.5"):
        TokenThreshold(100, share=0.5, target=0.6)


@pytest.mark.behaviour("A121", "A122")
async def test_compaction_of_lists_is_a_policy_of_a_session(memory: Memory) -> None:
    settings = CompactionSettings(max_tokens=300, threshold=1.0, target=0.5, keep_recent=2, min_importance=0)
    session = memory.session("s1", system=SYSTEM)
    await session.append(
        [user(" ".join(f"w{n}x{i}yyyy" for i in range(40))[:94], f"m{n}") for n in range(10)]
    )

    async def short(messages: list[Message]) -> str:
        return f"of {len(messages)}"

    made = await session.compact_if_needed(settings, short)
    assert made is not None
    assert (made.summary.text, made.archived_ids) == ("of 8", [f"m{n}" for n in range(8)])
    assert await window(session) == ["system", str(made.summary.id), "m8", "m9"]
    same = memory.session("s2")
    await same.append(
        [
            user("the very same words of everybody, again and again, until nobody listens to them", f"m{n}")
            for n in range(12)
        ]
    )
    assert await same.compact_if_needed(settings, short) is None
    assert await window(same) == ["m0", "m10", "m11"]
    assert {item.excluded for item in (await same.history()).items} == {None, "dedupe"}


async def test_a_fork_begins_as_its_session_did_up_to_a_message(memory: Memory) -> None:
    session = memory.session("s1", system=SYSTEM, user="ada", tags=["work"], metadata={"a": 1})
    await session.append([user("u1", "u1"), assistant("a1", "a1"), user("u2", "u2"), assistant("a2", "a2")])
    await session.compact(summary("sum"), keep_last=2)
    await session.append([user("u3", "u3"), {"role": "assistant", "content": "a3"}])
    await session.exclude("a2")
    await session.archive()
    for at, expected in (
        ("u2", ["system", "u1", "a1", "u2"]),
        ("a2", ["system", "u1", "a1", "u2", "a2"]),
        ("u3", ["system", "sum", "u2", "u3"]),
        ("system", ["system"]),
    ):
        forked = await session.fork(at)
        assert await window(forked) == await window(memory.session(forked.id, create=False)) == expected
        info = await forked.info()
        assert (info.user, info.tags, info.metadata) == (
            "ada",
            ["work"],
            {"a": 1, "forked_from": {"session_id": "s1", "message_id": at}},
        )
    whole = await session.fork(session_id="whole")
    assert [message.text for message in (await whole.context()).messages] == [
        SYSTEM,
        "so far",
        "u2",
        "u3",
        "a3",
    ]
    await whole.update("u3", content="edited")
    await whole.append(assistant("answer", "a4"))
    assert (await session.context()).messages[-2].text == "u3"
    with pytest.raises(Conflict, match="Session already exists: whole"):
        await session.fork("u2", "whole")
    with pytest.raises(NotFound, match="message not found: nothing"):
        await session.fork("nothing")


async def test_a_fork_at_any_message_of_a_long_session_has_what_was_before_it(memory: Memory) -> None:
    session = memory.session("s1")
    for start in range(0, 150, 50):
        await session.append([user(f"m{n}", f"m{n}") for n in range(start, start + 50)])
    for at in (0, 61, 62, 63, 64, 149):
        assert await window(await session.fork(f"m{at}")) == [f"m{n}" for n in range(at + 1)]


async def test_a_context_is_cut_in_steps(memory: Memory) -> None:
    session = memory.session("s1", system=SYSTEM)
    starts = []
    for n in range(30):
        await session.append([user(f"question {n}", f"u{n}"), assistant(f"answer {n}", f"a{n}")])
        context = await session.context(100, slack=0.5)
        assert context.total_tokens <= 100
        assert (context.messages[0].id, context.messages[-1].id) == ("system", f"a{n}")
        starts.append(context.messages[1].id)
    assert len(set(starts)) <= 30 * 16 / 50  # a question and an answer cost 16 at most
    for wrong in (1, -0.1, True, "a"):
        with pytest.raises(InvalidInput, match="slack: must be a share"):
            await session.context(100, slack=wrong)  # type: ignore[arg-type]


@pytest.mark.behaviour("B45", "B51")
async def test_a_layered_context_has_all_summaries_and_says_which_layer_each_message_is_of(
    memory: Memory,
) -> None:
    session = memory.session("s1", system=SYSTEM)
    for n in range(3):
        await session.append([user(f"m{n}{part}", f"m{n}{part}") for part in "ab"])
        await session.compact(summary(f"sum{n}"), keep_last=0)
    await session.append([user(f"m{n}", f"m{n}") for n in range(90)])
    context = await session.context(layered=True)
    assert [message.id for message in context.messages] == [
        "system",
        "sum0",
        "sum1",
        "sum2",
        *(f"m{n}" for n in range(10, 90)),
    ]
    assert context.layers == ["system", *["summary"] * 3, *["recent"] * 80]
    assert context.left_out == 10
    tools = [{"name": "look"}]
    few = await session.context(60, layered=True, last=2, tools=tools)
    assert [message.id for message in few.messages][4:] == ["m88", "m89"]
    assert few.total_tokens == sum(few.tokens) + few.tools_tokens
    assert few.tools_tokens > 0


@pytest.mark.behaviour("B84")
async def test_what_memory_finds_is_sent_along_under_the_same_budget(memory: Memory) -> None:
    session = memory.session("s1", system=SYSTEM, user="ada")
    await memory.write("Ada's cat is called Tom", scope="user:ada")
    await memory.write("the cat sleeps on the printer", scope="session:s1")
    await memory.write("the cat of another", scope="user:bob")
    await session.append(
        [m for n in range(30) for m in (user(f"question {n}", f"u{n}"), assistant(f"answer {n}", f"a{n}"))]
    )
    await session.append(user("what is my cat called?", "last"))
    for slack in (0, 0.25):
        context = await session.context(200, recall="cat", slack=slack)
        recalled = context.messages[context.layers.index("recalled")]
        assert context.messages[-2:] == [recalled, context.messages[-1]]
        assert all(fact in recalled.text for fact in ("Tom", "printer"))
        assert "another" not in recalled.text
        assert context.total_tokens <= 200
        assert context.over_budget == 0
        assert len(context.tokens) == len(context.messages) == len(context.layers) > 6
    tight = await session.context(70, recall="cat")
    assert "recalled" not in tight.layers or tight.tokens[tight.layers.index("recalled")] <= 17
    nothing = await session.context(recall="zebra")
    assert (len(nothing.messages), "recalled" in nothing.layers) == (62, False)


@pytest.mark.behaviour("B38")
async def test_what_a_compaction_is_told_is_checked_and_a_summary_that_no_message_can_say_is_none(
    memory: Memory,
) -> None:
    session = memory.session("s1", system=SYSTEM)
    await session.append(user("u1", "u1"))
    for wrong in ("", "\0", "\ud800", "x" * 513, 5):
        with pytest.raises(InvalidInput, match="trigger_id"):
            await session.compact(lambda _: "sum", keep_last=0, trigger_id=wrong)  # type: ignore[arg-type]
    for said in "\0", "\ud800":
        with pytest.raises(CompactionError, match=r"u1.*content"):
            await session.compact(saying(said), keep_last=0)
    with pytest.raises(InvalidInput, match="roles"):
        await session.history(roles=["nobody"])
    assert await window(session) == ["system", "u1"]
    assert (await session.compact(lambda _: "sum", keep_last=0, trigger_id="u1")).trigger_id == "u1"


@pytest.mark.behaviour("B52")
async def test_a_roll_back_leaves_what_came_before(memory: Memory) -> None:
    session = memory.session("s1", system=SYSTEM)
    await session.append(user("u1", "u1"))
    here = await session.checkpoint()
    await session.append([assistant("a1", "a1"), user("u2", "u2")])
    assert await session.roll_back(here, "invalid_response") == 2
    assert await window(session) == ["system", "u1"]
    assert [item.excluded for item in (await session.history()).items] == [
        None,
        None,
        "invalid_response",
        "invalid_response",
    ]
    with pytest.raises(InvalidInput, match="another session"):
        await memory.session("s2", system=SYSTEM).roll_back(here)


@pytest.mark.behaviour("B28", "B51", "B52")
async def test_layers_have_no_summary_that_was_excluded_or_rolled_back(memory: Memory) -> None:
    async def shown() -> list[str]:
        return [str(message.id) for message in (await session.context(layered=True)).messages]

    session = memory.session("s1", system=SYSTEM)
    for number in range(1, 4):
        await session.append(user(f"m{number}", f"m{number}"))
        await session.compact(summary(f"sum{number}"), keep_last=0)
    here = await session.checkpoint()
    await session.compact(summary("sum4"), keep_last=0)
    assert await shown() == ["system", "sum1", "sum2", "sum3", "sum4"]
    await session.roll_back(here)
    assert await shown() == ["system", "sum1", "sum2", "sum3"]
    await session.exclude("sum3")
    assert await shown() == ["system", "sum1", "sum2"]
    await session.restore("sum3")
    assert await shown() == ["system", "sum1", "sum2", "sum3"]


@pytest.mark.behaviour("B26")
async def test_a_change_may_be_a_whole_message_and_what_cannot_change_stays(memory: Memory) -> None:
    session = memory.session("s1", system=SYSTEM)
    call = {"id": "c1", "name": "look", "arguments": "{}"}
    await session.append(
        [
            assistant("a", "a1", tool_calls=[call]),
            {"id": "t1", "role": "tool", "tool_call_id": "c1", "content": "r"},
        ]
    )
    before = (await session.context()).messages
    for message in before:
        assert await session.update(str(message.id), **message.model_dump()) == message
        other = {
            "id": "other",
            "role": "user",
            "tool_call_id": "c2",
            "is_summary": True,
            "content": "changed",
        }
        assert await session.update(str(message.id), **message.model_dump() | other) == message.model_copy(
            update={"content": "changed"}
        )
    assert [item.number for item in (await session.history(ids=["a1", "t1"])).items] == [2, 3]
    for wrong in ({"role": "user"}, {"role": "user", "content": "x", "sequence": 1}):
        with pytest.raises(InvalidInput, match=r"role|sequence"):
            await session.update("a1", **wrong)


@pytest.mark.behaviour("B43", "B45")
@pytest.mark.parametrize("tools", ["search", [1], [{"a": {1, 2}}], {"name": "search"}])
async def test_what_is_no_schema_of_a_tool_is_refused_by_name(memory: Memory, tools: Any) -> None:
    session = memory.session("s1")
    await session.append(user("u1", "u1"))
    with pytest.raises(InvalidInput, match="tools"):
        await session.context(tools=tools)
    with pytest.raises(InvalidInput, match="tools"):
        await session.compact_if_needed(TokenThreshold(10, keep_last=0), tools=tools)
    with pytest.raises(InvalidInput, match="recall"):
        await session.context(recall=5)  # type: ignore[arg-type]
    assert (await session.context(tools=[{"maximum": 2**64}])).tools_tokens > 0


@pytest.mark.behaviour("B52", "B32", "B36")
async def test_a_roll_back_over_a_compaction_brings_back_what_was_in_the_window_then(memory: Memory) -> None:
    session = memory.session("s1", system=SYSTEM)
    await session.append([user("m1", "m1"), assistant("m2", "m2")])
    first = await session.compact(summary("sum1"), keep_last=1)
    await session.append([user("m3", "m3"), assistant("m4", "m4"), user("m5", "m5")])
    here = await session.checkpoint()
    await session.append([assistant("m6", "m6"), user("m7", "m7")])
    await session.exclude("m4", "invalid_response")
    second = await session.compact(summary("sum2"), keep_last=1)
    third = await session.compact(summary("sum3"), keep_last=0)
    assert await window(session) == ["system", "sum3"]
    before = (await session.info()).version or 0
    assert await session.roll_back(here, "branch") == 1
    for handle in (session, memory.session("s1")):
        assert await window(handle) == ["system", "sum1", "m2", "m3", "m4", "m5"]
        told = {item.message.id: (item.excluded, item.archived_by) for item in (await handle.history()).items}
        assert told["m1"] == (None, first.id)
        assert {told[name] for name in ("sum1", "m2", "m4", "m5")} == {(None, None)}
        assert {told[name] for name in ("m6", "m7", "sum2", "sum3")} == {("branch", None)}
        assert [await history(handle, archived_by=made.id) for made in (first, second, third)] == [
            ["m1"],
            [],
            [],
        ]
        assert [made.id for made in await handle.compactions()] == [first.id, second.id, third.id]
    assert ((await session.info()).version, (await session.info()).message_count) == (before + 1, 11)
    assert await session.roll_back(here) == 0
    assert await window(session) == ["system", "sum1", "m2", "m3", "m4", "m5"]
    await session.append(assistant("m8", "m8"))
    await session.compact(summary("sum4"), keep_last=1)
    assert await window(session) == ["system", "sum4", "m8"]
    assert [
        item.archived_by is not None for item in (await session.history(ids=["sum1", "m2", "m3", "m5"])).items
    ] == [True] * 4
    assert await session.restore("m6")
    assert await window(session) == ["system", "sum4", "m6", "m8"]


@pytest.mark.behaviour("B52")
async def test_what_was_said_since_and_compacted_is_rolled_back_too(memory: Memory) -> None:
    session = memory.session("s1", system=SYSTEM)
    here = await session.checkpoint("begin")
    await session.append([user("about the heron", "m1"), assistant("m2", "m2")])
    await session.compact(summary("sum1"), keep_last=0)
    assert await session.roll_back(here, "branch") == 1
    assert await window(session) == ["system"]
    assert [item.excluded for item in (await session.history()).items] == [None, "branch", "branch", "branch"]
    assert list(await session.search("heron", mode="lexical")) == []
    assert await session.roll_back(here, "branch") == 0


@pytest.mark.behaviour("C22")
async def test_a_window_becomes_the_list_that_is_handed_in(memory: Memory) -> None:
    session = memory.session("s1", system=SYSTEM)
    await session.append([user(f"m{n}", f"m{n}") for n in range(1, 5)])
    read = (await session.context()).messages
    await memory.session("s1").append(user("meanwhile", "other"))
    stored = await session.replace([read[0], *read[2:], user("m5", "m5")])
    assert [message.id for message in stored] == ["m2", "m3", "m4", "m5"]
    assert await window(session) == ["system", "m2", "m3", "m4", "other", "m5"]
    assert {item.message.id: item.excluded for item in (await session.history()).items if item.excluded} == {
        "m1": "replaced"
    }
    before = (await session.info()).version
    await session.replace(
        [{"role": "user", "content": f"m{n}"} for n in (2, 3, 4)]
        + [user("meanwhile", "other"), user("m5", "m5")]
    )
    assert (await window(session), (await session.info()).version) == (
        ["system", "m2", "m3", "m4", "other", "m5"],
        before,
    )
    await session.replace([user("m1", "m1")])
    assert await window(session) == ["system", "m1"]
    assert await session.replace([]) == []
    assert await window(session) == ["system"]


@pytest.mark.behaviour("C22")
async def test_a_replacement_that_was_cut_off_is_ended_by_the_same_again(memory: Memory) -> None:
    session = memory.session("s1")
    await session.append([user("u1", "u1"), assistant("a1", "a1")])
    given = [{"role": "user", "content": "new"}, {"role": "assistant", "content": "newer"}]
    with (
        patch(
            "memory.orchestrator.conversations.window.handle.Handle._remove_from_window",
            side_effect=asyncio.CancelledError,
        ),
        pytest.raises(asyncio.CancelledError),
    ):
        await session.replace(given)
    for handle in (memory.session("s1"), memory.session("s1")):
        await handle.replace(given)
        assert [message.text for message in (await handle.context()).messages] == ["new", "newer"]
    assert [item.message.text for item in (await session.history()).items] == ["u1", "a1", "new", "newer"]


@pytest.mark.behaviour("C22")
async def test_a_task_that_has_only_written_replaces_the_window_as_it_is(memory: Memory) -> None:
    await memory.session("s1").append(user("u1", "u1"))
    session = memory.session("s1")
    await session.append(user("u2", "u2"))
    await memory.session("s1").append(user("u3", "u3"))
    await session.replace([user("u4", "u4")])
    assert await window(session) == ["u4"]


@pytest.mark.behaviour("C22")
async def test_a_changed_message_without_an_id_takes_what_is_behind_it_along(memory: Memory) -> None:
    session = memory.session("s1")
    await session.append([user("u1", "u1"), assistant("a1", "a1"), user("u2", "u2")])
    await session.replace(
        [
            {"role": "user", "content": "u1"},
            {"role": "assistant", "content": "better"},
            {"role": "user", "content": "u2"},
        ]
    )
    assert [message.text for message in (await session.context()).messages] == ["u1", "better", "u2"]
    with pytest.raises(InvalidInput, match="messages: must be a list"):
        await session.replace("u1")


@pytest.mark.behaviour("B47", "B53")
async def test_calls_that_were_cut_off_are_mended_once(memory: Memory) -> None:
    session = memory.session("s1", system=SYSTEM)
    calls = [{"id": call, "name": "look", "arguments": "{}"} for call in ("c1", "c2")]
    await session.append(assistant("", "a1", tool_calls=calls))
    await session.append(
        [
            {"role": "tool", "content": "x", "tool_call_id": call, "id": f"t{n}"}
            for n, call in enumerate(("c1", "c1", "c9"))
        ]
    )
    before = await session.context()
    assert (before.invalid, before.interrupted) == (["t1", "t2"], ["c2"])
    (made,) = await session.repair_tool_calls()
    assert (made.tool_call_id, made.text) == ("c2", "TOOL_CALL_INTERRUPTED")
    assert await session.repair_tool_calls() == []
    context = await session.context()
    assert [message.id for message in context.messages] == ["system", "a1", "t0", made.id]
    assert (context.invalid, context.interrupted) == ([], [])
    said = {item.message.id: item.excluded for item in (await session.history()).items}
    assert said == {
        "system": None,
        "a1": None,
        "t0": None,
        "t1": "invalid_response",
        "t2": "invalid_response",
        made.id: None,
    }


@pytest.mark.behaviour("B15", "B16")
async def test_sessions_are_listed_the_last_used_first(memory: Memory, clock: Clock) -> None:
    handles = []
    for n, who in enumerate(("ada", "ada", "bo")):
        handles.append(await memory.sessions.create(f"s{n}", user=who, tags=["work"] if n else ()))
        clock.advance(HOUR)
    await handles[0].append(user("hello", "u1"))
    await handles[2].archive()

    async def listed(**asked: Any) -> list[str]:
        return [info.id for info in (await memory.sessions.list(**asked)).sessions]

    assert await listed() == ["s2", "s0", "s1"]
    assert await listed(by="created", order="oldest") == ["s0", "s1", "s2"]
    assert await listed(user="ada") == ["s0", "s1"]
    assert await listed(status="archived") == ["s2"]
    assert await listed(tags=["work"], status="active") == ["s1"]
    second = (await handles[1].info()).created_at
    assert await listed(since=second, until=second) == ["s1"]
    assert await listed(since=second, by="created") == ["s2", "s1"]
    assert await listed(until=second, by="created") == ["s1", "s0"]
    page = await memory.sessions.list(limit=2)
    assert [info.id for info in (await memory.sessions.list(limit=2, cursor=page.cursor)).sessions] == ["s1"]


@pytest.mark.behaviour("B17", "C12")
async def test_what_was_read_is_a_copy(memory: Memory) -> None:
    given = {"role": "user", "content": [{"type": "text", "text": "hello"}], "id": "u1"}
    session = memory.session("s1", metadata={"a": [1]})
    await session.append(given)
    given["content"] = "changed"
    for read in (lambda: session.context(), lambda: session.history()):
        (await read()).to_dict()
    said = (await session.context()).messages[0]
    said.content[0]["text"] = "changed"  # type: ignore[index]
    (await session.info()).metadata["a"].append(2)
    assert (await session.context()).messages[0].text == "hello"
    assert (await session.info()).metadata == {"a": [1]}


@pytest.mark.behaviour("B29", "AC-B29")
async def test_ids_are_kept_to_the_letter(memory: Memory) -> None:
    names = ["a/b::c é", "S1", "s1", "s1 ", "*", "conversation:x"]
    for name in names:
        await memory.session(name).append(user(name, name))
    for name in names:
        assert [
            message.text for message in (await memory.session(name, create=False).context()).messages
        ] == [name]
    assert sorted(info.id for info in (await memory.sessions.list()).sessions) == sorted(names)


@pytest.mark.behaviour("B32")
async def test_a_session_that_has_ended_takes_no_message_until_it_is_resumed(memory: Memory) -> None:
    session = memory.session("s1", system=SYSTEM)
    await session.append(user("u1", "u1"))
    await memory.write("a fact", scope="session:s1")
    await memory.sessions.end("s1")
    with pytest.raises(Conflict, match="is ended; resume it first"):
        await session.append(user("u2", "u2"))
    assert (await session.resume(), await session.resume()) == (True, False)
    await session.append(user("u3", "u3"))
    assert await window(session) == ["system", "u1", "u3"]


async def test_a_deleted_session_is_gone_with_its_entries_and_its_id_is_free(memory: Memory) -> None:
    session = memory.session("s1", system=SYSTEM, create=True)
    await session.append(user("the secret heron", "u1"))
    await memory.write("a secret fact", scope="session:s1")
    await memory.write("another's", scope="session:s2")
    assert await memory.sessions.delete("s1")
    assert not await memory.sessions.delete("s1")
    assert await memory.retrieve("session:s1") == []
    assert len(await memory.retrieve("session:s2")) == 1
    for call in (session.info, session.context, session.history, lambda: session.append(user("late", "u2"))):
        with pytest.raises(NotFound):
            await call()
    assert (await memory.sessions.list()).sessions == []
    again = memory.session("s1")
    await again.append(user("new", "u1"))
    assert await window(again) == ["u1"]
    with pytest.raises(NotFound):
        await session.append(user("later", "u3"))


@pytest.mark.parametrize("is_created_again", [False, True])
@pytest.mark.parametrize(
    "options", [{"id": "m1"}, {"request_id": "r1"}, {}], ids=["id", "request", "neither"]
)
async def test_a_message_repeated_to_a_deleted_session_is_refused_at_once(
    memory: Memory, options: dict[str, Any], is_created_again: bool
) -> None:
    said = {"role": "user", "content": "hello"}
    session = await memory.sessions.create("s1")
    await session.append(said, **options)
    await memory.sessions.delete("s1")
    if is_created_again:
        await memory.sessions.create("s1")
    with pytest.raises(Conflict if "request_id" in options else NotFound, match=r"deleted|not found"):
        await session.append(said, **options)
    assert (await memory.sessions.get("s1") is not None) == is_created_again


async def test_an_erased_message_is_gone_with_its_summary_and_its_number_stays(memory: Memory) -> None:
    session = memory.session("s1", system=SYSTEM)
    await session.append([user("u1", "u1"), user("u2", "u2"), user("u3", "u3")])
    await session.compact(summary("sum1"), keep_last=1)
    assert await session.erase("u1") is True
    assert await session.erase("u1") is False
    assert await window(session) == ["system", "u3"]
    items = (await session.history()).items
    assert [(item.number, item.message.text, item.is_redacted) for item in items[1:]] == [
        (2, "", True),
        (3, "u2", False),
        (4, "u3", False),
        (5, "", True),
    ]
    assert await session.search("u1") == []
    assert (await session.info()).message_count == 5
    with pytest.raises(InvalidInput, match="system message"):
        await session.erase("system")


async def test_a_user_is_erased_from_all_sessions_of_the_tenant(memory: Opened) -> None:
    await memory.session("s1", user="ada").append(user("mine", "m1"))
    await memory.session("s2", user="bob").append([{**user("hers", "m1"), "name": "ada"}, user("his", "m2")])
    await memory.write("Ada prefers tea", scope="user:ada")
    theirs = memory.for_tenant("globex").session("s1", user="ada")
    await theirs.append(user("another's", "m1"))
    erased = await memory.admin.erase_user("ada")
    assert (erased.sessions, erased.messages, erased.entries) == (1, 1, 1)
    assert await memory.sessions.get("s1") is None
    assert await window(memory.session("s2")) == ["m2"]
    assert list(await memory.retrieve("user:ada")) == []
    assert await window(theirs) == ["m1"]


async def test_erasing_a_sessions_entries_leaves_what_was_said(memory: Memory) -> None:
    session = memory.session("s1")
    await session.append(user("hello", "u1"))
    await memory.write("a fact", scope="session:s1")
    await memory.admin.erase("session:s1")
    assert await window(session) == ["u1"]


async def test_tenants_never_mix(memory: Opened) -> None:
    async with memory.for_tenant("other") as other:
        await memory.session("s1").append(user("mine", "u1"))
        await other.session("s1").append(user("theirs", "u1"))
        assert [m.text for m in (await memory.session("s1").context()).messages] == ["mine"]
        assert [m.text for m in (await other.session("s1").context()).messages] == ["theirs"]
        await other.sessions.delete("s1")
        assert [info.id for info in (await memory.sessions.list()).sessions] == ["s1"]
        assert [m.text for m in (await memory.session("s1").context()).messages] == ["mine"]


@cells(
    "wrong, field",
    [
        ({"role": "nobody", "content": "x"}, "role"),
        ({"role": "user", "content": 7}, "content"),
        ({"role": "user", "content": "\x00"}, "content"),
        ({"role": "user", "content": "x", "id": "system"}, "id"),
        ({"role": "user", "content": "x", "id": ""}, "id"),
        ({"content": "x"}, "role"),
        (7, "message"),
    ],
    shared=True,
)
async def test_a_message_that_is_none_is_refused_before_any_store_is_touched(
    plain: Memory, wrong: Any, field: str
) -> None:
    session = plain.session("s1")
    with pytest.raises(InvalidInput, match=field):
        await session.append([user("fine", "u1"), wrong])
    assert (await plain.sessions.list()).sessions == [] or await window(session) == []


@pytest.mark.behaviour("B20", "B21", "B22", "B23")
async def test_a_message_that_is_given_several_times_at_once_stands_where_it_is_given_first(
    memory: Memory,
) -> None:
    session = memory.session("s1", system=SYSTEM)
    calls = [{"id": "c1", "name": "look", "arguments": "{}"}]
    said = [
        user("q", "u1"),
        assistant("par", "a1", tool_calls=calls),
        {"role": "tool", "content": "r", "tool_call_id": "c1", "id": "t1"},
    ]
    answers = await session.append([*said, assistant("whole", "a1", tool_calls=calls)])
    assert [answer.text for answer in answers] == ["q", "whole", "r", "whole"]
    assert [message.id for message in (await session.context()).messages] == ["system", "u1", "a1", "t1"]
    items = (await session.history()).items
    assert [(item.number, item.message.id, item.message.text) for item in items[1:]] == [
        (2, "u1", "q"),
        (3, "a1", "whole"),
        (4, "t1", "r"),
    ]


@pytest.mark.behaviour("B43", "B44")
async def test_no_message_is_in_neither_the_summary_nor_the_context(memory: Memory) -> None:
    """Also beside a summary that is longer than was thought, and while one question
    makes an agent call many tools.
    """
    session, said = memory.session("s1", system="You are helpful."), list[str]()
    made = []
    for n in range(40):
        if n % 8 == 0:
            said += [
                str(one.id)
                for one in await session.append(user(f"Question {n}: " + "a long one. " * 20, f"u{n}"))
            ]
        call = {"id": f"c{n}", "name": "look", "arguments": "{}"}
        steps = [
            assistant("", f"a{n}", tool_calls=[call]),
            {"role": "tool", "tool_call_id": f"c{n}", "content": "result " * 15},
        ]
        said += [str(one.id) for one in await session.append(steps)]
        if done := await session.compact_if_needed(
            TokenThreshold(1_000),
            lambda _: "sum " * (200 if n % 3 else 600),  # noqa: B023
        ):
            made.append(done)
        context = await session.context(1_000)
        archived = {item.message.id for item in (await session.history(limit=500)).items if item.archived_by}
        assert context.left_out == 0
        assert {*archived, *(message.id for message in context.messages)} >= set(said)
    assert len(made) > 2
