"""A tool for a model, in the formats of model makers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from memory.domain import validation

ToolFormat = Literal["openai", "anthropic"]


def export_tool(
    name: str, description: str, parameters: Mapping[str, Any], format: ToolFormat
) -> dict[str, Any]:
    """Return the tool as OpenAI or Anthropic takes it.

    `parameters` is a JSON Schema of an object.
    """
    if validation.one_of("format", format, ("openai", "anthropic")) == "openai":
        return {
            "type": "function",
            "function": {"name": name, "description": description, "parameters": dict(parameters)},
        }
    return {"name": name, "description": description, "input_schema": dict(parameters)}
