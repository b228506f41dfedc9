"""Conversations of frameworks in a session come back as they went in.

Their text is found and counted, and nothing is lost that frameworks repeat.
"""

from __future__ import annotations

import asyncio
import copy
import io
import json
from typing import Any

import pytest

from memory import ABSENT, BlockingMemory, Conflict, InvalidInput, Memory, VersionConflict
from memory.agents.providers import (
    CompositeProvider,
    SemanticProvider,
    SlidingWindowProvider,
    SummarizingProvider,
)
from memory.domain.message import Message, Role
from memory.facade.chat_files import export_chat, import_chat, read_messages
from memory.facade.runtime.access import engine_of
from memory.formats import FORMATS, export_messages, import_messages
from memory.policies.tokens import DefaultCounter
from memory.ports.contract.cells import cells
from tests.acceptance.conftest import keeping_bytes
from tests.acceptance.support import Clock, everything_stored
from tests.support.conversations import drawn
from tests.support.depth import drawn as draws

config = keeping_bytes()
HIDDEN = "xylophone-in-the-attic"
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
UNREAD = [
    ("gemini", "content", {"role": "user", "content": "hi"}),
    ("gemini", "content", {"role": "user", "content": "hi", "parts": [{"text": ""}]}),
    ("vercel", "content", {"role": "user", "content": [{"type": "text", "text": "hi"}]}),
    ("llamaindex", "content", {"role": "user", "content": "hi", "additional_kwargs": {}}),
    ("ollama", "parts", {"role": "user", "parts": [{"text": "hi"}]}),
    ("bedrock", "text", {"role": "user", "text": "hi"}),
    ("openai_responses", "parts", {"role": "user", "parts": [{"text": "hi"}]}),
    *(
        (name, "tool_calls", {"role": "assistant", "content": None, "tool_calls": [CALL]})
        for name in ("anthropic", "bedrock", "openai_responses", "vercel")
    ),
]
"""Messages of another format than the named one; it reads none of their content."""


@pytest.mark.parametrize("format", FORMATS)
async def test_a_conversation_comes_back_as_it_went_in_and_is_found(
    memory: Memory, format: str, request: pytest.FixtureRequest
) -> None:
    counter = DefaultCounter()
    for seed in range(draws(200 if "one-file" in request.node.name else 10, quick=4)):
        given = drawn(format, seed)
        session = memory.session(f"{format}-{seed}")
        middle = len(given.items) // 2
        await session.append(copy.deepcopy(given.items[:middle]), format=format)
        for item in copy.deepcopy(given.items[middle:]):
            await session.append(item, format=format)
        context = await session.context()
        for back in (context.to(format), (await session.history(limit=1_000)).to(format)):
            if format == "plain":  # it is ours, and shows the ids that it got
                assert all(one.pop("id") for one in back)
            assert back == given.items
        assert context.invalid == context.interrupted == []
        assert context.total_tokens >= counter.count("".join(given.texts))
        for text in given.texts[:3]:
            mark = text.split()[-1]
            found = await session.search(mark, mode="lexical")
            assert any(mark in one.content for one in found), (format, seed, mark)


@pytest.mark.parametrize("format", sorted({*FORMATS} - {"plain", "openai"}))
async def test_ids_that_repeat_inside_originals_lose_nothing(memory: Memory, format: str) -> None:
    given = drawn(format, 3).items
    for item in given:
        item["id"] = "the-same"
        if format == "langchain":
            item["data"]["id"] = item.pop("id")
        if format == "claude":
            item["uuid"] = item.pop("id")
    session = memory.session("s1")
    stored = [one for item in given for one in await session.append(item, format=format)]
    assert len({one.id for one in stored}) == len(stored)
    assert not any("the-same" in str(one.id) for one in stored)
    assert (await session.context()).to(format) == given
    again = await session.append(given[0], format=format)
    assert (await session.info()).message_count == len(stored) + len(again)


