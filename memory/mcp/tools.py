"""How a tool is declared, and how a call of it is checked, made and answered."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from mcp_types import CallToolResult, TextContent, ToolAnnotations
from mcp_types import Tool as ToolListing
from pydantic import BaseModel

from memory.domain.corrections import did_you_mean
from memory.domain.error_table import code_of, rule_of, text_without_details
from memory.domain.errors import InvalidInput, MemoryTiersError
from memory.domain.escape import one_line
from memory.domain.model_errors import in_json_words
from memory.mcp.arguments import check_arguments, input_schema
from memory.mcp.callers import Caller
from memory.mcp.rendering import Answer, cut_text, frame_answer

log = logging.getLogger(__name__)

ERROR_TOKENS = 1_000
"""The most tokens of an error."""
ERROR_KEY = "memory-tiers/error"
"""The key of an error's code and field in the `_meta` of a result, for programs."""
ADVICE: Mapping[str, str] = {
    "not_found": "Take the id from search_memory, list_memories or append_messages",
    "forbidden": "The configuration of the server allows no more; tell its owner what you need",
    "conflict": (
        "Read the stored one with get_memory, and change it with update_memory; if it is gone, pass another"
        " key"
    ),
}
"""Advice for a model, by the code of an error. Other errors give it themselves."""
GUESSES: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("delete", "remove", "forget", "erase", "archive"), ("forget_memory", "retire_memory")),
    **dict.fromkeys(("save", "store", "remember", "create", "write", "memorize", "put"), ("add_memory",)),
    **dict.fromkeys(("recall", "find", "query", "retrieve", "lookup", "ask"), ("search_memory",)),
    **dict.fromkeys(("edit", "change", "modify", "correct"), ("update_memory",)),
    **dict.fromkeys(("read", "fetch", "open"), ("get_memory",)),
}
"""The tools that models mean by the first word of a guessed name, the best first."""
_AGAIN = "Try again in a moment, with the same key or request_id"


@dataclass(frozen=True)
class Call:
    """One call of a tool: who makes it, and how long its answer may be."""

    caller: Caller
    budget: int
    """The most tokens of the answer."""


@dataclass(frozen=True)
class ToolDefinition:
    """A tool: its description for clients, and the function that answers a call.

    `run` gets the call and the checked arguments, an instance of `arguments`. It raises
    errors of the memory, which become error results.
    """

    name: str
    title: str
    description: str
    arguments: type[BaseModel]
    answer: type[BaseModel]
    run: Callable[[Call, Any], Awaitable[Answer]]
    example: Mapping[str, Any] = field(default_factory=dict)
    writes: bool = False
    is_destructive: bool = False
    is_idempotent: bool = True
    advice: Mapping[str, str] = field(default_factory=dict)
    """Advice by the code of an error, where `ADVICE` does not fit."""

    def listing(self) -> ToolListing:
        """Return the tool as a client lists it."""
        return ToolListing(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema={**input_schema(self.arguments), "examples": [dict(self.example)]},
            output_schema=input_schema(self.answer),
            annotations=ToolAnnotations(
                title=self.title,
                read_only_hint=not self.writes,
                destructive_hint=self.is_destructive,
                idempotent_hint=self.is_idempotent,
                open_world_hint=False,
            ),
        )

    def text_of(self, answer: Answer) -> str:
        """Return the text of an answer."""
        return frame_answer(self.name, answer)

    def result_of(self, error: Exception) -> CallToolResult:
        """Return the result of a call that failed, with what to call next."""
        advice = self.advice.get(code_of(error))
        if advice is None and code_of(error) == InvalidInput.code:
            example = json.dumps(self.example, ensure_ascii=False)
            advice = f"Correct it, and call {self.name} again, such as {example}"
        return error_result(error, advice)


async def call_tool(
    definition: ToolDefinition, arguments: Mapping[str, Any], caller: Caller, budget: int
) -> CallToolResult:
    """Check the arguments of a call, make it, and return its answer.

    Every failure becomes an error result, so that the model can correct the call.
    """
    try:
        checked = check_arguments(definition.name, definition.arguments, arguments, definition.example)
        answer = await definition.run(Call(caller, budget), checked)
    except Exception as error:  # noqa: BLE001 - a model gets an answer to every call
        caller.note_error(error)
        return definition.result_of(error)
    return CallToolResult(
        content=[TextContent(type="text", text=definition.text_of(answer))],
        structured_content=answer.data,
    )


def error_result(error: Exception, advice: str | None = None) -> CallToolResult:
    """Return an error as a result with its code. Unexpected ones go to the log.

    `advice` says what to do next, in place of the usual advice for the code.
    """
    told = {
        "code": code_of(error),
        "field": getattr(error, "field", None),
        "retryable": rule_of(error).retryable or None,
    }
    return CallToolResult(
        content=[TextContent(type="text", text=error_text(error, advice))],
        is_error=True,
        _meta={ERROR_KEY: {name: value for name, value in told.items() if value is not None}},
    )


def error_text(error: Exception, advice: str | None = None) -> str:
    """Return the code of an error and what to do, in one line."""
    if isinstance(error, InvalidInput):
        error = in_json_words(error)
    if isinstance(error, MemoryTiersError):
        if advice is None:
            advice = ADVICE.get(error.code, _AGAIN if rule_of(error).retryable else "")
        text = cut_text(one_line(text_without_details(error)), ERROR_TOKENS).rstrip(".")
        return f"{error.code}: {text}. {advice}".rstrip(". ") + "."
    reference = uuid4().hex
    log.error("a call failed: reference %s", reference, exc_info=error)
    return (
        f"{code_of(error)}: the call failed, and the log of the server has the reason under {reference}. Try"
        " it once more, then tell the owner of the server"
    )


def unknown_tool(name: str, known: Iterable[str]) -> CallToolResult:
    """Return the error result for a tool that does not exist, with the nearest name."""
    names = list(known)
    verb = re.split(r"[^a-z]", re.sub("(?<=[a-z])(?=[A-Z])", "_", name[:80]).lower())[0]
    meant = next((one for one in GUESSES.get(verb, ()) if one in names), None)
    hint = f"; did you mean '{meant}'?" if meant else did_you_mean(name, names) or "."
    text = f"unknown_tool: {one_line(name[:80])!r} is no tool{hint} Tools: {', '.join(names)}"
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        is_error=True,
        _meta={ERROR_KEY: {"code": "unknown_tool"}},
    )
