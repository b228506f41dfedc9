"""Convert parts of a content, such as images, between the forms of frameworks."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from memory.domain.message import Message, Role

Part = dict[str, Any]
UNSPOKEN = frozenset({"reasoning", "compaction", "item"})
"""Types of parts that only their own format has and that say nothing to a model.

They are left out of an export to another format. Other unknown parts become a text that
names them.
"""

_DATA_URL = re.compile(r"data:(?P<media>[\w.+-]+/[\w.+-]+);base64,(?P<data>.*)", re.DOTALL)
_SHOWS_IMAGES = {
    "openai": {Role.USER},
    "openai_responses": {Role.USER, Role.TOOL},
    "anthropic": {Role.USER, Role.TOOL},
    "claude": {Role.USER, Role.TOOL},
    "bedrock": {Role.USER, Role.TOOL},
    "gemini": {Role.USER, Role.ASSISTANT},
    "adk": {Role.USER, Role.ASSISTANT},
    "vercel": {Role.USER, Role.ASSISTANT},
    "pydantic_ai": {Role.USER},
    "llamaindex": set(Role),
    "ollama": {Role.USER, Role.TOOL},
    "langchain": set(Role),
    "plain": set(Role),
}
_WITHOUT_ADDRESSES = {"bedrock", "ollama"}
"""Shapes whose images are data; a text names the address of others."""
_OF_ANTHROPIC = {"anthropic", "claude"}
"""Shapes that have images in the form of Anthropic; others get the form of OpenAI."""
_KEEP_PARTS = {"openai", "anthropic", "langchain", "plain"}
"""Shapes whose parts are stored as they came; other shapes keep an original beside."""
_SPEAK_PLAIN = {"openai", "anthropic"}
"""Shapes that plain messages are exported to without changes of their text parts.

Such a part may have more fields than its text, for example about caching.
"""


@dataclass(frozen=True, slots=True)
class Image:
    """An image, by its address or as base64."""

    url: str | None = None
    media_type: str = "image/png"
    data: str | None = None

    @property
    def address(self) -> str:
        return self.url if self.url is not None else f"data:{self.media_type};base64,{self.data}"


def content_as(message: Message, shape: str) -> str | list[Part]:
    """Return the content for a shape.

    It is unchanged if the message came in that shape. Otherwise its parts are converted
    to parts that the shape knows. An unknown part becomes a text that names it, such as
    `[document]`, so nothing is dropped silently. Parts that only their own format has,
    such as encrypted reasoning, are left out.
    """
    if isinstance(message.content, str) or (message.shape == shape and shape in _KEEP_PARTS):
        return message.content
    if message.shape not in _KEEP_PARTS:
        return [
            _part_as(part, shape, message.role) for part in message.content if part["type"] not in UNSPOKEN
        ]
    if message.shape == "plain" and shape in _SPEAK_PLAIN:
        return [
            part if part["type"] == "text" else _part_as(part, shape, message.role)
            for part in message.content
        ]
    return [_part_as(part, shape, message.role) for part in message.content]


def as_parts(content: str | list[Part]) -> list[Part]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content


def _part_as(part: Part, shape: str, role: Role) -> Part:
    if isinstance(text := part.get("text"), str):
        return {"type": "text", "text": text}
    if part.get("type") == "refusal" and isinstance(part.get("refusal"), str):
        return {"type": "text", "text": part["refusal"]}
    source = part.get("source")
    if isinstance(source, dict) and source.get("type") == "text" and isinstance(source.get("data"), str):
        return {"type": "text", "text": source["data"]}
    image = image_of(part)
    if image is not None and role in _SHOWS_IMAGES[shape]:
        return _image_as(image, "anthropic" if shape in _OF_ANTHROPIC else "openai")
    return {"type": "text", "text": f"[{part.get('type', 'part')}]"}


def is_lost(part: Part, shape: str, role: Role) -> bool:
    """Return whether another shape has no equivalent of the part in such a message."""
    if isinstance(part.get("text"), str) or isinstance(part.get("refusal"), str):
        return False
    source = part.get("source")
    if isinstance(source, dict) and source.get("type") == "text":
        return False
    image = image_of(part)
    return (
        image is None
        or role not in _SHOWS_IMAGES[shape]
        or (image.url is not None and shape in _WITHOUT_ADDRESSES)
    )


def image_of(part: Part) -> Image | None:
    """Return the image of a part, in any form of OpenAI, Anthropic and LangChain.

    None if the part has no image that can be converted.
    """
    kind = part.get("type")
    if kind == "image_url":
        address = part.get("image_url")
        return _by_address(address.get("url") if isinstance(address, dict) else address)
    if kind == "input_image":
        return _by_address(part.get("image_url"))
    if kind != "image":
        return None
    form: Any = part.get("source") if isinstance(part.get("source"), dict) else part
    media = _first_text(form, ("media_type", "mime_type")) or "image/png"
    if data := _first_text(form, ("data", "base64")):
        return Image(media_type=media, data=data)
    return _by_address(form.get("url"))


def _by_address(address: object) -> Image | None:
    if not isinstance(address, str) or not address:
        return None
    if found := _DATA_URL.fullmatch(address):
        return Image(media_type=found["media"], data=found["data"])
    return Image(url=address)


def _image_as(image: Image, form: str) -> Part:
    if form == "openai":
        return {"type": "image_url", "image_url": {"url": image.address}}
    if image.data is not None:
        return {
            "type": "image",
            "source": {"type": "base64", "media_type": image.media_type, "data": image.data},
        }
    return {"type": "image", "source": {"type": "url", "url": image.url}}


def _first_text(form: Part, names: Collection[str]) -> str | None:
    return next((form[name] for name in names if isinstance(form.get(name), str) and form[name]), None)
