"""A named format refuses messages that only another format has, and names the path."""

from __future__ import annotations

from typing import Any

import pytest

from memory.domain.errors import InvalidInput
from memory.domain.shapes import FORMATS, import_message, import_messages
from memory.ports.contract.cells import cells

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USE = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
SAMPLES: dict[str, list[dict[str, Any]]] = {
    "openai": [{"role": "assistant", "content": None, "tool_calls": [CALL]}],
    "openai_responses": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "reasoning", "id": "r", "summary": []},
    ],
    "anthropic": [
        {"role": "assistant", "content": [{"type": "text", "text": "x"}, USE]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]},
    ],
    "langchain": [{"type": "human", "data": {"content": "x"}}],
    "bedrock": [{"role": "user", "content": [{"text": "x"}]}],
    "gemini": [{"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}],
    "vercel": [{"id": "u", "role": "user", "parts": [{"type": "text", "text": "x"}]}],
    "pydantic_ai": [{"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "x"}]}],
    "llamaindex": [{"role": "user", "blocks": [{"block_type": "text", "text": "x"}]}],
    "claude": [{"type": "user", "uuid": "u", "message": {"role": "user", "content": "x"}}],
}
PAIRS = [
    (named, own, number)
    for named in FORMATS
    for own, samples in SAMPLES.items()
    for number in range(len(samples))
    if named not in (own, "plain", "ollama", "adk")
]


@cells("named, own, number", PAIRS, shared=True)
def test_a_message_of_another_format_is_refused(named: str, own: str, number: int) -> None:
    sample = SAMPLES[own][number]
    assert import_message(sample) == import_message(sample, own)
    with pytest.raises(InvalidInput):
        import_message(sample, named)


def test_the_error_names_the_path_and_the_format() -> None:
    with pytest.raises(
        InvalidInput, match=r"^message\[0\]\.content\[1\]\.type: is of the format 'anthropic'"
    ):
        import_messages(SAMPLES["anthropic"][:1], format="openai")
    with pytest.raises(InvalidInput, match=r"^tool_calls: is of the format 'openai'"):
        import_message(SAMPLES["openai"][0], "openai_responses")
    with pytest.raises(InvalidInput, match=r"^type: is of the format 'openai_responses'"):
        import_message(SAMPLES["openai_responses"][1], "claude")
    with pytest.raises(InvalidInput, match=r"^parts: is of the format 'vercel'"):
        import_message(SAMPLES["vercel"][0], "gemini")


@pytest.mark.parametrize("named", ["openai", "anthropic", "openai_responses"])
def test_a_message_that_several_formats_have_is_accepted(named: str) -> None:
    (message,) = import_message({"role": "user", "content": "hello"}, named)
    assert message.text == "hello"
