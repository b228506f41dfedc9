"""Messages of OpenAI's chat completions."""

from __future__ import annotations

from typing import Any

from memory.domain.message import Role, ToolCall
from memory.domain.shapes import export_messages, import_message
from memory.ports.contract.cells import cells

IMAGE = {"type": "image_url", "image_url": {"url": "https://a/b.png", "detail": "low"}}
LOOK = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}


@cells(
    "given",
    [
        {"role": "user", "content": "hi"},
        {"role": "user", "content": "hi", "name": "bo", "other": 1},
        {"role": "developer", "content": "be kind"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "see"}, IMAGE],
        },
        {
            "role": "user",
            "content": [{"type": "text", "text": "see", "cache_control": {"type": "ephemeral"}}],
        },
        {"role": "user", "content": ["see", IMAGE]},
        {"role": "assistant", "content": None, "tool_calls": [LOOK]},
        {
            "role": "assistant",
            "content": "so",
            "refusal": None,
            "audio": None,
            "tool_calls": None,
            "function_call": None,
            "annotations": [],
        },
        {"role": "assistant", "tool_calls": [LOOK, {**LOOK, "id": "c2", "index": 1}]},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "run", "input": "1 + 1"}}],
        },
        {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "not JSON"}},
        {"role": "function", "name": "look", "content": "blue"},
        {"role": "tool", "tool_call_id": "c1", "content": "blue"},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "blue"}]},
        {"role": "assistant", "content": "so", "reasoning_content": "hm"},
    ],
    shared=True,
)
def test_what_came_from_openai_goes_back_as_it_came(given: dict[str, Any]) -> None:
    assert export_messages(import_message(given), "openai") == [given]


def test_the_arguments_of_a_call_are_kept_to_the_letter() -> None:
    (message,) = import_message({"role": "assistant", "content": None, "tool_calls": [LOOK]})
    assert message.tool_calls == [ToolCall(id="c1", name="look", arguments='{"at": "sky"}')]
    assert message.content == ""


def test_a_developer_speaks_for_the_system() -> None:
    assert [message.role for message in import_message({"role": "developer", "content": "be kind"})] == [
        Role.SYSTEM
    ]


def test_a_result_of_a_function_belongs_to_the_call_of_its_name() -> None:
    (asked,) = import_message(
        {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}}
    )
    (found,) = import_message({"role": "function", "name": "look", "content": "blue"})
    assert [call.id for call in asked.tool_calls] == [found.tool_call_id]
    assert found.role is Role.TOOL


def test_what_was_changed_since_goes_out_as_it_is_now() -> None:
    (message,) = import_message({"role": "assistant", "content": "so", "tool_calls": [LOOK], "other": 1})
    message.content, message.tool_calls = "not so", []
    assert export_messages([message], "openai") == [{"role": "assistant", "content": "not so", "other": 1}]


def test_a_plain_message_tells_openai_nothing_of_ours() -> None:
    (message,) = import_message(
        {
            "role": "user",
            "content": "hi",
            "id": "u1",
            "at": "2026-01-31T09:30:00Z",
            "metadata": {"a": 1},
            "tokens": 3,
        }
    )
    assert export_messages([message], "openai") == [{"role": "user", "content": "hi"}]
