"""Convert messages of Anthropic's API.

Their content is made of blocks. Results of tools are part of user messages, and the
system text is separate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy

from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role, ToolCall
from memory.domain.shapes.blocks import Blocks, together
from memory.domain.shapes.content_parts import as_parts, content_as
from memory.domain.shapes.fields import Fields, MessageFields, content_back, given_back, own
from memory.domain.shapes.originals import is_same_original
from memory.domain.shapes.tool_calls import call_back, call_of, told_apart

_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}


def from_fields(fields: Fields) -> list[Message]:
    """Convert one message; a user message with tool results becomes several.

    They keep the order of the blocks: each result, and the texts before and after it.
    The original's id stays in the original.
    """
    given = MessageFields(fields)
    role, content, at = given.role(_ROLES), given.content(), given.moment()
    usage, finish_reason = given.look_at("usage", dict), given.look_at("stop_reason", str)
    if isinstance(content, str) or not content:
        messages = [Message(role=role, content=content, shape="anthropic")]
    else:
        messages = [
            _result(group[0]) if _is_result(group[0]) else _message_from_blocks(role, group)
            for group in _groups(content)
        ]
    if len(messages) > 1 and (bare := given.extra.get("bare")):
        raise InvalidInput(f"content[{bare[0]}]", "must be an object with a type, beside results of tools")
    for number, message in enumerate(messages, start=1):
        message.at = at
        if number > 1:
            message.extra["joined"] = True
    first = messages[0]
    first.usage, first.finish_reason = usage, finish_reason
    first.extra |= {"message": kept} if (kept := given.extra_fields()) else {}
    return messages


def to_fields(messages: Sequence[Message], *, foreign_reasoning: bool = True) -> list[Fields]:
    """Return the messages without system messages (see `system_prompt`).

    Results of tools and a user message right after them become one user message.
    """
    found: list[Fields] = []
    before: Message | None = None
    for message in messages:
        if message.role is Role.SYSTEM:
            continue
        one = _message(message, foreign_reasoning)
        if before is not None and _joins(before, message):
            found[-1]["content"] = [*as_parts(found[-1]["content"]), *as_parts(one["content"])]
        else:
            found.append(one)
        before = message
    return found


def system_prompt(messages: Iterable[Message]) -> str | list[Fields] | None:
    """Return the value of Anthropic's `system`: the text of all system messages.

    It is a list of blocks if one of them has blocks, because these may control caching.
    It is None without system messages.
    """
    system = [message for message in messages if message.role is Role.SYSTEM and message.content]
    if all(isinstance(message.content, str) for message in system):
        return "\n\n".join(message.text for message in system) or None
    return deepcopy([block for message in system for block in as_parts(content_as(message, "anthropic"))])


def _groups(blocks: list[Fields]) -> list[list[Fields]]:
    """Group the blocks: each result alone, other neighbours together."""
    groups: list[list[Fields]] = []
    for block in blocks:
        if groups and not _is_result(block) and not _is_result(groups[-1][0]):
            groups[-1].append(block)
        else:
            groups.append([block])
    return groups


def _is_result(block: Fields) -> bool:
    return bool(block["type"] == "tool_result")


def _result(block: Fields) -> Message:
    given = MessageFields({name: value for name, value in block.items() if name != "type"})
    message = Message(
        role=Role.TOOL,
        content=given.content(),
        tool_call_id=given.text("tool_use_id"),
        is_error=given.true("is_error"),
        shape="anthropic",
    )
    message.extra = given.extra_fields()
    return message


def _message_from_blocks(role: Role, blocks: list[Fields]) -> Message:
    found = Blocks()
    for number, block in enumerate(blocks):
        if block["type"] == "tool_use":
            call, kept = call_of(
                f"content[{number}]", {n: v for n, v in block.items() if n != "type"}, "input"
            )
            found.add_call(
                (
                    call,
                    {name: value for name, value in kept.items() if (name, value) != ("arguments", "object")},
                )
            )
        elif block["type"] == "thinking" and isinstance(block.get("thinking"), str):
            found.add_thinking("thinking", block)
        elif block["type"] == "redacted_thinking":
            found.add_verbatim(block)
        else:
            found.add_part(block)
    calls = [call for call, _ in told_apart(found.calls)]
    return Message(
        role=role,
        content=found.parts or "",
        reasoning=found.reasoning,
        tool_calls=calls,
        shape="anthropic",
        extra=found.extra_fields,
    )


def _message(message: Message, foreign_reasoning: bool) -> Fields:
    kept = own(message, "anthropic").get("message", {})
    role = "assistant" if message.role is Role.ASSISTANT else "user"
    if message.role is Role.TOOL:
        content: str | list[Fields] = [_result_block(message)]
    else:
        content = _content(message, foreign_reasoning)
    return {"role": role, **given_back(kept, message), **content_back(kept, content)}


def _result_block(message: Message) -> Fields:
    kept = own(message, "anthropic")
    fields = {**kept.get("fields", {}), **({"is_error": True} if message.is_error else {})}
    if message.tool_call_id is not None:
        fields["tool_use_id"] = message.tool_call_id
    return {"type": "tool_result", **fields, **content_back(kept, content_as(message, "anthropic"))}


def _content(message: Message, foreign_reasoning: bool) -> str | list[Fields]:
    kept = own(message, "anthropic")
    content = content_as(message, "anthropic")
    thinking: list[Fields] = []
    if message.reasoning and message.shape != "anthropic" and foreign_reasoning:
        thinking = [{"type": "thinking", "thinking": message.reasoning, "signature": ""}]
    if not (thinking or message.tool_calls or "blocks" in kept):
        return content
    return [*thinking, *together(message, kept, as_parts(content), _tool_use)]


def _tool_use(call: ToolCall, kept: Fields) -> Fields:
    return {"type": "tool_use", **call_back(call, kept, "object", "input")}


def _joins(before: Message, message: Message) -> bool:
    """Return whether the message joins the user message of the one before.

    Messages of this format join only those that they came with.
    """
    if Role.ASSISTANT in (before.role, message.role):
        return False
    if before.shape == message.shape == "anthropic":
        return is_same_original(before, message)
    return before.role is Role.TOOL
