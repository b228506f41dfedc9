"""Convert messages to the format of a library."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from importlib import import_module
from typing import Any

from memory.domain import validation
from memory.domain.errors import ConfigError
from memory.domain.message import Message, Role, ToolCall
from memory.domain.shapes import anthropic, langchain, openai, plain
from memory.domain.shapes.fields import Fields
from memory.domain.shapes.tool_calls import distinct, is_made_up

_EACH = {"langchain": langchain.to_fields, "plain": plain.to_fields}
FORMATS = ("anthropic", "openai", *_EACH)


def export_messages(
    messages: Iterable[Message], format: str, *, foreign_reasoning: bool = True, strict: bool = False
) -> list[Fields]:
    """Return the messages as dicts in the format of a library; the dicts are copies.

    A message that came in this format is equal to what came, unless it was changed
    since. A message of another format keeps its text, calls, results, images and
    reasoning. Anthropic's list has no system messages (see `system_prompt`), and joins
    results of tools with the user's message behind them. LangChain's dicts are those of
    its `message_to_dict`. OpenAI has no field for `is_error`.

    Args:
        messages: Messages of a context, a history or a provider.
        format: `anthropic`, `openai`, `langchain` or `plain`.
        foreign_reasoning: Whether to export the reasoning of other libraries' models,
            which is not signed.
        strict: Export calls as OpenAI's own API takes them. Other servers send calls
            without an id or a type, arguments that are objects, and results that name
            their tool alone; without `strict` these stay as they came.

    Raises:
        InvalidInput: There is no such format.
    """
    validation.one_of("format", format, FORMATS)
    messages = with_distinct_calls(messages)
    if format == "openai":
        return [
            deepcopy(openai.to_fields(message, foreign_reasoning=foreign_reasoning, strict=strict))
            for message in messages
        ]
    if format == "anthropic":
        return deepcopy(anthropic.to_fields(list(messages), foreign_reasoning=foreign_reasoning))
    return [deepcopy(_EACH[format](message, foreign_reasoning=foreign_reasoning)) for message in messages]


def with_distinct_calls(messages: Iterable[Message]) -> list[Message]:
    """Return the messages with distinct ids for calls that came without ids.

    Providers refuse an id that occurs twice. The results of these calls get the new ids
    too.
    """
    taken, renamed, found = set[str](), dict[str, list[str]](), list[Message]()
    for message in messages:
        if message.tool_calls:
            renamed, calls = {}, list[ToolCall]()
            for call in message.tool_calls:
                calls.append(distinct(call, taken) if is_made_up(call.id, call.name) else call)
                taken.add(calls[-1].id)
                renamed.setdefault(call.id, []).append(calls[-1].id)
            message = (
                message if calls == message.tool_calls else message.model_copy(update={"tool_calls": calls})
            )
        elif message.role is Role.TOOL and (names := renamed.get(message.tool_call_id or "")):
            name = names.pop(0) if len(names) > 1 else names[0]
            message = (
                message if name == message.tool_call_id else message.model_copy(update={"tool_call_id": name})
            )
        found.append(message)
    return found


def export_langchain(messages: Iterable[Message]) -> list[Any]:
    """Return the messages as LangChain's own objects.

    Raises:
        ConfigError: langchain-core is not installed.
    """
    try:
        theirs = import_module("langchain_core.messages")
    except ImportError as exc:
        raise ConfigError(
            "LangChain's message objects need langchain-core: pip install langchain-core, or call"
            " export_messages(…, 'langchain')"
        ) from exc
    return list(theirs.messages_from_dict(export_messages(messages, "langchain")))
