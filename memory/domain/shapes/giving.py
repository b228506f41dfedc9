"""Messages in the form of a framework."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from importlib import import_module
from typing import Any

from memory.domain import door
from memory.domain.errors import ConfigError
from memory.domain.message import Message, Role, ToolCall
from memory.domain.shapes import anthropic, langchain, openai, plain
from memory.domain.shapes.calls import distinct, is_made_up
from memory.domain.shapes.fields import Fields

_EACH = {"langchain": langchain.given, "plain": plain.given}
SHAPES = ("anthropic", "openai", *_EACH)


def given_as(
    messages: Iterable[Message], shape: str, *, foreign_reasoning: bool = True, strict: bool = False
) -> list[Fields]:
    """The messages as dicts of this shape, copies of their own (C12).

    A message that came in this shape is equal to what came, where it was not changed
    since. Of another one goes over what both know: text, calls, results, images,
    reasoning. Without `foreign_reasoning` what another framework's model thought stays
    behind: it is not signed. Anthropic's list is without system messages (`system_of`),
    and results of tools and what a user says right behind them are one message of the
    user there; LangChain's are in the form of its `message_to_dict`. OpenAI has no
    place for `is_error`.

    Other servers speak OpenAI's language with calls that have no id or no type,
    arguments that are objects, and results that name their tool alone. These are given
    back as they came, as those servers want them; with `strict` as OpenAI's own API
    wants them. Results by name have the ids of their calls in a context
    (`Session.context`) and in an export.
    """
    door.one_of("shape", shape, SHAPES)
    messages = with_distinct_calls(messages)
    if shape == "openai":
        return [
            deepcopy(openai.given(message, foreign_reasoning=foreign_reasoning, strict=strict))
            for message in messages
        ]
    if shape == "anthropic":
        return deepcopy(anthropic.given(list(messages), foreign_reasoning=foreign_reasoning))
    return [deepcopy(_EACH[shape](message, foreign_reasoning=foreign_reasoning)) for message in messages]


def with_distinct_calls(messages: Iterable[Message]) -> list[Message]:
    """The messages, with calls of one function told apart that came without ids:
    providers refuse an id that comes twice.

    Their results behind them answer the same calls as before.
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


def langchain_messages(messages: Iterable[Message]) -> list[Any]:
    """The messages as LangChain's own objects. Without langchain-core a `ConfigError`
    says what to install.
    """
    try:
        theirs = import_module("langchain_core.messages")
    except ImportError as exc:
        raise ConfigError(
            "LangChain's message objects need langchain-core: pip install langchain-core, or take given_as(…, 'langchain')"
        ) from exc
    return list(theirs.messages_from_dict(given_as(messages, "langchain")))
