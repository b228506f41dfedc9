"""Messages of Anthropic's API: blocks in their order, results of tools among what a
user says.
"""

from __future__ import annotations

from typing import Any

import pytest

from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role, ToolCall
from memory.domain.shapes import export_messages, import_message, system_prompt
from memory.ports.contract.cells import cells

TEXT = {"type": "text", "text": "see"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "QUJD"}}
PAPER = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "QUJD"},
    "title": "a paper",
}
LOOK = {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "sky", "deep": [1, 2.5, None, "é"]}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"}
HIDDEN = {"type": "redacted_thinking", "data": "aGlkZGVu"}
FOUND = {"type": "tool_result", "tool_use_id": "c1", "content": "blue"}


@cells(
    "given",
    [
        {"role": "user", "content": "hi"},
        {"role": "user", "content": [TEXT, IMAGE, PAPER]},
        {"role": "user", "content": [{**TEXT, "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": []},
        {"role": "assistant", "content": [TEXT]},
        {"role": "assistant", "content": [LOOK]},
        {"role": "assistant", "content": [{**LOOK, "input": {}, "cache_control": {"type": "ephemeral"}}]},
        {
            "role": "assistant",
            "content": [
                THOUGHT,
                HIDDEN,
                TEXT,
                LOOK,
                {**THOUGHT, "thinking": "hm\n\nhm"},
                TEXT,
                {**LOOK, "id": "c2"},
            ],
        },
        {"role": "assistant", "content": [{**THOUGHT, "thinking": ""}, TEXT]},
        {"role": "assistant", "content": [HIDDEN]},
        {
            "role": "assistant",
            "content": [
                {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
                TEXT,
            ],
        },
        {"role": "user", "content": [FOUND]},
        {
            "role": "user",
            "content": [{**FOUND, "is_error": True}, {**FOUND, "tool_use_id": "c2", "is_error": False}, TEXT],
        },
        {"role": "user", "content": [TEXT, FOUND, TEXT, IMAGE, {**FOUND, "content": [TEXT, IMAGE]}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1"},
                {**FOUND, "content": ""},
                {**FOUND, "content": []},
            ],
        },
        {
            "role": "user",
            "content": [{**FOUND, "cache_control": {"type": "ephemeral"}}],
            "id": "u1",
            "time": "2026-01-31T09:30:00Z",
            "mine": 1,
        },
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [TEXT],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 3, "output_tokens": 2},
        },
    ],
    shared=True,
)
def test_what_came_from_anthropic_goes_back_as_it_came(given: dict[str, Any]) -> None:
    assert export_messages(import_message(given), "anthropic") == [given]


def test_text_calls_and_reasoning_stand_in_their_places() -> None:
    (message,) = import_message(
        {"role": "assistant", "content": [THOUGHT, TEXT, LOOK, {**THOUGHT, "thinking": "so"}]}
    )
    assert (message.role, message.text, message.reasoning) == (Role.ASSISTANT, "see", "hm\n\nso")
    assert message.tool_calls == [
        ToolCall(id="c1", name="look", arguments='{"at": "sky", "deep": [1, 2.5, null, "é"]}')
    ]
    assert message.content == [TEXT]
    (asks,) = import_message({"role": "assistant", "content": [LOOK]})
    assert asks.content == ""


@pytest.mark.behaviour("B53")
def test_each_result_is_a_message_of_its_own_with_what_is_said_behind_it() -> None:
    messages = import_message(
        {
            "role": "user",
            "id": "u1",
            "content": [FOUND, {**FOUND, "tool_use_id": "c2", "is_error": True}, TEXT],
        }
    )
    assert [(m.role, m.tool_call_id, m.text, m.is_error) for m in messages] == [
        (Role.TOOL, "c1", "blue", False),
        (Role.TOOL, "c2", "blue", True),
        (Role.USER, None, "see", False),
    ]
    assert [m.id for m in messages] == [None, None, None]


def test_a_whole_answer_brings_its_usage_and_why_it_ended() -> None:
    (message,) = import_message(
        {"role": "assistant", "content": [TEXT], "stop_reason": "end_turn", "usage": {"output_tokens": 2}}
    )
    assert (message.finish_reason, message.usage) == ("end_turn", {"output_tokens": 2})


def test_results_and_what_the_user_says_behind_them_become_one_message() -> None:
    messages = [
        Message(
            role=Role.ASSISTANT,
            tool_calls=[ToolCall(id="c1", name="look"), ToolCall(id="c2", name="look", arguments='{"a": 1}')],
        ),
        Message(role=Role.TOOL, content="one", tool_call_id="c1"),
        Message(role=Role.TOOL, content="two", tool_call_id="c2", is_error=True),
        Message(role=Role.USER, content="go on"),
        Message(role=Role.USER, content="please"),
    ]
    assert export_messages(messages, "anthropic") == [
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "c1", "name": "look", "input": {}},
                {"type": "tool_use", "id": "c2", "name": "look", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "one"},
                {"type": "tool_result", "tool_use_id": "c2", "content": "two", "is_error": True},
                {"type": "text", "text": "go on"},
            ],
        },
        {"role": "user", "content": "please"},
    ]