async def test_ids_of_ours_are_given_beside_the_messages(memory: Memory) -> None:
    session = memory.session("s1")
    results = {
        "role": "user",
        "content": [
            {"toolResult": {"toolUseId": "c1", "content": [{"text": "one"}]}},
            {"toolResult": {"toolUseId": "c2", "content": [{"text": "two"}]}},
        ],
    }
    first = await session.append({"role": "user", "content": [{"text": "hi"}]}, id="m1")
    more = await session.append(
        [results, {"role": "assistant", "content": [{"text": "so"}]}], id=["m2", None]
    )
    assert [one.id for one in first] == ["m1"]
    assert [one.id for one in more][:2] == ["m2", "m2:2"]
    (replaced,) = await session.append({"role": "user", "content": [{"text": "hello"}]}, id="m1")
    assert (replaced.id, replaced.text) == ("m1", "hello")
    for wrong in (["m3"], "m3", 7):
        with pytest.raises(InvalidInput, match="id"):
            await session.append([results, results], id=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="id"):
        await session.append(results, id="")
    assert (await session.info()).message_count == 4


@pytest.mark.parametrize(
    ("format", "item"),
    [
        ("openai_responses", {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}),
        ("openai_responses", {"type": "compaction", "encrypted_content": "gAAA"}),
        ("openai_responses", {"type": "function_call_output", "call_id": "c1", "output": ""}),
        (
            "bedrock",
            {"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": b"\xff\x00"}}}]},
        ),
        (
            "gemini",
            {"role": "user", "parts": [{"fileData": {"fileUri": "gs://a/b", "mimeType": "video/mp4"}}]},
        ),
        (
            "vercel",
            {"id": "m", "role": "user", "parts": [{"type": "file", "mediaType": "a/pdf", "url": "data:,x"}]},
        ),
        ("claude", {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}),
        ("adk", {"author": "helper", "invocation_id": "e", "actions": {"state_delta": {"a": 1}}}),
        ("pydantic_ai", {"kind": "response", "parts": [], "usage": {"input_tokens": 1}}),
    ],
)
async def test_a_recognised_item_may_have_no_text(memory: Memory, format: str, item: dict[str, Any]) -> None:
    session = memory.session("s1")
    (stored,) = await session.append(copy.deepcopy(item))
    assert (stored.shape, stored.text, stored.raw) == (format, "", item)
    context = await session.context()
    assert context.total_tokens >= 4 or context.invalid  # a result without its call is not shown
    shown = (await session.history()).to(format)
    assert shown == [item]


@cells(
    "path, format, item",
    [
        ("role", "auto", {"utterance": "hi"}),
        ("type", "openai_responses", {"type": "telegram", "text": "hi"}),
        ("type", "openai_responses", {"text": "hi"}),
        ("content[1]", "bedrock", {"role": "user", "content": [{"text": "hi"}, {"telegram": "hi"}]}),
        ("parts[0]", "gemini", {"role": "user", "parts": [{"telegram": "hi"}]}),
        ("parts[0].text", "vercel", {"role": "user", "parts": [{"type": "text", "text": 7}]}),
        ("parts[0].part_kind", "pydantic_ai", {"kind": "request", "parts": [{"content": "hi"}]}),
        ("blocks[0].block_type", "llamaindex", {"role": "user", "blocks": [{"text": "hi"}]}),
        ("author", "adk", {"content": {"parts": [{"text": "hi"}]}}),
        ("message.content[0].type", "claude", {"type": "user", "message": {"role": "user", "content": [{}]}}),
        ("images[0]", "ollama", {"role": "user", "content": "hi", "images": [7]}),
        (
            "parts[0].inlineData.data",
            "gemini",
            {"parts": [{"inlineData": {"data": object(), "mimeType": "a/b"}}]},
        ),
        *((unread, name, item) for name, unread, item in UNREAD),
        ("format", "morse", {"role": "user", "content": "hi"}),
    ],
    shared=True,
)
async def test_a_shape_that_is_not_recognised_is_refused_by_its_path(
    memory: Memory, path: str, format: str, item: dict[str, Any]
) -> None:
    session = memory.session("s1")
    with pytest.raises(InvalidInput) as refused:
        await session.append(item, format=format)
    assert refused.value.field == path
    if format == "auto":
        assert all(name in str(refused.value) for name in FORMATS)
    with pytest.raises(InvalidInput) as refused:
        await session.append([{"role": "user", "content": "hi"}, item], format=format)
    assert format == "morse" or refused.value.field.startswith("message[")
    assert (await session.context()).messages == []


