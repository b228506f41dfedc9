"""Keep the originals of messages, and restore them.

The first message of an original keeps it without the texts that the messages hold
anyway, so nothing large is stored twice. If an original becomes several messages, each
keeps its own share. So the erasure of one message leaves nothing of it in the others.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from hashlib import blake2b
from typing import Any

from memory.domain import validation
from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role
from memory.domain.shapes.fields import Fields
from memory.domain.shapes.pieces import Path, Piece
from memory.domain.shapes.tool_calls import as_json, is_made_up

ORIGINAL = "original"
"""In `extra`: the original of the message, or its share of one."""
_SHARED_CHARACTERS = 48
"""Shorter texts are kept in the original too, because a reference is as long."""
_ARGUMENTS = frozenset({"args", "input", "arguments", "tool_kwargs"})
"""Names under which an original has the arguments of a call as an object."""

MOST_LEVELS = 28
"""Levels of an original. It is stored some levels deep in its message."""

Holes = list[list[Any]]


# -- values that JSON does not have ----------------------------------------------------


def encode(value: Any) -> tuple[Any, list[list[Any]]]:
    """Return a copy in which bytes and times are texts, and the paths of these.

    Bytes become Base64, times become ISO texts.
    """
    found: list[list[Any]] = []
    return _encode(value, (), found), found


def _encode(value: Any, path: Path, found: list[list[Any]]) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        found.append([list(path), "bytes"])
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, datetime):
        found.append([list(path), "datetime"])
        return value.isoformat()
    if isinstance(value, date):
        found.append([list(path), "date"])
        return value.isoformat()
    if len(path) > MOST_LEVELS:
        raise InvalidInput(
            "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in path[:4]).lstrip("."),
            f"nests deeper than {MOST_LEVELS} levels",
        )
    if isinstance(value, Mapping):
        return {name: _encode(inner, (*path, name), found) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_encode(inner, (*path, n), found) for n, inner in enumerate(value)]
    return value


def _decode(text: Any, kind: str) -> Any:
    if not isinstance(text, str):
        return text
    if kind == "bytes":
        return base64.b64decode(text)
    return datetime.fromisoformat(text) if kind == "datetime" else date.fromisoformat(text)


# -- keeping ---------------------------------------------------------------------------


def keep(shape: str, fields: Fields, pieces: Sequence[Piece], kinds: list[list[Any]]) -> list[Message]:
    """Return the messages of the pieces, which keep the original.

    `fields` is used up. `kinds` are the paths that `encode` returned.

    Raises:
        InvalidInput: The original and what was read from it exceed the limit of a row.
    """
    messages = [piece.message(shape) for piece in pieces]
    cuts = sorted(
        ((path, number) for number, piece in enumerate(pieces[1:], start=1) for path in piece.paths),
        key=lambda cut: (-len(cut[0]), cut[1]),
    )
    group = blake2b(as_json(fields).encode(), digest_size=8).hexdigest() if len(messages) > 1 else ""
    shares: list[list[Any]] = [[] for _ in messages]
    cut_at: list[list[Any]] = []
    for path, number in cuts:
        cut_at.append([list(path), number, len(shares[number])])
        shares[number].append(_replace_at(fields, path, None))
    for number, message in enumerate(messages):
        kept: Fields = {} if number else {"raw": fields}
        if not number and cut_at:
            kept["cuts"] = cut_at
        if not number and kinds:
            kept["kinds"] = kinds
        if number:
            kept["share"] = shares[number]
        if holes := _take_out_texts(kept["share"] if number else fields, message):
            kept["texts"] = holes
        if group:
            kept["of"] = [group, number, len(messages)]
        kept["digest"] = _digest(message)
        message.extra = {ORIGINAL: kept}
        _check_size(message)
    return messages


def _check_size(message: Message) -> None:
    """Check that the message and its original fit into one row together."""
    if len(as_json(message.extra)) > validation.MAX_ROW_BYTES // 4:
        validation.json_object(
            "message",
            message.model_dump(mode="json", exclude_defaults=True),
            max_bytes=validation.MAX_ROW_BYTES,
            large_texts=validation.MAX_MESSAGE_BYTES,
        )


def _take_out_texts(kept: Any, message: Message) -> Holes:
    """Replace the texts that the message has by empty ones, and return their paths."""
    known = dict(_texts_of(message))
    holes: Holes = []
    if known:
        for holder, name, path in _values(kept, ()):
            value = holder[name]
            if isinstance(value, str) and len(value) >= _SHARED_CHARACTERS and value in known:
                holes.append([list(path), list(known[value])])
                holder[name] = ""
            elif isinstance(value, dict) and name in _ARGUMENTS and value:
                text = as_json(value)
                if len(text) >= _SHARED_CHARACTERS and text in known:
                    holes.append([list(path), list(known[text]), "json"])
                    holder[name] = {}
    return holes


def _texts_of(message: Message) -> Iterator[tuple[str, Path]]:
    """Yield the texts of a message with their paths in it."""
    if isinstance(message.content, str):
        yield message.content, ("content",)
    else:
        for n, part in enumerate(message.content):
            if isinstance(part.get("text"), str):
                yield part["text"], ("content", n, "text")
            source = part.get("source")
            if isinstance(source, dict) and isinstance(source.get("data"), str):
                yield source["data"], ("content", n, "source", "data")
    if message.reasoning:
        yield message.reasoning, ("reasoning",)
    for n, call in enumerate(message.tool_calls):
        yield call.arguments, ("tool_calls", n, "arguments")


def _values(value: Any, path: Path) -> Iterator[tuple[Any, Any, Path]]:
    """Yield each value in an object or a list: its holder, its name and its path.

    An object comes before its own values, which are those that it has by then.
    """
    names: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
    for name in names:
        yield value, name, (*path, name)
        if isinstance(value[name], dict | list):
            yield from _values(value[name], (*path, name))


def _replace_at(root: Any, path: Path, new: Any) -> Any:
    """Put a value at a path, and return the value that was there."""
    for name in path[:-1]:
        root = root[name]
    before = root[path[-1]]
    root[path[-1]] = new
    return before


def _digest(message: Message) -> str:
    """Return a digest of what the message says, to notice that it was changed."""
    calls = [
        [None if is_made_up(call.id, call.name) else call.id, call.name, call.arguments]
        for call in message.tool_calls
    ]
    said = [
        message.role.value,
        message.content,
        message.reasoning,
        calls,
        message.name,
        message.is_error,
        message.usage,
        message.finish_reason,
    ]
    return blake2b(as_json(said).encode(errors="surrogatepass"), digest_size=8).hexdigest()


# -- several messages of one original --------------------------------------------------


def continues(message: Message) -> bool:
    """Return whether an earlier message began the same original."""
    joined = message.shape == "anthropic" and bool(message.extra.get("joined"))
    return joined or _place_in_group(message.extra.get(ORIGINAL))[1] > 0


def _place_in_group(kept: object) -> tuple[str, int, int]:
    """Return the name of the original's group, the message's number and their count."""
    match kept:
        case {"of": [str(name), int(number), int(size)]}:
            return name, number, size
    return "", 0, 1


def is_same_original(before: Message, message: Message) -> bool:
    """Return whether a message continues the original of the one before it."""
    if message.shape != before.shape:
        return False
    kept, known = message.extra.get(ORIGINAL), before.extra.get(ORIGINAL)
    if isinstance(kept, dict) and isinstance(known, dict):
        name, number, _ = _place_in_group(kept)
        return (name, number - 1) == _place_in_group(known)[:2]
    return kept is known is None and bool(message.extra.get("joined")) and _may_precede(before, message)


def _may_precede(before: Message, message: Message) -> bool:
    """Return whether a user message with results may become these neighbours.

    The part between them may have been erased or taken out of the window.
    """
    return before.role is Role.TOOL or (before.role, message.role) == (Role.USER, Role.TOOL)


# -- restoring -------------------------------------------------------------------------


def forget_changed(message: Message) -> Message:
    """Return the message without its original if it says something else now."""
    kept = message.extra.get(ORIGINAL)
    if not isinstance(kept, dict) or kept.get("digest") == _digest(message):
        return message
    left = {name: value for name, value in message.extra.items() if name != ORIGINAL}
    return message.model_copy(update={"extra": left})


def _share_of(message: Message, shape: str) -> Fields | None:
    """Return what the message keeps of an original; None if it was changed since."""
    kept = message.extra.get(ORIGINAL) if message.shape == shape else None
    return kept if isinstance(kept, dict) and kept.get("digest") == _digest(message) else None


@dataclass(slots=True)
class _Group:
    """The messages of one original, as far as they were found, by their number."""

    size: int
    first_at: int
    members: dict[int, int] = field(default_factory=dict)


def restore(messages: Sequence[Message], shape: str) -> dict[int, tuple[Fields, set[int]]]:
    """Return the originals of this shape that are complete and unchanged.

    Maps the position of the first message of each original to the original and to the
    positions of all its messages.
    """
    shares = [_share_of(message, shape) for message in messages]
    groups: list[_Group] = []
    unfinished: dict[str, list[_Group]] = {}
    for at, share in enumerate(shares):
        if share is None:
            continue
        name, number, size = _place_in_group(share)
        there = unfinished.setdefault(name, [])
        group = next((one for one in there if number not in one.members), None) if name else None
        if group is None:
            group = _Group(size, at)
            groups.append(group)
            if name:
                there.append(group)
        group.members[number] = at
        if len(group.members) == size and name:
            there.remove(group)
    found: dict[int, tuple[Fields, set[int]]] = {}
    for group in groups:
        if len(group.members) == group.size:
            members = [group.members[n] for n in range(group.size)]
            kept = [share for at in members if (share := shares[at]) is not None]
            try:
                whole = _whole([messages[at] for at in members], kept)
            except (KeyError, IndexError, TypeError, ValueError, AttributeError):
                continue  # a message that a caller made, or that a file brought
            found[group.first_at] = whole, set(members)
    return found


def _whole(messages: Sequence[Message], kept: Sequence[Fields]) -> Fields:
    filled = [_with_texts(share, message) for message, share in zip(messages, kept, strict=True)]
    whole: Fields = filled[0]
    for path, number, at in reversed(kept[0].get("cuts", [])):
        _replace_at(whole, tuple(path), filled[number][at])
    for path, kind in kept[0].get("kinds", []):
        holder: Any = whole
        for name in path[:-1]:
            holder = holder[name]
        holder[path[-1]] = _decode(holder[path[-1]], kind)
    return whole


def _with_texts(share: Fields, message: Message) -> Any:
    """Return a copy of the share with the texts that the message has."""
    value = _copy(share["raw"] if "raw" in share else share["share"])
    for path, source, *kind in share.get("texts", []):
        text = _text_at(message, source)
        _replace_at(value, tuple(path), json.loads(text) if kind else text)
    return value


def _text_at(message: Message, path: Sequence[str | int]) -> str:
    value: Any = message
    for name in path:
        value = (
            getattr(value, str(name))
            if isinstance(value, Message) or hasattr(value, "arguments")
            else value[name]
        )
    return str(value)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copy(inner) for name, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value
