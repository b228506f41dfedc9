"""Convert messages to the format of a library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from importlib import import_module
from itertools import groupby
from typing import Any

from memory.domain import validation
from memory.domain.errors import ConfigError
from memory.domain.message import Message, Role, ToolCall
from memory.domain.shapes import anthropic, langchain, openai, plain
from memory.domain.shapes.content_parts import UNSPOKEN, is_lost
from memory.domain.shapes.fields import Fields
from memory.domain.shapes.originals import restore
from memory.domain.shapes.registry import FORMATS, KEPT_WHOLE
from memory.domain.shapes.tool_calls import distinct, is_made_up

_EACH = {"langchain": langchain.to_fields, "plain": plain.to_fields}
_WITHOUT_SYSTEM = {"anthropic", "bedrock", "gemini", "adk", "claude"}
"""Formats whose system text is an argument of its own (see `system_prompt`)."""
_WITHOUT_ERRORS = {"openai", "ollama"}
_WITHOUT_REASONING = {"openai_responses"}
"""A reasoning item has an id that only OpenAI's server gives."""


class ExportedMessages(list[Fields]):
    """Messages in the format of a library.

    `without_equivalent` lists the parts that this format cannot hold, such as
    `messages[3].content[1]: document`. It is empty for messages that were appended in
    this format and not changed.
    """

    def __init__(self, messages: Iterable[Fields] = (), without_equivalent: Iterable[str] = ()) -> None:
        super().__init__(messages)
        self.without_equivalent = list(without_equivalent)


def export_messages(
    messages: Iterable[Message], format: str, *, foreign_reasoning: bool = True, strict: bool = False
) -> ExportedMessages:
    """Return the messages as dicts in the format of a library; the dicts are copies.

    A message that was appended in this format is returned equal, unless it was changed
    since. A message of another format keeps its role, text, calls, results, images and
    reasoning. `without_equivalent` of the result lists the rest.

    The lists of Anthropic, Bedrock, Gemini, ADK and Claude transcripts have no system
    messages; `system_prompt` returns their text. In these formats, results of tools are
    joined with the user's message after them. LangChain's dicts are those of its
    `message_to_dict`.

    Args:
        messages: Messages of a context, a history or a provider.
        format: One of `FORMATS`.
        foreign_reasoning: Whether to export the reasoning of other libraries' models,
            which is not signed.
        strict: Export calls as OpenAI's own API accepts them. Messages of other servers
            may have calls without an id or a type, arguments that are objects, and
            results that name only their tool. Without `strict` these are not changed.

    Raises:
        InvalidInput: There is no such format.
    """
    validation.one_of("format", format, FORMATS)
    given = list(messages)
    restored = restore(given, format) if format in KEPT_WHOLE else {}
    whole = {at for _, members in restored.values() for at in members}
    lost: list[str] = []
    run: list[Message] = []
    found: list[Fields] = []
    for at, message in enumerate(with_distinct_calls(_with_answered_calls(given, format))):
        if at not in whole:
            lost += [f"messages[{at}]{one}" for one in _lost_of(message, format, foreign_reasoning)]
            if not _says_nothing(message, format):
                run.append(message)
        elif at in restored:
            found += [*_convert_run(run, format, foreign_reasoning, strict), restored[at][0]]
            run = []
    return ExportedMessages([*found, *_convert_run(run, format, foreign_reasoning, strict)], lost)


def export_originals(messages: Sequence[Message]) -> list[Fields]:
    """Return each message in the format that it came in, in order.

    An id that the caller did not give is left out.
    """
    given = [
        message if message.extra.get("fields", {}).get("id") else message.model_copy(update={"id": None})
        for message in messages
    ]
    found: list[Fields] = []
    for shape, run in groupby(given, key=lambda message: message.shape):
        found += export_messages(run, shape if shape in FORMATS else "plain")
    return found


def _convert_run(run: Sequence[Message], format: str, foreign_reasoning: bool, strict: bool) -> list[Fields]:
    if not run:
        return []
    if format in KEPT_WHOLE:
        return deepcopy(KEPT_WHOLE[format].to_fields(run, foreign_reasoning=foreign_reasoning))
    if format == "openai":
        return [
            deepcopy(openai.to_fields(message, foreign_reasoning=foreign_reasoning, strict=strict))
            for message in run
        ]
    if format == "anthropic":
        return deepcopy(anthropic.to_fields(run, foreign_reasoning=foreign_reasoning))
    return [deepcopy(_EACH[format](message, foreign_reasoning=foreign_reasoning)) for message in run]


def _with_answered_calls(messages: Iterable[Message], format: str) -> list[Message]:
    """Return the messages with the ids of calls in results that only name their tool.

    Other formats need the ids. In its own format, such a result stays as it came. A
    plain message may be one of OpenAI without special fields.
    """
    own = {format, "plain"} if format == "openai" else {format}
    waiting: list[ToolCall] = []
    found: list[Message] = []
    for message in messages:
        if message.tool_calls:
            waiting = [*message.tool_calls]
        elif message.role is Role.TOOL:
            names = {call.id: call for call in waiting}
            call = names.get(message.tool_call_id or "") or next(
                (one for one in waiting if message.name in (None, one.name)), None
            )
            if call is not None:
                waiting.remove(call)
                if message.tool_call_id is None and message.shape not in own:
                    message = message.model_copy(update={"tool_call_id": call.id})
        found.append(message)
    return found


def _says_nothing(message: Message, format: str) -> bool:
    """Return whether a message of another format has nothing that a model is sent."""
    if message.shape == format or message.shape not in KEPT_WHOLE or message.role is Role.TOOL:
        return False
    parts = [] if isinstance(message.content, str) else message.content
    said = message.content if isinstance(message.content, str) else ""
    return not (said or message.tool_calls or message.reasoning) and all(
        part["type"] in UNSPOKEN for part in parts
    )


def _lost_of(message: Message, format: str, foreign_reasoning: bool) -> list[str]:
    """Return what of the message has no equivalent in another format."""
    if message.role is Role.SYSTEM and format in _WITHOUT_SYSTEM:
        return [": a system message. Pass `memory.formats.system_prompt(messages)` to the model"]
    if message.shape == format:
        return []
    parts = [] if isinstance(message.content, str) else message.content
    found = [
        f".content[{n}]: {part.get('type', 'part')}"
        for n, part in enumerate(parts)
        if is_lost(part, format, message.role)
    ]
    if not found and _says_nothing(message, format):
        found.append(f": an item of {message.shape} that says nothing")
    if message.is_error and format in _WITHOUT_ERRORS:
        found.append(".is_error")
    if message.reasoning and foreign_reasoning and format in _WITHOUT_REASONING:
        found.append(".reasoning")
    return found


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