async def test_an_edited_message_loses_its_original_and_an_erased_one_keeps_nothing(memory: Memory) -> None:
    session = memory.session("s1", user="ada")
    secret = {
        "id": "x",
        "role": "user",
        "parts": [{"type": "text", "text": HIDDEN}],
        "metadata": {"note": HIDDEN},
    }
    tool = {
        "type": "tool-look",
        "toolCallId": "c1",
        "state": "output-available",
        "input": {"q": 1},
        "output": {"found": HIDDEN},
    }
    answer = {"id": "y", "role": "assistant", "parts": [{"type": "text", "text": "I look."}, tool]}
    (said,) = await session.append(secret)
    assert said.raw == secret
    _, found = await session.append(answer)
    edited = await session.update(str(said.id), content="nothing")
    assert edited.raw == {"role": "user", "parts": [{"type": "text", "text": "nothing"}]}
    assert HIDDEN not in json.dumps(edited.model_dump(mode="json"))
    await session.erase(str(found.id))
    await memory.maintain()
    assert HIDDEN not in repr(await everything_stored(memory))
    assert [part["type"] for one in (await session.context()).to("vercel") for part in one["parts"]] == [
        "text",
        "text",
        "tool-look",
    ]


async def test_a_large_original_is_stored_once_and_comes_back(memory: Memory) -> None:
    session = memory.session("s1")
    picture, text = bytes(range(256)) * 1_200, "a long story " * 20_000
    item = {
        "role": "user",
        "content": [{"image": {"format": "png", "source": {"bytes": picture}}}, {"text": text}],
    }
    await session.append(copy.deepcopy(item))
    context = await session.context()
    assert context.to("bedrock") == [item]
    stored = sum(len(repr(row)) for row in await everything_stored(memory))
    assert stored < 1.5 * (len(picture) * 4 / 3 + len(text)) + 100_000
    with pytest.raises(InvalidInput, match="exceeds"):
        await session.append(
            {
                "role": "user",
                "content": [{"image": {"format": "png", "source": {"bytes": bytes(25 * 2**20)}}}],
            }
        )
    with pytest.raises(InvalidInput, match="exceeds"):
        await session.append(
            {"role": "user", "parts": [{"text": "a"}], "metadata": {f"n{n}": "x" * 2_000 for n in range(600)}}
        )


async def test_the_window_is_handed_back_in_a_format(memory: Memory) -> None:
    for format in ("gemini", "openai_responses", "vercel"):
        session = memory.session(format)
        given = drawn(format, 11).items
        await session.append(copy.deepcopy(given), format=format)
        before = await session.history(limit=1_000)
        context = await session.context()
        await session.replace(context.messages)
        assert (await session.context()).to(format) == given
        assert [item.message.id for item in (await session.history(limit=1_000)).items] == [
            item.message.id for item in before.items
        ]


