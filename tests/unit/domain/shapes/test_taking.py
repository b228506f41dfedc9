"""One given message: what is taken, and what is refused by the name of its field."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role, ToolCall
from memory.domain.shapes import import_message
from memory.ports.contract.cells import cells

WHEN = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)


def test_a_plain_message_has_its_fields_where_ours_has_them() -> None:
    (message,) = import_message(
        {
            "role": "assistant",
            "content": "full",
            "id": "a1",
            "time": WHEN,
            "name": "bo",
            "reasoning": "so",
            "usage": {"total": 7},
            "finish_reason": "stop",
        }
    )
    assert (message.role, message.content, message.id, message.at, message.name) == (
        Role.ASSISTANT,
        "full",
        "a1",
        WHEN,
        "bo",
    )
    assert (message.reasoning, message.usage, message.finish_reason, message.shape) == (
        "so",
        {"total": 7},
        "stop",
        "plain",
    )


def test_calls_in_our_own_form_and_their_results_are_taken() -> None:
    (asked,) = import_message(
        {
            "role": "assistant",
            "content": "",
            "id": "a1",
            "tool_calls": [{"id": "c1", "name": "look", "arguments": "{}"}],
        }
    )
    (found,) = import_message({"role": "tool", "content": "found", "tool_call_id": "c1", "id": "t1"})
    assert asked.tool_calls == [ToolCall(id="c1", name="look", arguments="{}")]
    assert (found.role, found.content, found.tool_call_id) == (Role.TOOL, "found", "c1")


@cells(
    "field, given",
    [
        ("role", {"role": "nobody", "content": "x"}),
        ("role", {"content": "x"}),
        ("role", {"role": None, "content": "x"}),
        ("content", {"role": "user", "content": 7}),
        ("content", {"role": "user", "content": 0}),
        ("content", {"role": "user", "content": {}}),
        ("content", {"role": "user", "content": "a\x00b"}),
        ("content", {"role": "user", "content": "\ud800"}),
        ("content[0]", {"role": "user", "content": [7]}),
        ("content[0].type", {"role": "user", "content": [{"text": "x", "more": 1}]}),
        ("content[0].text", {"role": "user", "content": [{"type": "text", "text": b"x"}]}),
        ("content[0].text", {"role": "user", "content": [{"type": "text", "text": "\x00"}]}),
        ("id", {"role": "user", "content": "x", "id": ""}),
        ("id", {"role": "user", "content": "x", "id": 7}),
        ("id", {"role": "user", "content": "x", "id": "i" * 513}),
        ("tool_calls", {"role": "assistant", "content": "", "tool_calls": "look"}),
        ("tool_calls", {"role": "assistant", "content": "", "tool_calls": {}}),
        ("tool_calls[0]", {"role": "assistant", "content": "", "tool_calls": ["look"]}),
        ("tool_calls[0].name", {"role": "assistant", "content": "", "tool_calls": [{"id": "c1"}]}),
        (
            "tool_calls[0].arguments",
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "c1", "name": "look", "arguments": 7}],
            },
        ),
        (
            "tool_calls[0].function",
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": "look"}]},
        ),
        ("tool_call_id", {"role": "tool", "content": "x", "tool_call_id": 7}),
        ("is_error", {"role": "tool", "content": "x", "is_error": "yes"}),
        ("tokens", {"role": "user", "content": "x", "tokens": -1}),
        ("metadata", {"role": "user", "content": "x", "metadata": []}),
        ("usage", {"role": "assistant", "content": "x", "usage": "many"}),
        ("at", {"role": "user", "content": "x", "at": datetime(2026, 1, 31)}),
        ("time", {"role": "user", "content": "x", "time": "yesterday"}),
        ("message", {"role": "user", "content": "x" * (32 * 1024 * 1024 + 1)}),
        (
            "message",
            {"role": "user", "content": ["x" * 60_000] * 20},
        ),  # none of which is stored apart from the message
        ("name", {"role": "user", "content": "x", "name": "x" * 65_537}),
        ("message", 7),
        ("message", "hello"),
        ("message", None),
        ("message", [{"role": "user", "content": "x"}]),
        ("message", {7: "x", "role": "user"}),
    ],
    shared=True,
)
def test_what_is_wrong_is_refused_by_the_name_of_its_field(field: str, given: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        import_message(given)
    assert refused.value.field == field


def test_nothing_of_what_was_given_is_shared_with_what_was_taken() -> None:
    given: dict[str, Any] = {
        "role": "user",
        "content": [{"type": "text", "text": "x"}],
        "metadata": {"a": [1]},
        "other": {"b": [1]},
    }
    (message,) = import_message(given)
    given["content"][0]["text"], given["metadata"]["a"], given["other"]["b"] = "y", [2], [2]
    assert (message.text, message.metadata, message.extra["fields"]) == (
        "x",
        {"a": [1]},
        {"other": {"b": [1]}},
    )


def test_our_own_message_and_its_dump_are_taken_as_copies() -> None:
    message = Message(
        role=Role.USER,
        content=[{"type": "text", "text": "x"}],
        id="u1",
        at=WHEN,
        metadata={"a": [1]},
        is_summary=True,
    )
    for given in (message, message.model_dump(), message.model_dump(mode="json")):
        (taken,) = import_message(given)
        assert taken == message
        assert taken is not message
        assert isinstance(taken.content, list)
        taken.content[0]["text"] = "y"
    assert message.text == "x"


@cells(
    "field, changed",
    [
        ("role", {"role": "nobody"}),
        ("id", {"id": ""}),
        ("content", {"content": "\x00"}),
        ("content[0].type", {"content": [{}]}),
        ("at", {"at": datetime(2026, 1, 31)}),
        ("tool_calls[0].id", {"tool_calls": [{"name": "look"}]}),
        ("shape", {"shape": 7}),
    ],
    shared=True,
)
def test_our_own_message_is_checked_like_any_other(field: str, changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        import_message({**Message(role=Role.USER, content="x").model_dump(), **changed})
    assert refused.value.field == field
