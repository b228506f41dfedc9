"""Convert items of OpenAI's Responses API and of its conversations.

Each item becomes one message: messages, calls, results, reasoning, compactions, and the
calls of tools that OpenAI runs itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role
from memory.domain.shapes.content_parts import content_as, image_of
from memory.domain.shapes.fields import Fields, object_at
from memory.domain.shapes.pieces import (
    Piece,
    kept_object,
    name_at,
    objects_at,
    result_text,
    role_at,
    text_at,
)

NAME = "openai_responses"
_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM, "developer": Role.SYSTEM}
_CALLS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "computer_call": "action",
    "local_shell_call": "action",
    "shell_call": "action",
    "apply_patch_call": "operation",
    "tool_search_call": "arguments",
}
"""Calls that the caller answers, and the field with their arguments."""
_RESULTS = {
    "function_call_output",
    "custom_tool_call_output",
    "computer_call_output",
    "local_shell_call_output",
    "shell_call_output",
    "apply_patch_call_output",
    "tool_search_output",
}
_OTHERS = {
    "web_search_call",
    "file_search_call",
    "image_generation_call",
    "code_interpreter_call",
    "mcp_call",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response",
    "program",
    "program_output",
    "item_reference",
    "additional_tools",
    "configuration_update",
    "compaction",
    "compaction_summary",
    "compaction_trigger",
    "reasoning",
}
_TEXTS = {"input_text", "output_text", "text", "summary_text", "reasoning_text"}


def is_one(fields: Fields) -> bool:
    kind = fields.get("type")
    if kind == "message":
        return "role" in fields and not {"data", "model", "stop_reason"} & fields.keys()
    if isinstance(kind, str) and "role" not in fields and "message" not in fields:
        return kind in _CALLS or kind in _RESULTS or kind in _OTHERS
    content = fields.get("content")
    return (
        kind is None
        and isinstance(content, list)
        and any(
            isinstance(part, dict) and part.get("type") in ("input_text", "output_text", "input_file")
            for part in content
        )
    )


def pieces(fields: Fields) -> list[Piece]:
    kind = fields.get("type") or ("message" if "role" in fields else "item_reference")
    if not isinstance(kind, str):
        raise InvalidInput("type", f"must be text, not {type(kind).__name__}")
    if kind == "item_reference" and not isinstance(fields.get("id"), str):
        raise InvalidInput("type", "is missing. Give the item a 'type', or a message its 'role'")
    if kind == "message":
        return [_message(fields)]
    if kind in _RESULTS:
        return [_result(kind, fields)]
    piece = Piece(Role.ASSISTANT)
    call_id = fields.get("call_id") or (fields.get("id") if kind == "local_shell_call" else None)
    if kind in _CALLS and (call_id or kind == "function_call"):
        _add_call(piece, kind, fields, call_id)
    elif kind == "reasoning":
        for name in ("summary", "content"):
            for part in objects_at(fields, name):
                piece.add_thought(text_at(part, name, "text"))
        if fields.get("encrypted_content") or not piece.thoughts:
            piece.add_other("reasoning")
    elif kind in _CALLS or kind in _OTHERS:
        piece.role = Role.USER if kind == "mcp_approval_response" else Role.ASSISTANT
        image = fields.get("result") if kind == "image_generation_call" else None
        if isinstance(image, str) and image:
            piece.add_image(image, f"image/{fields.get('output_format') or 'png'}")
        else:
            piece.add_other("compaction" if kind.startswith("compaction") else "item")
    else:
        raise InvalidInput("type", f"{str(kind)[:40]!r} is no type of an item of the Responses API")
    return [piece]


def _message(fields: Fields) -> Piece:
    role = role_at(fields, _ROLES)
    piece = Piece(role)
    content = fields.get("content")
    if isinstance(content, str):
        piece.add_text(content)
    else:
        add_parts(piece, objects_at(fields, "content"), "content")
    return piece


def add_parts(piece: Piece, parts: Sequence[Fields], path: str) -> None:
    for n, part in enumerate(parts):
        kind = name_at(part, f"{path}[{n}]", "type")
        if kind in _TEXTS:
            piece.add_text(text_at(part, f"{path}[{n}]", "text"))
        elif kind == "refusal":
            piece.add_text(text_at(part, f"{path}[{n}]", "refusal"))
        elif (image := image_of(part)) is not None:
            piece.add_image(image.data, image.media_type, image.url)
        else:
            piece.add_other(kind.removeprefix("input_"))


def _add_call(piece: Piece, kind: str, fields: Fields, call_id: Any) -> None:
    if call_id is not None and not isinstance(call_id, str):
        raise InvalidInput("call_id", f"must be text, not {type(call_id).__name__}")
    arguments = fields.get(_CALLS[kind])
    name = kind.removesuffix("_call")
    if kind in ("function_call", "custom_tool_call"):
        name, arguments = name_at(fields, "", "name"), text_at(fields, "", _CALLS[kind])
    if kind == "custom_tool_call" or not isinstance(arguments, str | dict | None):
        arguments = {"input": arguments}
    piece.add_call(call_id, name, arguments)


def _result(kind: str, fields: Fields) -> Piece:
    given_id = text_at(fields, "", "call_id") or (
        text_at(fields, "", "id") if kind == "local_shell_call_output" else ""
    )
    piece = Piece(Role.TOOL, tool_call_id=given_id or None)
    output = fields.get("tools") if kind == "tool_search_output" else fields.get("output")
    if isinstance(output, list) and all(isinstance(part, dict) and "type" in part for part in output):
        add_parts(piece, output, "output")
    elif isinstance(output, list) and all(isinstance(part, dict) for part in output):
        for n, part in enumerate(output):
            piece.add_text(text_at(part, f"output[{n}]", "stdout"))
            piece.add_text(text_at(part, f"output[{n}]", "stderr"))
    elif kind == "computer_call_output" and kept_object(output):
        image = object_at(output, "output").get("image_url")
        piece.add_image(url=image if isinstance(image, str) else None)
    else:
        piece.add_text(result_text(output))
    piece.is_error = fields.get("status") in ("failed", "incomplete")
    return piece


def to_fields(messages: Sequence[Message], *, foreign_reasoning: bool = True) -> list[Fields]:
    found: list[Fields] = []
    for message in messages:
        content = content_as(message, NAME)
        if message.role is Role.TOOL:
            output = content if isinstance(content, str) else [_part(part, "input_text") for part in content]
            found.append(
                {"type": "function_call_output", "call_id": message.tool_call_id or "", "output": output}
            )
            continue
        kind = "output_text" if message.role is Role.ASSISTANT else "input_text"
        if content or not message.tool_calls:
            found.append(
                {
                    "role": message.role.value,
                    "content": content
                    if isinstance(content, str)
                    else [_part(part, kind) for part in content],
                }
            )
        found += [
            {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
            for call in message.tool_calls
        ]
    return found


def _part(part: Fields, kind: str) -> Fields:
    if part["type"] == "image_url":
        return {"type": "input_image", "image_url": part["image_url"]["url"], "detail": "auto"}
    return {"type": kind, "text": part["text"]}