@pytest.mark.behaviour("C22", "C33")
@pytest.mark.drawn
@pytest.mark.parametrize("format", FORMATS)
async def test_originals_and_messages_without_ids_that_are_handed_back_double_nothing(
    memory: Memory, format: str
) -> None:
    for seed in (8, 6, 9)[: draws(3, quick=1)]:
        given, name = drawn(format, seed).items, f"{format}-{seed}"
        session = memory.session(name)
        await session.append(copy.deepcopy(given), format=format)
        before = [item.message.id for item in (await session.history(limit=1_000)).items]
        read = (await session.context()).messages
        for back in (given, (await session.context()).to(format), [*read], (await session.window()).messages):
            if isinstance(back[0], Message):
                back = [one.model_copy(update={"id": None}) for one in back]
            await session.replace(back)
            there = (await session.history(limit=1_000)).items
            assert [item.message.id for item in there] == before, (seed, type(back[0]))
        parts = [SlidingWindowProvider(memory, max_tokens=None), SemanticProvider(memory, last=500)]
        summarizing = SummarizingProvider(memory, str, active_tokens=100_000)
        every: list[Any] = [*parts, summarizing, CompositeProvider(parts, read="merge")]
        for provider in every:
            await provider.write(copy.deepcopy(given), name)
            stored = await provider.read(name)
            await provider.write(copy.deepcopy(given), name)
            assert await provider.read(name) == stored, (seed, provider.type)


async def test_messages_of_several_formats_stay_what_they_are(memory: Memory) -> None:
    session = memory.session("s1")
    items = [drawn(format, 5).items[0] for format in ("gemini", "bedrock", "vercel", "adk")]
    await session.append(copy.deepcopy(items))
    messages = (await session.context()).messages
    assert [one.raw for one in messages if one.role.value == "user"][: len(items)] == items
    over = (await session.context()).to("anthropic")
    assert all(one["role"] in ("user", "assistant") for one in over)


# -- the window as it was appended -----------------------------------------------------


def calls(*ids: str) -> list[dict[str, Any]]:
    return [{"type": "function_call", "call_id": one, "name": "f", "arguments": "{}"} for one in ids]


def results(*ids: str) -> list[dict[str, Any]]:
    return [{"type": "function_call_output", "call_id": one, "output": f"of {one}"} for one in ids]


HELLO = {"role": "user", "content": "hello"}
AS_APPENDED = {
    "a result after the next message": [HELLO, *calls("c1"), HELLO, *results("c1"), HELLO],
    "results in another order": [HELLO, *calls("c1", "c2"), *results("c2", "c1")],
    "a call without a result": [HELLO, *calls("c1", "c2"), *results("c2"), HELLO],
    "a result without a call": [*results("c1"), HELLO],
    "two results": [*calls("c1"), *results("c1", "c1")],
    "system messages in between": [HELLO, {"role": "system", "content": "be brief"}, HELLO],
}


@pytest.mark.parametrize("case", AS_APPENDED)
async def test_the_window_is_as_it_was_appended(memory: Memory, case: str) -> None:
    session, items = memory.session("s1"), AS_APPENDED[case]
    for item in items:
        await session.append(item, format="openai_responses")
    for most in (None, *range(len(items) + 2)):
        read = await session.window(last=most)
        expected = items if most is None else items[len(items) - min(most, len(items)) :]
        assert read.to("openai_responses") == expected
        assert read.left_out == len(items) - len(expected)
    assert [one.id for one in read.messages] == [one.message.id for one in (await session.history()).items]
    context = await session.context()
    assert (read.invalid, read.interrupted) == (context.invalid, context.interrupted)


async def test_a_window_of_a_long_session_has_its_end_with_summary_and_system_message_first(
    memory: Memory,
) -> None:
    session = memory.session("s1", system="You help.")
    await session.append([{"role": "user", "content": f"hello {n}"} for n in range(100)])
    await session.compact(lambda messages: "they said hello", keep_last=40)
    await session.exclude(str((await session.window(last=1)).messages[0].id))
    for read in (session, (await memory.sessions.create("s2")) and memory.session("s1")):
        texts = [message.text for message in (await read.window()).messages]
        assert (texts[0], texts[2:]) == ("You help.", [f"hello {n}" for n in range(60, 99)])
        assert "they said hello" in texts[1]
        for most in (1, 39, 40, 41):
            assert [message.text for message in (await read.window(last=most)).messages] == texts[-most:]
    with pytest.raises(InvalidInput, match="last"):
        await session.window(last=-1)


