"""Messages of Anthropic's API."""

from __future__ import annotations

from typing import Any

import pytest

from memory.domain.message import Message, Role
from memory.domain.shapes import given_as, messages_of, system_of

PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
USE = {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "sky"}}
SAID = {"type": "text", "text": "so"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "blue"}


@pytest.mark.parametrize(
    "given",
    [
        {"role": "user", "content": [{"type": "text", "text": "see"}, PICTURE]},
        {"role": "user", "content": [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a"}, "title": "t"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "I look"}, USE]},
        {"role": "assistant", "content": [USE, {"type": "text", "text": "and wait"}, {**USE, "id": "c2", "input": {}}]},
        {"role": "assistant", "content": [THOUGHT, SAID]},
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}, SAID]},
        {
            "role": "assistant",
            "content": [THOUGHT, USE, {"type": "thinking", "thinking": "b", "signature": "t"}],
        },
        {"role": "user", "content": [RESULT]},
        {"role": "user", "content": [{**RESULT, "is_error": True}]},
        {"role": "user", "content": [{**RESULT, "content": [{"type": "text", "text": "blue"}, PICTURE]}]},
        {"role": "user", "content": [RESULT, {**RESULT, "tool_use_id": "c2"}, {"type": "text", "text": "and now?"}]},
        {
            "role": "assistant",
            "content": [SAID],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 3, "output_tokens": 1},
        },
    ],
)
def test_what_came_from_anthropic_goes_back_as_it_came(given: dict[str, Any]) -> None:
    assert given_as(messages_of(given), "anthropic") == [given]


def test_results_are_messages_of_their_own() -> None:
    failed, said = messages_of({"role": "user", "content": [{**RESULT, "is_error": True}, {"type": "text", "text": "and now?"}], "id": "m"})
    assert (failed.role, failed.tool_call_id, failed.text, failed.is_error, failed.id) == (Role.TOOL, "c1", "blue", True, "m")
    assert (said.role, said.text, said.id) == (Role.USER, "and now?", "m:2")


def test_calls_and_thoughts_are_what_they_are_in_every_shape() -> None:
    (message,) = messages_of({"role": "assistant", "content": [THOUGHT, USE]})
    assert (message.reasoning, message.text) == ("hm", "")
    assert [(call.id, call.name) for call in message.tool_calls] == [("c1", "look")]
    (openai,) = given_as([message], "openai")
    assert openai["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": "sky"}'}


def test_what_openai_said_is_said_to_anthropic() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}
    given = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "look up"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "blue"},
        {"role": "user", "content": "thanks"},
    ]
    messages = [message for one in given for message in messages_of(one)]
    assert given_as(messages, "anthropic") == [
        {"role": "user", "content": "look up"},
        {"role": "assistant", "content": [USE]},
        {"role": "user", "content": [RESULT, {"type": "text", "text": "thanks"}]},
    ]
    assert system_of(messages) == "be kind"
    assert system_of(messages[1:]) is None


def test_the_system_keeps_its_marks_for_caches() -> None:
    marked = {"type": "text", "text": "be kind", "cache_control": {"type": "ephemeral"}}
    messages = [Message(role=Role.SYSTEM, content=[marked]), Message(role=Role.SYSTEM, content="and curt")]
    assert system_of(messages) == [marked, {"type": "text", "text": "and curt"}]


def test_thinking_that_was_changed_is_not_given_back_as_signed() -> None:
    (message,) = messages_of({"role": "assistant", "content": [THOUGHT, SAID]})
    message.reasoning = "something else"
    assert given_as([message], "anthropic") == [{"role": "assistant", "content": [SAID]}]
