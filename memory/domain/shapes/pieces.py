"""Pieces of one original message, which become messages of ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from memory.domain import validation
from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role, ToolCall
from memory.domain.shapes.fields import Fields, object_at
from memory.domain.shapes.tool_calls import as_json, id_without, told_apart

Path = tuple[str | int, ...]
"""The path of a value in an original."""


@dataclass(slots=True)
class Piece:
    """One message of ours, and the values of the original that belong to it.

    The first piece of an original also has every value that belongs to no other piece.
    """

    role: Role
    paths: list[Path] = field(default_factory=list)
    parts: list[Fields] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    tool_call_id: str | None = None
    name: str | None = None
    is_error: bool = False
    usage: Fields | None = None
    finish_reason: str | None = None
    at: datetime | None = None

    def add_text(self, text: str) -> None:
        if text:
            self.parts.append({"type": "text", "text": text})

    def add_other(self, kind: str) -> None:
        """Add a part that has no text; only the original holds its value."""
        self.parts.append({"type": kind})

    def add_image(
        self, data: str | None = None, media_type: str | None = None, url: str | None = None
    ) -> None:
        """Add an image, by its Base64 data or by its address."""
        if data:
            source = {"type": "base64", "media_type": media_type or "image/png", "data": data}
        elif url:
            source = {"type": "url", "url": url}
        else:
            self.add_other("image")
            return
        self.parts.append({"type": "image", "source": source})

    def add_thought(self, text: str) -> None:
        if text:
            self.thoughts.append(text)

    def add_call(self, call_id: str | None, name: str, arguments: object) -> None:
        """Add a call; its arguments are an object, or JSON text by the model."""
        text = arguments if isinstance(arguments, str) else as_json({} if arguments is None else arguments)
        self.calls.append(ToolCall(id=call_id or id_without(name), name=name, arguments=text))

    def message(self, shape: str) -> Message:
        """Return the message, without its original."""
        only_text = len(self.parts) == 1 and self.parts[0].keys() == {"type", "text"}
        pairs = told_apart([(call, {"unnamed": call.id == id_without(call.name)}) for call in self.calls])
        return Message(
            role=self.role,
            content=self.parts[0]["text"] if only_text else self.parts or "",
            reasoning="\n\n".join(self.thoughts) or None,
            tool_calls=[call for call, _ in pairs],
            tool_call_id=self.tool_call_id,
            name=self.name,
            is_error=self.is_error,
            usage=self.usage or None,
            finish_reason=self.finish_reason or None,
            at=self.at,
            shape=shape,
        )


# -- reading a given original ----------------------------------------------------------


def has_role(fields: Fields, roles: Container[str]) -> bool:
    role = fields.get("role")
    return isinstance(role, str) and role in roles


def role_at(fields: Fields, roles: Mapping[str, Role]) -> Role:
    """Return the `Role` for the role of the original message."""
    role = fields.get("role")
    if not isinstance(role, str) or role not in roles:
        raise InvalidInput("role", f"must be one of {', '.join(roles)}, not {role!r}")
    return roles[role]


def text_at(fields: Fields, path: str, *names: str) -> str:
    """Return the text under the first of these names that is present; empty if none is.

    Raises:
        InvalidInput: The value is no text.
    """
    for name in names:
        value = fields.get(name)
        if value is not None:
            if not isinstance(value, str):
                raise InvalidInput(
                    f"{path}.{name}" if path else name, f"must be text, not {type(value).__name__}"
                )
            return value
    return ""


def name_at(fields: Fields, path: str, *names: str) -> str:
    """Return a text that must not be empty, such as the name of a tool."""
    found = text_at(fields, path, *names)
    if not found:
        raise InvalidInput(f"{path}.{names[0]}" if path else names[0], "must not be empty")
    return found


def list_at(fields: Fields, name: str, path: str = "") -> list[Any]:
    """Return the list under this name; empty if there is none."""
    value = fields.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidInput(f"{path}{name}", f"must be a list, not {type(value).__name__}")
    return value


def objects_at(fields: Fields, name: str, path: str = "") -> list[Fields]:
    return [object_at(one, f"{path}{name}[{n}]") for n, one in enumerate(list_at(fields, name, path))]


def time_at(fields: Fields, *names: str) -> datetime | None:
    """Return the time under the first name that holds a readable one, or None."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool) and value != "":
            try:
                return validation.time(name, value)
            except InvalidInput:
                return None
    return None


def kept_object(value: object) -> Fields | None:
    return value if isinstance(value, dict) and value else None


def result_text(value: object) -> str:
    """Return the text of a tool's result: itself if it is a text, else as JSON."""
    if value is None or value == {}:
        return ""
    if isinstance(value, dict) and len(value) == 1:
        (name, inner), *_ = value.items()
        if name in ("result", "output", "error", "content", "text") and isinstance(inner, str):
            return inner
    return value if isinstance(value, str) else as_json(value)


def json_value(text: str) -> Any:
    """Return the JSON value of a text; the text itself if it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def segments(blocks: Sequence[Fields], is_result: Callable[[Fields], bool]) -> Iterator[range]:
    """Yield the positions of blocks that belong together.

    Each result of a tool is alone; other neighbours are together.
    """
    start = 0
    for at, block in enumerate(blocks):
        if is_result(block):
            if at > start:
                yield range(start, at)
            yield range(at, at + 1)
            start = at + 1
    if start < len(blocks):
        yield range(start, len(blocks))


# -- making messages of another format -------------------------------------------------


def tool_name_of(messages: Iterable[Message]) -> dict[str, str]:
    """Return the names of the called tools by the ids of their calls."""
    return {call.id: call.name for message in messages for call in message.tool_calls}