# -- pop -------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
async def test_pop_returns_the_newest_originals(memory: Memory, format: str) -> None:
    for seed in range(draws(10, quick=2)):
        session = memory.session(f"s{seed}")
        given = drawn(format, seed).items
        await session.append(copy.deepcopy(given), format=format)
        left = copy.deepcopy(given)
        while left:
            most = min(len(left), 1 + len(left) % 3)
            assert await session.pop(most) == left[-most:]
            del left[-most:]
        assert await session.pop() == await session.pop(500) == []
        assert (await session.context()).messages == []
        assert (await session.info()).message_count == len(import_messages(given, format=format))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("gone", ["erased", "excluded"])
async def test_pop_takes_one_original_of_which_the_first_part_is_gone(
    memory: Memory, format: str, gone: str
) -> None:
    for seed in range(draws(10, quick=2)):
        session = memory.session(f"{format}-{seed}")
        for item in drawn(format, seed).items:
            before = [one.id for one in (await session._stored_window()).messages]
            stored = await session.append(copy.deepcopy(item), format=format)
            if len(stored) == 1:
                continue
            assert stored[0].id is not None
            await (session.erase(stored[0].id) if gone == "erased" else session.exclude(stored[0].id))
            assert await session.pop()
            assert [one.id for one in (await session._stored_window()).messages] == before


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("source", ["ollama", "gemini"])
async def test_ids_made_for_calls_without_ids_come_back_where_they_were_given(
    memory: Memory, source: str, format: str
) -> None:
    for seed in range(draws(10, quick=3)):
        given = export_messages(import_messages(drawn(source, seed).items, format=source), format)
        session = memory.session(f"{format}-{seed}")
        await session.append(copy.deepcopy(given), format=format)
        back = (await session.history(limit=1_000)).to(format)
        if format == "plain":  # it is ours, and shows the ids that it got
            assert all(one.pop("id") for one in back)
        assert back == given


@pytest.mark.parametrize(
    "item",
    [
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
        {"role": "assistant", "content": "", "thinking": "so", "tool_calls": [{"function": {"name": "f"}}]},
        {
            "role": "assistant",
            "tool_calls": [{"id": "function_f", "type": "function", "function": {"name": "f"}}],
        },
    ],
    ids=["gemini", "ollama", "openai"],
)
async def test_the_result_of_an_interrupted_call_names_the_id_that_the_call_shows(
    memory: Memory, item: dict[str, Any]
) -> None:
    session = memory.session("s1")
    await session.append([{"role": "user", "content": "Do it."}, item])
    _, call, result = (await session.context()).to("openai")
    assert result["tool_call_id"] == call["tool_calls"][0]["id"] == "function_f"


async def test_pop_leaves_what_is_no_message_of_the_window(memory: Memory) -> None:
    session = memory.session("s1", system="be kind")
    await session.append([{"role": "user", "content": f"m{n}"} for n in range(4)])
    await session.compact(lambda _: "a summary", keep_last=1)
    await session.append({"role": "user", "content": "new", "id": "new"})
    assert await session.pop(5) == [
        {"role": "user", "content": "m3"},
        {"role": "user", "content": "new", "id": "new"},
    ]
    assert [one.text for one in (await session.context()).messages] == ["be kind", "a summary"]
    assert await session.restore("new")
    (item,) = (await session.history(ids=["new"])).items
    assert item.excluded is None
    for wrong in (0, -1, 501, True, "1", None):
        with pytest.raises(InvalidInput, match="n"):
            await session.pop(wrong)  # type: ignore[arg-type]


# -- state -----------------------------------------------------------------------------


