"""The large texts of a message: taken out of its row, cut into chunks, and put back.
Pure.

A row says of each where in the message it belongs, how long it is and of which chunks
it consists; of the first that is said the row has the beginning. A chunk is named by
the upload that stored it and by the digest of what it says, so that what is read is
known to be what was said, and a message that has grown goes on having the chunks that
it had.
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
"""Of a chunk: at most four times as many bytes, which every store takes."""
BEGINNING = 8_192
"""Characters of what a message says in large texts that stay in the row: all that it is
found by is among them.
"""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some of a large text: who stored it, and the SHA-256 of its UTF-8 in hexadecimal
    digits.
    """

    upload: str
    digest: str


@dataclass(frozen=True, slots=True)
class LargeText:
    """A large text of a message: where it belongs in the message as JSON, how many
    bytes it has in UTF-8, and its chunks in order.
    """

    path: tuple[str | int, ...]
    size: int
    chunks: tuple[Chunk, ...]

    @property
    def is_said(self) -> bool:
        """Whether it is what the message says, or a part of that."""
        return self.path == ("content",) or (self.path[0] == "content" and self.path[2:] == ("text",))

    @property
    def placeholder(self) -> str:
        """What stands in the place of one of which a chunk is damaged or missing."""
        return f"[{self.size} bytes that cannot be read: what is stored of them is damaged or missing]"


Artifacts = tuple[LargeText, ...]


def chunk_key(tenant: str, scope: str, chunk: Chunk) -> Key:
    return Key(tenant, ids.derived_id(tenant, scope, "chunk", chunk.upload, chunk.digest))


def chunks_of(artifacts: Iterable[LargeText]) -> list[Chunk]:
    """Their chunks, each once."""
    return list(dict.fromkeys(chunk for artifact in artifacts for chunk in artifact.chunks))


def uploads_of(artifacts: Iterable[LargeText]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chunk.upload for chunk in chunks_of(artifacts)))


def digest_of(data: bytes) -> str:
    return sha256(data).hexdigest()


def encode_chunks(text: str) -> Iterator[bytes]:
    """The chunks of a text: no character is parted."""
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
    """What `to_json` said."""
    return tuple(
        [
            LargeText(tuple(path), int(size), tuple([Chunk(str(u), str(d)) for u, d in chunks]))
            for path, size, chunks in said
        ]
    )


# -- in a message ----------------------------------------------------------------------


def large_texts(message: Message) -> list[tuple[tuple[str | int, ...], str]]:
    """The texts of a message that are too large for its row, each with its path. Names
    and ids are never taken out.
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
    """The message as its row has it: of what it says the beginning, nothing of its
    other large texts. What is given is changed.
    """
    room = BEGINNING
    for artifact in artifacts:
        holder, name = _holder(said, artifact), artifact.path[-1]
        holder[name] = holder[name][:room] if artifact.is_said else ""
        room -= len(holder[name])
    return said


def restore_large_texts(outline: Message, artifacts: Artifacts, texts: Mapping[Chunk, str]) -> Message:
    """The message with its large texts. Where a chunk of one is not among the texts it
    says so: as a part of the content, where it was one.
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
        case ("tool_calls", int(number), *_):  # are JSON themselves
            said["tool_calls"][number]["arguments"] = json.dumps({"unreadable": artifact.placeholder})
        case _:
            _holder(said, artifact)[artifact.path[-1]] = artifact.placeholder
