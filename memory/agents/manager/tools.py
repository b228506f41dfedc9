"""The manager's tools for a model: callables with a schema for each supported API."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory.domain.corrections import explain_arguments, explain_guesses
from memory.domain.errors import InvalidInput
from memory.domain.shapes.tools import ToolFormat, export_tool
from memory.orchestrator.storage.callbacks import invoke


@explain_guesses
@dataclass(frozen=True)
class Tool:
    """A named callable: `await tool(query="…")`.

    `parameters` is a JSON Schema of an object.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Callable[..., Any]

    async def __call__(self, **arguments: Any) -> Any:
        """Call the function.

        Raises:
            InvalidInput: For an argument that the schema does not know, or a missing
                one.
        """
        known = self.parameters["properties"]
        for name in arguments:
            if name not in known:
                raise InvalidInput(name, f"is not an argument of {self.name}; there are {', '.join(known)}")
        for name in self.parameters.get("required", ()):
            if name not in arguments:
                raise InvalidInput(name, f"is missing: {self.name} needs it")
        return await invoke(self.function, **arguments)

    def schema(self, format: ToolFormat = "openai") -> dict[str, Any]:
        """Return the tool in the format of OpenAI's API, or of Anthropic's."""
        return export_tool(self.name, self.description, self.parameters, format)


_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The tool names that APIs accept."""


def tool_name(field: str, name: object) -> str:
    """Validate the name of one of the manager's tools."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidInput(field, "must have 1 to 64 characters, each one of A-Z, a-z, 0-9, _ and -")
    return name


def distinct(tools: Sequence[Any]) -> list[Any]:
    """Return the tools; raise `InvalidInput` if two have the same name.

    APIs reject duplicates, and only the first of them could be called.
    """
    if other := next((tool for tool in tools if not isinstance(getattr(tool, "name", None), str)), None):
        raise InvalidInput(
            "tools",
            f"get_tools of a store must return Tools, each with a name, not {type(other).__name__}",
        )
    names = [tool.name for tool in tools]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidInput(
            "tools",
            f"two tools are named {twice!r}. Give one another name (SearchTool(name=…), AddTool(name=…))",
        )
    return list(tools)


SEARCH = (
    "Search long-term memory for what is known: facts, preferences, decisions and events of earlier"
    " conversations."
)
ADD = (
    "Keep something in long-term memory that will be worth knowing in later conversations: one entry for each"
    " fact, in words that stand alone."
)


@explain_arguments
@dataclass(frozen=True, slots=True)
class SearchTool:
    """Settings of the tool that searches.

    With `stores` (names, or the stores themselves) it reaches only these.
    """

    name: str = "search_memory"
    description: str = SEARCH
    stores: Sequence[Any] | None = None


@explain_arguments
@dataclass(frozen=True, slots=True)
class AddTool:
    """Settings of the tool that adds entries.

    With `stores` (names, or the stores themselves) it writes only to these. With
    `wait_for_writes=False` it answers at once and the manager writes in the background.
    Failures are then logged, and `flush` and `close` wait for the writes.
    """

    name: str = "add_memory"
    description: str = ADD
    stores: Sequence[Any] | None = None
    wait_for_writes: bool = True


def tool_description(description: str, stores: Sequence[Any]) -> str:
    """Append the list of stores that have a description to a tool's description."""
    lines = [f"- {store.name}: {store.description}" for store in stores if store.description]
    if not lines:
        return description
    advice = (
        "To target one or more memory stores by name, list them in `stores`; without it all are meant."
        " Stores:"
    )
    return "\n".join([description, advice, *lines])


def parameters(required: Mapping[str, Any], more: Mapping[str, Any], stores: Sequence[Any]) -> dict[str, Any]:
    """Return the schema of a tool's arguments, with the names of its stores."""
    named = {
        "type": "array",
        "items": {"type": "string"},
        "description": f"Names of memory stores: {', '.join(store.name for store in stores)}.",
    }
    return {
        "type": "object",
        "properties": {**required, **more, "stores": named},
        "required": list(required),
        "additionalProperties": False,
    }