async def test_state_changes_with_what_is_appended(memory: Memory) -> None:
    session = memory.session("s1")
    state = await session.state()
    assert (state, state.version) == ({}, ABSENT)
    await session.append(
        {"role": "user", "content": "hi"}, state={"step": 1, "a": [1]}, expected_version=ABSENT
    )
    first = await session.state()
    assert first == {"step": 1, "a": [1]}
    await session.append([], state={"step": 2, "a": None, "b": {"c": None}}, expected_version=first.version)
    second = await memory.session("s1").state()
    assert second == {"step": 2, "b": {"c": None}}
    assert second.version != first.version
    for wrong in (first.version, ABSENT):
        with pytest.raises(VersionConflict) as conflict:
            await session.append(
                {"role": "user", "content": "late"}, state={"step": 9}, expected_version=wrong
            )
        assert conflict.value.current_version == second.version
    assert [one.text for one in (await session.context()).messages] == ["hi"]
    assert await session.state() == second
    await session.append({"role": "user", "content": "more"})
    assert (await session.state()).version == second.version


async def test_state_belongs_to_its_session(memory: Memory) -> None:
    session = memory.session("s1", user="ada")
    (first,) = await session.append({"role": "user", "content": "hi"}, state={"at": "hi"})
    await session.append({"role": "user", "content": "more"}, state={"at": "more", "deep": {"x": 1}})
    early, late = await session.fork(at=first.id, session_id="early"), await session.fork(session_id="late")
    assert await early.state() == {"at": "hi"}
    assert await late.state() == {"at": "more", "deep": {"x": 1}}
    await session.erase(str(first.id))
    assert await session.state() == {"at": "more", "deep": {"x": 1}}
    assert [one.text for one in (await early.context()).messages] == []
    assert await early.state() == {"at": "hi"}
    checkpoint = await session.checkpoint()
    await session.append({"role": "user", "content": "later"}, state={"at": "later"})
    await session.roll_back(checkpoint)
    assert (await session.state())["at"] == "later"
    await session.delete()
    again = memory.session("s1", user="ada")
    assert (await again.state()).version is ABSENT


async def test_state_is_checked_before_anything_is_stored(memory: Memory) -> None:
    session = memory.session("s1")
    message = {"role": "user", "content": "hi", "id": "m1"}
    for wrong in ({"a": object()}, {"a": "x" * 70_000}, "state", [1], {1: 2}):
        with pytest.raises(InvalidInput, match="state"):
            await session.append(message, state=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="expected_version"):
        await session.append(message, state={}, expected_version="new")
    with pytest.raises(InvalidInput, match="expected_version"):
        await session.append(message, expected_version=ABSENT)
    assert await memory.sessions.get("s1") is None
    await session.append(message, state={"a": "x" * 40_000})
    with pytest.raises(InvalidInput, match="state"):
        await session.append({"role": "user", "content": "hi"}, state={"b": "x" * 40_000})
    with pytest.raises(Conflict, match="m1"):
        await session.append(message, state={"c": 1})
    assert (await session.info()).message_count == 1
    await session.end()
    with pytest.raises(Conflict, match="resume"):
        await session.append([], state={"d": 1})


async def test_messages_that_come_with_a_state_are_stored_with_it_or_not_at_all(memory: Memory) -> None:
    session = memory.session("s1")
    if not engine_of(memory).topology.archive.capabilities.atomic:
        with pytest.raises(InvalidInput, match="can store 1 at once, not 2"):
            await session.append([{"role": "user", "content": "hi"}] * 2, state={"a": 1})
        assert (await session.context()).messages == []
        return
    for number in range(5):
        state = await session.state()
        messages: list[Any] = [Message(role=Role.USER, content=f"{number}.{n}") for n in range(3)]
        await session.append(messages, state={"number": number}, expected_version=state.version)
        with pytest.raises(VersionConflict):
            await session.append(messages, state={"number": 99}, expected_version=state.version)
    assert await session.state() == {"number": 4}
    assert len((await session.context()).messages) == 15


