"""A tool for a model, in the shapes that model makers take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from memory.domain import door

Shape = Literal["openai", "anthropic"]


def tool_as(name: str, description: str, parameters: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    """As OpenAI's API takes it, or Anthropic's; `parameters` is a JSON Schema of an
    object.
    """
    if door.one_of("shape", shape, ("openai", "anthropic")) == "openai":
        return {
            "type": "function",
            "function": {"name": name, "description": description, "parameters": dict(parameters)},
        }
    return {"name": name, "description": description, "input_schema": dict(parameters)}
