"""LangChain's messages: as dictionaries, and as objects that are known by their
attributes.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from memory.domain.errors import ConfigError, InvalidInput
from memory.domain.message import Message, Role, ToolCall
from memory.domain.shapes import export_langchain, export_messages, import_message
from memory.ports.contract.cells import cells

CALL = {"name": "look", "args": {"at": "sky"}, "id": "c1", "type": "tool_call"}
BROKEN = {"name": "look", "args": "{broken", "id": "c2", "error": "no JSON", "type": "invalid_tool_call"}
RAW = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":"sky"}'}}
COUNTS = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}


def dumped(kind: str, content: Any, **data: Any) -> dict[str, Any]:
    usual = {
        "content": content,
        "additional_kwargs": {},
        "response_metadata": {},
        "type": kind,
        "name": None,
        "id": None,
    }
    if kind == "ai":
        usual |= {"tool_calls": [], "invalid_tool_calls": [], "usage_metadata": None}
    return {"type": kind, "data": {**usual, **data}}


@cells(
    "given",
    [
        dumped("human", "hi", id="u1", name="bo"),
        dumped(
            "human",
            [
                {"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": "https://a/b.png"}},
                "and",
            ],
        ),
        dumped(
            "human", [{"type": "image", "source_type": "base64", "data": "QUJD", "mime_type": "image/jpeg"}]
        ),
        dumped("system", "be kind", mine=1),
        dumped(
            "ai", "so", usage_metadata=COUNTS, response_metadata={"finish_reason": "stop", "model_name": "m"}
        ),
        dumped(
            "ai",
            "",
            tool_calls=[CALL, {**CALL, "id": None}, {**CALL, "args": {}}],
            invalid_tool_calls=[BROKEN, {**BROKEN, "name": None}],
        ),
        dumped("ai", "", tool_calls=[{"name": "look", "args": {}, "id": "c1"}]),
        dumped("ai", "", additional_kwargs={"tool_calls": [RAW]}, tool_calls=[CALL]),
        dumped("ai", "so", additional_kwargs={"reasoning_content": "hm"}),
        dumped(
            "ai",
            [
                {"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"},
                {"type": "text", "text": "see"},
                {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "sky"}},
            ],
            tool_calls=[CALL],
        ),
        dumped("tool", "blue", tool_call_id="c1", artifact=None, status="success"),
        dumped(
            "tool",
            [{"type": "text", "text": "blue"}],
            tool_call_id="c1",
            artifact={"rows": [1]},
            status="error",
        ),
        {"type": "function", "data": {"content": "blue", "name": "look", "type": "function"}},
        {"type": "chat", "data": {"content": "hi", "role": "assistant", "type": "chat"}},
        dumped("AIMessageChunk", "so", tool_calls=[], tool_call_chunks=[]),
        {"type": "ai", "data": {"content": "", "additional_kwargs": {"tool_calls": [RAW]}}},
        {"type": "human", "data": {"content": "hi"}, "beside": 1},
    ],
    shared=True,
)
def test_what_came_from_langchain_goes_back_as_it_came(given: dict[str, Any]) -> None:
    assert export_messages(import_message(given), "langchain") == [given]


def test_what_an_answer_holds_stands_in_its_place() -> None:
    (message,) = import_message(
        dumped(
            "ai",
            "so",
            id="a1",
            tool_calls=[CALL],
            invalid_tool_calls=[BROKEN],
            usage_metadata=COUNTS,
            response_metadata={"finish_reason": "stop"},
        )
    )
    assert (message.role, message.text, message.id, message.usage, message.finish_reason) == (
        Role.ASSISTANT,
        "so",
        None,
        COUNTS,
        "stop",
    )
    assert message.tool_calls == [
        ToolCall(id="c1", name="look", arguments='{"at": "sky"}'),
        ToolCall(id="c2", name="look", arguments="{broken"),
    ]


def test_calls_that_only_openais_fields_hold_are_taken() -> None:
    (message,) = import_message(
        {"type": "ai", "data": {"content": "", "additional_kwargs": {"tool_calls": [RAW]}}}
    )
    assert message.tool_calls == [ToolCall(id="c1", name="look", arguments='{"at":"sky"}')]


def test_thinking_among_the_parts_is_reasoning_and_a_repeated_call_is_no_part() -> None:
    thinking = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "see"},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {}},
    ]
    (message,) = import_message(dumped("ai", thinking, tool_calls=[CALL]))
    assert (message.reasoning, message.content) == ("hm", [{"type": "text", "text": "see"}])
    assert [part["type"] for part in export_messages([message], "anthropic")[0]["content"]] == [
        "thinking",
        "text",
        "tool_use",
    ]


@pytest.mark.parametrize(
    ("role", "kind"),
    [("human", Role.USER), ("ai", Role.ASSISTANT), ("developer", Role.SYSTEM), ("tool", Role.TOOL)],
)
def test_a_message_that_names_its_role_is_of_that_role(role: str, kind: Role) -> None:
    assert import_message({"type": "chat", "data": {"content": "hi", "role": role}})[0].role is kind


def test_objects_are_known_by_their_attributes() -> None:
    answer = SimpleNamespace(
        type="ai",
        content=[{"type": "text", "text": "see"}],
        tool_calls=[{"name": "look", "args": {}, "id": "c1"}],
        additional_kwargs={},
        response_metadata={"stop_reason": "end_turn"},
        id="a1",
        usage_metadata=COUNTS,
    )
    (message,) = import_message(answer)
    assert (message.text, message.id, message.usage, message.finish_reason) == (
        "see",
        None,
        COUNTS,
        "end_turn",
    )
    answer.content[0]["text"] = "changed"
    assert message.text == "see"
    (result,) = import_message(
        SimpleNamespace(type="tool", content="blue", tool_call_id="c1", status="error")
    )
    assert (result.role, result.tool_call_id, result.is_error) == (Role.TOOL, "c1", True)


def test_messages_of_another_shape_have_all_that_langchain_expects() -> None:
    messages = [
        Message(role=Role.USER, content="hi", id="u1"),
        Message(
            role=Role.ASSISTANT,
            reasoning="hm",
            tool_calls=[
                ToolCall(id="c1", name="look", arguments='{"at": "sky"}'),
                ToolCall(id="c2", name="look", arguments="{broken"),
            ],
            usage={"prompt_tokens": 3, "completion_tokens": 2},
            finish_reason="stop",
        ),
        Message(role=Role.TOOL, content="blue", tool_call_id="c1", is_error=True),
    ]
    assert export_messages(messages, "langchain") == [
        dumped("human", "hi", id="u1"),
        dumped(
            "ai",
            "",
            additional_kwargs={"reasoning_content": "hm"},
            response_metadata={"finish_reason": "stop"},
            tool_calls=[CALL],
            invalid_tool_calls=[{**BROKEN, "error": None}],
            usage_metadata=COUNTS,
        ),
        dumped("tool", "blue", tool_call_id="c1", artifact=None, status="error"),
    ]


@cells(
    "field, given",
    [
        ("message", SimpleNamespace(type="remove", content="")),
        ("role", {"type": "remove", "data": {"content": ""}}),
        ("role", {"type": "chat", "data": {"content": "hi", "role": "nobody"}}),
        ("content", {"type": "human", "data": {"content": 7}}),
        ("tool_calls[0].args", dumped("ai", "", tool_calls=[{**CALL, "args": 7}])),
        ("tool_calls[0].name", dumped("ai", "", tool_calls=[{"args": {}, "id": "c1"}])),
        ("data.content", SimpleNamespace(type="tool", content=object(), tool_call_id="c1")),
    ],
    shared=True,
)
def test_what_is_wrong_is_refused_by_the_name_of_its_field(field: str, given: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        import_message(given)
    assert refused.value.field == field


def test_objects_are_made_where_langchain_is_installed_and_where_it_is_not_what_to_install_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = SimpleNamespace(messages_from_dict=lambda given: [("made", one["type"]) for one in given])
    monkeypatch.setitem(sys.modules, "langchain_core", SimpleNamespace(messages=made))
    monkeypatch.setitem(sys.modules, "langchain_core.messages", made)
    assert export_langchain([Message(role=Role.USER, content="hi")]) == [("made", "human")]
    monkeypatch.setitem(sys.modules, "langchain_core.messages", None)
    with pytest.raises(ConfigError, match="pip install langchain-core"):
        export_langchain([])