async def test_of_writers_that_expect_one_state_one_wins(memory: Memory) -> None:
    handles = [memory.session("s1") for _ in range(4)]
    await handles[0].append([], state={"wins": []})
    for turn in range(draws(50, quick=5)):
        state = await handles[0].state()

        async def write(at: int, turn: int = turn, before: Any = state) -> bool:
            try:
                await handles[at].append(
                    {"role": "user", "content": f"{turn}.{at}"},
                    state={"wins": [*before["wins"], at]},
                    expected_version=before.version,
                )
            except VersionConflict:
                return False
            return True

        won = await asyncio.gather(*(write(at) for at in range(4)))
        assert won.count(True) == 1
        now = await handles[1].state()
        assert now["wins"] == [*state["wins"], won.index(True)]
        (last,) = (await handles[2].context(last=1)).messages
        assert last.text == f"{turn}.{won.index(True)}"


async def test_of_those_that_pop_at_once_each_gets_another_message(memory: Memory) -> None:
    session = memory.session("s1")
    await session.append([{"role": "user", "content": str(n)} for n in range(30)])
    handles = [memory.session("s1") for _ in range(3)]
    got = await asyncio.gather(*(handles[n % 3].pop(2) for n in range(12)))
    popped = [one["content"] for items in got for one in items]
    assert sorted(map(int, popped)) == list(range(6, 30))
    assert all(int(first["content"]) + 1 == int(second["content"]) for first, second in got)
    assert [one.text for one in (await session.context()).messages] == [str(n) for n in range(6)]


async def test_originals_and_state_are_in_an_export(memory: Memory, clock: Clock) -> None:
    session = memory.session("s1", user="ada")
    given = {name: drawn(name, 4).items for name in ("bedrock", "vercel", "openai_responses")}
    for name, items in given.items():
        await session.append(copy.deepcopy(items), format=name)
        await session.append([], state={name: len(items)})
    lines = [line async for line in memory.admin.export()]
    elsewhere = {"tiers": dict.fromkeys(("short", "mid", "long"), "memory://"), "embedder": "none"}
    async with Memory(elsewhere, clock=clock) as other:
        await other.admin.import_(lines)
        again = other.session("s1", user="ada")
        assert await again.state() == {name: len(items) for name, items in given.items()}
        messages = (await again.context()).messages
        for name, items in given.items():
            assert export_messages([one for one in messages if one.shape == name], name) == items
        assert await again.pop() == [given["openai_responses"][-1]]


@pytest.mark.parametrize("format", ["vercel", "claude", "openai_responses", "pydantic_ai", "llamaindex"])
async def test_a_file_of_a_framework_is_imported_once(memory: Memory, format: str) -> None:
    given = drawn(format, 6).items
    file = "\n".join(json.dumps(item) for item in given).encode()
    for new in (True, False):
        messages = read_messages(io.BytesIO(file), "chat.jsonl")
        report = await import_chat(memory, "copy", messages, lambda done, total: None)
        assert report.new == (len(messages) if new else 0)
    session = memory.session("copy")
    assert await export_chat(session, format) == given
    assert (await session.context()).to(format) == given


async def test_what_an_edit_leaves_of_a_group_still_goes_over(memory: Memory) -> None:
    session = memory.session("s1")
    items = drawn("vercel", 1).items
    stored = await session.append(copy.deepcopy(items))
    before = len(items)
    results = [one for one in stored if one.role.value == "tool"]
    assert results
    for one in results:
        await session.update(str(one.id), content="edited")
    shown = (await session.context()).to("vercel")
    outputs = [
        part.get("output", part.get("errorText"))
        for one in shown
        for part in one["parts"]
        if "toolCallId" in part
    ]
    assert outputs == ["edited"] * len(results)
    assert len(shown) == before


def test_the_blocking_twin_has_the_same_calls() -> None:
    with BlockingMemory(
        {"tiers": dict.fromkeys(("short", "mid", "long"), "memory://"), "embedder": "none"}
    ) as memory:
        session = memory.session("s1")
        item = {"role": "user", "parts": [{"text": "hi"}]}
        (stored,) = session.append(item, format="gemini", id="m1", state={"a": 1}, expected_version=ABSENT)
        assert (stored.id, stored.raw, session.state()) == ("m1", item, {"a": 1})
        assert session.context().to("gemini") == [item]
        assert session.pop(1) == [item]
