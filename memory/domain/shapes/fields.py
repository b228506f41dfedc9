"""Take and check the fields of a given message, and restore the remaining ones."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from memory.domain import validation
from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role

Fields = dict[str, Any]
_TEXT_PARTS = {"text", "input_text", "output_text"}
"""Types of parts that only hold text."""
_WITH_OUR_IDS = {"plain", "openai"}
_OURS = {
    "id",
    *validation.MOMENT_FIELDS,
    "usage",
    "metadata",
    "tokens",
    "is_error",
    "is_summary",
    "reasoning",
    "finish_reason",
}


class MessageFields:
    """The fields of one given message.

    Fields that are not taken, or are empty, are kept as they were (`extra["fields"]`).
    """

    def __init__(self, fields: Fields) -> None:
        self.left = fields
        self.extra: Fields = {}

    def role(self, roles: Mapping[str, Role]) -> Role:
        given = self.left.pop("role", None)
        role = roles[validation.one_of("role", given, roles)]
        if given != role:
            self.extra["role"] = given
        return role

    def text(self, *names: str) -> str | None:
        """Take the text under the first of these names that has one."""
        for name in names:
            if self.left.get(name) not in (None, ""):
                return _text(name, self.left.pop(name))
        return None

    def object(self, name: str) -> Fields | None:
        return object_at(self.left.pop(name), name) if self.left.get(name) not in (None, {}) else None

    def objects(self, name: str) -> list[Fields]:
        return objects(name, self.left.pop(name)) if self.left.get(name) not in (None, []) else []

    def true(self, name: str) -> bool:
        value = self.left.get(name)
        if value is None or value is False:
            return False
        if value is not True:
            raise InvalidInput(name, f"must be true or false, not {type(value).__name__}")
        return bool(self.left.pop(name))

    def count(self, name: str) -> int | None:
        value = self.left.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidInput(name, "must be a whole number of 0 or more")
        return int(self.left.pop(name))

    def content(self) -> str | list[Fields]:
        """Take text, or parts as given; a bare text among parts becomes a part."""
        value = self.left.get("content")
        if value is None or value in ("", []):
            self.extra |= {} if "content" in self.left else {"no_content": True}
            return [] if isinstance(value, list) else ""
        del self.left["content"]
        if isinstance(value, str):
            return value
        if not isinstance(value, list):
            raise InvalidInput("content", f"must be text or a list of parts, not {type(value).__name__}")
        if bare := [at for at, part in enumerate(value) if isinstance(part, str)]:
            self.extra["bare"] = bare
        return parts([{"type": "text", "text": part} if isinstance(part, str) else part for part in value])

    def speaker(self, role: Role) -> str | None:
        """Take the speaker's name.

        A tool's message may give the name of the tool as `tool_name`, which also stays.
        """
        name = self.text("name")
        return self.look_at("tool_name", str) if name is None and role is Role.TOOL else name

    def answered_call(self, role: Role) -> str | None:
        """Take the id of the call that a tool's message answers.

        A result without an id is matched by name and order when the window is read.
        """
        call_id = self.text("tool_call_id")
        if call_id is None and role is Role.TOOL:
            self.extra["no_call_id"] = True
        return call_id

    def id_and_time(self) -> Fields:
        """Return the id and the time, which also stay as they were given."""
        seen: Fields = {}
        if self.left.get("id") is not None:
            seen["id"] = validation.identifier("id", self.left["id"])
        at = self.moment()
        return seen if at is None else {**seen, "at": at}

    def moment(self) -> datetime | None:
        """Return the time, which also stays as it was given."""
        name = validation.named_moment(self.left)
        if name is None:
            return None
        at = validation.time(name, self.left[name])
        if isinstance(self.left[name], datetime):
            self.left[name] = None
            self.extra["moment"] = name
        return at

    def look_at(self, name: str, kind: type) -> Any:
        """Return the value under the name if it is of this kind, and keep it there."""
        value = self.left.get(name)
        return value if isinstance(value, kind) and value else None

    def extra_fields(self) -> Fields:
        """Return the fields for `extra`; empty if every field was taken."""
        return {**self.extra, **({"fields": self.left} if self.left else {})}


def parts(value: object) -> list[Fields]:
    """Validate the parts of a content: objects with a type."""
    checked = objects("content", value)
    for number, part in enumerate(checked):
        if not isinstance(part.get("type"), str):
            raise InvalidInput(f"content[{number}].type", "must be text")
        if part["type"] in _TEXT_PARTS and not isinstance(part.get("text"), str):
            told = (
                "is missing"
                if part.get("text") is None
                else f"must be text, not {type(part['text']).__name__}"
            )
            raise InvalidInput(
                f"content[{number}].text", f"{told}: a part of type '{part['type']}' holds its text there"
            )
    return checked


def objects(name: str, value: object) -> list[Fields]:
    if not isinstance(value, list):
        raise InvalidInput(name, f"must be a list, not {type(value).__name__}")
    return [object_at(one, f"{name}[{number}]") for number, one in enumerate(value)]


def object_at(value: object, path: str) -> Fields:
    if not isinstance(value, dict):
        raise InvalidInput(path, f"must be an object, not {type(value).__name__}")
    return value


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput(name, f"must be text, not {type(value).__name__}")
    return value


def own(message: Message, shape: str) -> Fields:
    """Return the fields kept for this shape; empty if the message has another.

    A plain message may be one of OpenAI or Anthropic without special fields. Its
    unknown fields are therefore returned for these shapes too.
    """
    if message.shape == shape:
        return message.extra
    if message.shape == "plain" and shape == "openai":
        return _without_ours(message.extra)
    if message.shape == "plain" and shape == "anthropic" and message.role is not Role.TOOL:
        return {
            "message": {
                name: value for name, value in _without_ours(message.extra).items() if name != "no_content"
            }
        }
    return {}


def _without_ours(extra: Fields) -> Fields:
    fields = {name: value for name, value in extra.get("fields", {}).items() if name not in _OURS}
    return {
        **{name: extra[name] for name in ("no_content", "no_call_id", "bare") if name in extra},
        **({"fields": fields} if fields else {}),
    }


def speaker_back(kept: Fields, message: Message) -> str | None:
    """Return the speaker's name; None if it came as `tool_name`, which is kept."""
    return (
        None
        if message.name is not None and kept.get("fields", {}).get("tool_name") == message.name
        else message.name
    )


def given_back(kept: Fields, message: Message, **fields: Any) -> Fields:
    """Return the kept fields, overwritten by the fields that have a value.

    If a time was given, it gets its current value. So does the id of a message whose
    format has ids of ours.
    """
    given: Fields = {
        **kept.get("fields", {}),
        **{name: value for name, value in fields.items() if value not in (None, "", [], {}, False)},
    }
    if given.get("id") is not None and message.shape in _WITH_OUR_IDS:
        given["id"] = message.id
    if (named := kept.get("moment")) is not None:
        given[named] = message.at
    elif (
        message.at is not None
        and (named := validation.named_moment(given)) is not None
        and validation.time(named, given[named]) != message.at
    ):
        given[named] = message.at.isoformat()
    return given


def content_back(kept: Fields, content: str | list[Fields], nothing: Any = "") -> Fields:
    """Return the content under its name; an empty one has the form that was given."""
    if not content:
        return {} if kept.get("no_content") or "content" in kept.get("fields", {}) else {"content": nothing}
    bare = kept.get("bare", [])
    if isinstance(content, list) and bare:
        return {
            "content": [
                part["text"] if at in bare and set(part) == {"type", "text"} else part
                for at, part in enumerate(content)
            ]
        }
    return {"content": content}
