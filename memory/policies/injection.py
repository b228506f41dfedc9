"""Add known facts to the messages for a model. Pure: given messages are not changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from memory.domain.errors import InvalidInput
from memory.domain.message import Role
from memory.domain.shapes import import_message

Placement = Literal["prepend", "append"]


class StoreHit(Protocol):
    """A result of a named store."""

    @property
    def content(self) -> str: ...
    @property
    def store_name(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class MessageTraits:
    """The properties of a message that decide about injection."""

    of_user: bool
    of_assistant: bool
    has_result: bool
    """Whether it contains the result of a tool."""
    text: str


def looked_at(given: object) -> MessageTraits:
    """Read a message of any shape.

    A user message may contain results of tools, as in Anthropic's format.
    """
    said = import_message(given)
    speaks = given.get("role") if isinstance(given, Mapping) else getattr(given, "role", None)
    texts = [message.text for message in said if message.role is not Role.TOOL]
    return MessageTraits(
        any(message.role is Role.USER for message in said) or speaks == "user",
        any(message.role is Role.ASSISTANT for message in said),
        any(message.role is Role.TOOL for message in said),
        "\n".join(text for text in texts if text).strip(),
    )


def is_user_turn(messages: Sequence[object]) -> bool:
    """Return whether the last message is a user message without tool results."""
    if not messages:
        return False
    last = looked_at(messages[-1])
    return last.of_user and not last.has_result


def query_of(messages: Sequence[object]) -> str:
    """Return the query: the user's text, or else the assistant's last text.

    It is empty if that is not text.
    """
    for behind, looked in enumerate(map(looked_at, reversed(messages))):
        if looked.of_assistant or (behind == 0 and looked.of_user and not looked.has_result):
            return looked.text
    return ""


def render_block(found: Sequence[StoreHit]) -> str:
    """Render the entries as one block of XML.

    All texts are escaped, so that none can end the block or pass for another entry.
    """
    lines = [f"<entry{_source_of(one)}>{_escape_xml(one.content)}</entry>" for one in found]
    return "\n".join(["<memory>", *lines, "</memory>"])


def _source_of(one: StoreHit) -> str:
    return (
        ""
        if one.store_name is None
        else f' source="{_escape_xml(one.store_name).replace(chr(34), "&quot;")}"'
    )


def _escape_xml(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def with_block(messages: Sequence[object], block: str, placement: Placement) -> list[object]:
    """Add the block to the latest user message, before or after its text.

    Without a user message, the messages are returned as given. In a list of parts the
    block is a part after tool results and images. A text is joined with it.
    """
    at = next((n for n in range(len(messages) - 1, -1, -1) if looked_at(messages[n]).of_user), None)
    return (
        list(messages)
        if at is None
        else [*messages[:at], _message_with_block(messages[at], block, placement), *messages[at + 1 :]]
    )


def _message_with_block(given: Any, block: str, placement: Placement) -> object:
    if isinstance(given, Mapping):
        if "content" not in given and isinstance(
            data := given.get("data"), Mapping
        ):  # the form of LangChain's dictionaries
            return {**given, "data": _message_with_block(data, block, placement)}
        return {**given, "content": _insert_block(given.get("content"), block, placement)}
    content = _insert_block(given.content, block, placement)
    if callable(changed := getattr(given, "model_copy", None)):
        return changed(update={"content": content})
    other = copy(given)
    other.content = content
    return other


def _insert_block(content: object, block: str, placement: Placement) -> str | list[Any]:
    if content is None or content == "" or content == []:
        return block
    if isinstance(content, str):
        return f"{block}\n\n{content}" if placement == "prepend" else f"{content}\n\n{block}"
    if not isinstance(content, list | tuple):
        raise InvalidInput(
            "messages", f"content must be text or a list of parts, not {type(content).__name__}"
        )
    at = (
        len(content)
        if placement == "append"
        else 1 + max((n for n, part in enumerate(content) if not _is_text(part)), default=-1)
    )
    return [*content[:at], {"type": "text", "text": block}, *content[at:]]


def _is_text(part: object) -> bool:
    return (
        isinstance(part, str)
        or (isinstance(part, Mapping) and isinstance(part.get("text"), str))
        or isinstance(getattr(part, "text", None), str)
    )