def test_arguments_that_are_no_object_go_out_as_text_under_one_name() -> None:
    for written in ("{broken", "[1]", "NaN", '"text"', "{" * 5_000):
        message = Message(role=Role.ASSISTANT, tool_calls=[ToolCall(id="c1", name="look", arguments=written)])
        assert export_messages([message], "anthropic")[0]["content"][0]["input"] == {"arguments": written}
    nothing = Message(role=Role.ASSISTANT, tool_calls=[ToolCall(id="c1", name="look", arguments="")])
    assert export_messages([nothing], "anthropic")[0]["content"][0]["input"] == {}


def test_system_messages_stand_apart() -> None:
    system, user = Message(role=Role.SYSTEM, content="be kind"), Message(role=Role.USER, content="hi")
    cached = {"type": "text", "text": "a book", "cache_control": {"type": "ephemeral"}}
    (book,) = import_message({"role": "system", "content": [cached]})
    assert export_messages([system, user, book], "anthropic") == [{"role": "user", "content": "hi"}]
    assert (
        system_prompt([system, user, Message(role=Role.SYSTEM, content="be brief")]) == "be kind\n\nbe brief"
    )
    assert system_prompt([system, book]) == [{"type": "text", "text": "be kind"}, cached]
    assert system_prompt([user, Message(role=Role.SYSTEM)]) is None


def test_thinking_that_was_changed_since_is_left_out_and_what_was_added_comes_behind() -> None:
    (message,) = import_message({"role": "assistant", "content": [THOUGHT, TEXT, LOOK]})
    message.reasoning, message.content = "something else", "changed"
    message.tool_calls = [*message.tool_calls, ToolCall(id="c2", name="see")]
    assert export_messages([message], "anthropic")[0]["content"] == [
        {"type": "text", "text": "changed"},
        LOOK,
        {"type": "tool_use", "id": "c2", "name": "see", "input": {}},
    ]


@cells(
    "field, given",
    [
        (
            "content[1].name",
            {"role": "assistant", "content": [TEXT, {"type": "tool_use", "id": "c1", "input": {}}]},
        ),
        ("content[0].input", {"role": "assistant", "content": [{**LOOK, "input": [1]}]}),
        ("tool_use_id", {"role": "user", "content": [{**FOUND, "tool_use_id": 7}]}),
        ("is_error", {"role": "user", "content": [{**FOUND, "is_error": "yes"}]}),
        ("content", {"role": "user", "content": [{**FOUND, "content": 7}]}),
    ],
    shared=True,
)
def test_what_is_wrong_in_a_block_is_refused_by_the_name_of_its_field(
    field: str, given: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput) as refused:
        import_message(given)
    assert refused.value.field == field


def test_what_the_system_is_told_is_a_copy() -> None:
    message = Message(role=Role.SYSTEM, content=[{"type": "text", "text": "be kind"}])
    told = system_prompt([message])
    assert isinstance(told, list)
    told[0]["text"] = "changed"
    assert message.text == "be kind"
