"""Convert `UIMessage` of Vercel's AI SDK: a role, and parts in order.

The part of a tool holds the call and its result. A result becomes a message of its own,
and what the assistant says after it becomes the next message.
"""

from __future__ import annotations

from collections.abc import Sequence

from memory.domain.message import Message, Role
from memory.domain.shapes.content_parts import content_as, image_of
from memory.domain.shapes.fields import Fields
from memory.domain.shapes.pieces import (
    Piece,
    has_role,
    json_value,
    kept_object,
    name_at,
    objects_at,
    result_text,
    role_at,
    text_at,
    time_at,
)
from memory.domain.shapes.tool_calls import arguments_of

NAME = "vercel"
_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}
_RESULTS = ("output", "errorText")


def is_one(fields: Fields) -> bool:
    parts = fields.get("parts")
    return (
        isinstance(parts, list)
        and bool(parts)
        and "kind" not in fields
        and has_role(fields, _ROLES)
        and all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in parts)
    )


def _is_tool(part: Fields) -> bool:
    return str(part.get("type")).startswith("tool-") or part.get("type") == "dynamic-tool"


def pieces(fields: Fields) -> list[Piece]:
    role = role_at(fields, _ROLES)
    current = Piece(role)
    found, results = [current], list[Piece]()
    for n, part in enumerate(objects_at(fields, "parts")):
        if results and not _is_tool(part):
            current = Piece(role)
            found += [*results, current]
            results = []
        current.paths.append(("parts", n))
        if _is_tool(part):
            result = _add_call(current, part, n)
            results += [] if result is None else [result]
        else:
            _add_part(current, part, f"parts[{n}]")
    found += results
    metadata = fields.get("metadata")
    time = time_at(metadata, "createdAt") if isinstance(metadata, dict) else None
    for piece in found:
        piece.at = time or time_at(fields, "createdAt")
    found[0].usage = kept_object(metadata.get("usage")) if isinstance(metadata, dict) else None
    return found


def _add_call(piece: Piece, part: Fields, n: int) -> Piece | None:
    """Add the call of a tool, and return the piece of its result, if there is one."""
    path = f"parts[{n}]"
    call_id = name_at(part, path, "toolCallId")
    kind = name_at(part, path, "type")
    name = name_at(part, path, "toolName") if kind == "dynamic-tool" else kind.removeprefix("tool-")
    piece.add_call(call_id, name or "tool", part.get("input", part.get("rawInput")))
    if not any(part.get(field) is not None for field in _RESULTS) and part.get("state") not in (
        "output-available",
        "output-error",
        "output-denied",
    ):
        return None
    result = Piece(Role.TOOL, [("parts", n, field) for field in _RESULTS if field in part])
    result.tool_call_id, result.name = call_id, name
    result.is_error = part.get("state") in ("output-error", "output-denied")
    result.add_text(text_at(part, path, "errorText") or result_text(part.get("output")))
    return result


def _add_part(piece: Piece, part: Fields, path: str) -> None:
    kind = name_at(part, path, "type")
    if kind == "text":
        piece.add_text(text_at(part, path, "text"))
    elif kind == "reasoning":
        piece.add_thought(text_at(part, path, "text"))
    elif kind == "file":
        media, url = text_at(part, path, "mediaType"), text_at(part, path, "url")
        if media.startswith("image/"):
            head, _, data = url.partition(";base64,")
            if head.startswith("data:"):
                piece.add_image(data, media)
            else:
                piece.add_image(url=url)
        else:
            piece.add_other("file")
    elif kind != "step-start":
        piece.add_other(kind[:100])


def to_fields(messages: Sequence[Message], *, foreign_reasoning: bool = True) -> list[Fields]:
    found: list[Fields] = []
    for message in messages:
        if message.role is Role.TOOL:
            _put_result(found, message)
            continue
        content = content_as(message, NAME)
        given = [{"type": "text", "text": content}] if isinstance(content, str) else content
        thought = (
            [{"type": "reasoning", "text": message.reasoning}]
            if message.reasoning and foreign_reasoning
            else []
        )
        said = [_part(part) for part in given if part.get("text") != ""]
        calls = [
            {
                "type": f"tool-{call.name}",
                "toolCallId": call.id,
                "state": "input-available",
                "input": arguments_of(call),
            }
            for call in message.tool_calls
        ]
        parts = [*thought, *said, *calls]
        if found and message.role is Role.ASSISTANT and found[-1]["role"] == "assistant":
            found[-1]["parts"] += [{"type": "step-start"}, *parts]
        else:
            found.append({"role": message.role.value, "parts": parts})
        if message.id is not None:
            found[-1].setdefault("id", message.id)
    return found


def _put_result(found: list[Fields], message: Message) -> None:
    """Put the result of a tool into the newest part that has its call."""
    for one in reversed(found):
        for part in reversed(one["parts"]):
            if part.get("toolCallId") == message.tool_call_id and part.get("state") == "input-available":
                if message.is_error:
                    part.update(state="output-error", errorText=message.text)
                else:
                    part.update(state="output-available", output=json_value(message.text))
                return
    found.append(
        {
            "role": "assistant",
            "parts": [
                {
                    "type": "dynamic-tool",
                    "toolName": message.name or "tool",
                    "toolCallId": message.tool_call_id or "",
                    "state": "output-available",
                    "output": message.text,
                }
            ],
        }
    )


def _part(part: Fields) -> Fields:
    image = image_of(part)
    if image is None:
        return {"type": "text", "text": part["text"]}
    return {"type": "file", "mediaType": image.media_type, "url": image.address}
