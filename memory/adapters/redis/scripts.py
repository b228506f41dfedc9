"""Lua scripts, their calls and their answers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from pathlib import Path

Argument = str | bytes | int
_SIZE = 4


@dataclass(frozen=True, slots=True)
class Call:
    """One step of a script: its bucket and its arguments."""

    bucket: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script and the SHA-1 that identifies it on the server."""

    text: str
    digest: str


@cache
def script(name: str) -> Script:
    folder = Path(__file__).parent / "lua"
    text = (folder / "common.lua").read_text("utf-8") + "\n" + (folder / f"{name}.lua").read_text("utf-8")
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def frames(answer: bytes) -> list[bytes]:
    """Split an answer into its length-prefixed parts."""
    found, at, end = [], 0, len(answer)
    while at < end:
        start = at + _SIZE
        at = start + int.from_bytes(answer[at:start], "big")
        found.append(answer[start:at])
    return found
