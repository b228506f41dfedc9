"""The large texts of a message: removed from its row, split into chunks, and restored.

These functions are pure. A row has for each large text its path in the message, its
size and its chunks. It also keeps the beginning of the message's content. A chunk is
named by its upload and by the digest of its text. So a read can verify the text, and a
message that has grown keeps its earlier chunks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from memory.domain import ids, validation
from memory.domain.message import Message
from memory.ports.record import JsonValue, Key

CHUNK_CHARACTERS = 256 * 1024
"""Characters of a chunk, at most four times as many bytes; every store accepts that."""
BEGINNING = 8_192
"""Characters of large content that stay in the row; a search covers only these."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a large text: its upload, and the digest of its text.

    The digest is the SHA-256 of its UTF-8 in hexadecimal digits.
    """

    upload: str
    digest: str


@dataclass(frozen=True, slots=True)
class LargeText:
    """A large text of a message.

    It has its path in the message as JSON, its size in UTF-8 bytes, and its chunks in
    order.
    """

    path: tuple[str | int, ...]
    size: int
    chunks: tuple[Chunk, ...]

    @property
    def is_said(self) -> bool:
        """Whether it is the content of the message, or a part of that."""
        return self.path == ("content",) or (self.path[0] == "content" and self.path[2:] == ("text",))

    @property
    def placeholder(self) -> str:
        """The text shown instead if one of its chunks is damaged or missing."""
        return f"[{self.size} bytes that cannot be read: their stored data is damaged or missing]"


Artifacts = tuple[LargeText, ...]


def chunk_key(tenant: str, scope: str, chunk: Chunk) -> Key:
    return Key(tenant, ids.derived_id(tenant, scope, "chunk", chunk.upload, chunk.digest))


def chunks_of(artifacts: Iterable[LargeText]) -> list[Chunk]:
    """Return their chunks, each once."""
    return list(dict.fromkeys(chunk for artifact in artifacts for chunk in artifact.chunks))


def uploads_of(artifacts: Iterable[LargeText]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chunk.upload for chunk in chunks_of(artifacts)))


def digest_of(data: bytes) -> str:
    return sha256(data).hexdigest()


def encode_chunks(text: str) -> Iterator[bytes]:
    """Return the chunks of a text; no character is split."""
    return (
        text[start : start + CHUNK_CHARACTERS].encode() for start in range(0, len(text), CHUNK_CHARACTERS)
    )


# -- as JSON ---------------------------------------------------------------------------


def to_json(artifacts: Artifacts) -> list[JsonValue]:
    return [
        [list(one.path), one.size, [[chunk.upload, chunk.digest] for chunk in one.chunks]]
        for one in artifacts
    ]


def from_json(said: Iterable[Any]) -> Artifacts:
    """Return the value of a `to_json` result."""
    return tuple(
        [
            LargeText(tuple(path), int(size), tuple([Chunk(str(u), str(d)) for u, d in chunks]))
            for path, size, chunks in said
        ]
    )


# -- in a message ----------------------------------------------------------------------


def large_texts(message: Message) -> list[tuple[tuple[str | int, ...], str]]:
    """Return the texts of a message that are too large for its row, with their paths.

    Names and ids always stay in the row.
    """
    found = list(_large(("content",), message.content))
    found += _large(("reasoning",), message.reasoning)
    for number, call in enumerate(message.tool_calls):
        found += _large(("tool_calls", number, "arguments"), call.arguments)
    for name in ("usage", "metadata", "extra"):
        if value := getattr(message, name):
            found += _large((name,), value)
    return found


def _large(path: tuple[str | int, ...], value: object) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        if validation.is_large(value):
            yield path, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _large((*path, name), inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _large((*path, number), inner)


def truncate_large_texts(said: dict[str, JsonValue], artifacts: Artifacts) -> dict[str, JsonValue]:
    """Return the message as its row has it, without its large texts.

    It keeps the beginning of its content. `said` itself is changed.
    """
    room = BEGINNING
    for artifact in artifacts:
        holder, name = _holder(said, artifact), artifact.path[-1]
        holder[name] = holder[name][:room] if artifact.is_said else ""
        room -= len(holder[name])
    return said


def restore_large_texts(outline: Message, artifacts: Artifacts, texts: Mapping[Chunk, str]) -> Message:
    """Return the message with its large texts.

    A text with a missing chunk is replaced by a note. In the content, the note is a
    text part if the text was one.
    """
    said: dict[str, JsonValue] = outline.model_dump(mode="json", exclude_defaults=True)
    for artifact in artifacts:
        if all(chunk in texts for chunk in artifact.chunks):
            _holder(said, artifact)[artifact.path[-1]] = "".join([texts[chunk] for chunk in artifact.chunks])
    for artifact in artifacts:
        if not all(chunk in texts for chunk in artifact.chunks):
            _mark(said, artifact)
    return Message.model_validate(said)


def _holder(said: Any, artifact: LargeText) -> Any:
    for name in artifact.path[:-1]:
        said = said[name]
    return said


def _mark(said: Any, artifact: LargeText) -> None:
    match artifact.path:
        case ("content", int(number), *_):
            said["content"][number] = {"type": "text", "text": artifact.placeholder}
        case ("tool_calls", int(number), *_):  # arguments are JSON themselves
            said["tool_calls"][number]["arguments"] = json.dumps({"unreadable": artifact.placeholder})
        case _:
            _holder(said, artifact)[artifact.path[-1]] = artifact.placeholder
