"""LangChain's messages, as its dictionaries and as objects of its kind."""

from __future__ import annotations

import sys
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest

from memory.domain.errors import ConfigError, InvalidInput
from memory.domain.message import Role
from memory.domain.shapes import given_as, langchain_messages, messages_of

BASE: dict[str, Any] = {"additional_kwargs": {}, "response_metadata": {}, "name": None, "id": None}
BROKEN = {"name": None, "args": "{", "id": "c2", "error": "no JSON", "type": "invalid_tool_call"}
CALL = {"name": "look", "args": {"at": "sky"}, "id": "c1", "type": "tool_call"}


def dictionary(kind: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": kind, "data": {"content": content, "type": kind, **BASE, **more}}


@pytest.mark.parametrize(
    "given",
    [
        dictionary("human", "hi", id="u1"),
        dictionary("human", [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "https://a/b.png"}}]),
        dictionary("system", "be kind", example=False),
        dictionary("ai", "", tool_calls=[CALL], invalid_tool_calls=[], usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
        dictionary("ai", "so", tool_calls=[], invalid_tool_calls=[BROKEN]),
        dictionary("ai", "so", response_metadata={"finish_reason": "stop", "model_name": "m"}, tool_calls=[], invalid_tool_calls=[]),
        dictionary("tool", "blue", tool_call_id="c1", artifact=None, status="error"),
    ],
)
def test_what_came_from_langchain_goes_back_as_it_came(given: dict[str, Any]) -> None:
    assert given_as(messages_of(given), "langchain") == [given]


@dataclass
class AIMessage:
    """As LangChain's objects look from outside."""

    content: str
    type: str = "ai"
    id: str | None = None
    name: str | None = None
    additional_kwargs: dict[str, Any] = field(default_factory=dict)
    response_metadata: dict[str, Any] = field(default_factory=dict)
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    invalid_tool_calls: list[dict[str, Any]] = field(default_factory=list)
    usage_metadata: dict[str, Any] | None = None


def test_objects_are_taken_by_what_they_have() -> None:
    given = AIMessage("so", id="a1", tool_calls=[deepcopy(CALL)], response_metadata={"stop_reason": "tool_use"})
    (message,) = messages_of(given)
    assert (message.role, message.text, message.id, message.finish_reason) == (Role.ASSISTANT, "so", "a1", "tool_use")
    assert [(call.id, call.name, call.arguments) for call in message.tool_calls] == [("c1", "look", '{"at": "sky"}')]
    given.tool_calls[0]["args"]["at"] = "ground"
    assert message.tool_calls[0].arguments == '{"at": "sky"}', "nothing of the caller's is held (C12)"


def test_what_others_said_is_said_to_langchain() -> None:
    tool = {"role": "tool", "tool_call_id": "c1", "content": "blue"}
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}
    messages = [m for one in ({"role": "assistant", "content": "so", "tool_calls": [call]}, tool) for m in messages_of(one)]
    asked, answered = given_as(messages, "langchain")
    assert (asked["type"], asked["data"]["tool_calls"]) == ("ai", [CALL])
    assert (answered["type"], answered["data"]["tool_call_id"], answered["data"]["status"]) == ("tool", "c1", "success")


def test_objects_need_langchain_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_core.messages", None)
    with pytest.raises(ConfigError, match="pip install langchain-core"):
        langchain_messages(messages_of(dictionary("human", "hi")))


def test_a_message_that_is_none_of_its_kind_is_refused() -> None:
    with pytest.raises(InvalidInput, match="role"):
        messages_of({"type": "robot", "data": {"content": "x"}})
    with pytest.raises(InvalidInput):
        messages_of(dictionary("chat", "x", role="nobody"))
