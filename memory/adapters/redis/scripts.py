"""The scripts, what they are called with, and how they answer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from pathlib import Path

Argument = str | bytes | int
_SIZE = 4


@dataclass(frozen=True, slots=True)
class Call:
    """One step of a script: the bucket it is about, and its arguments."""

    bucket: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script and the SHA-1 that the server knows it by."""

    text: str
    digest: str


@cache
def script(name: str) -> Script:
    folder = Path(__file__).parent / "lua"
    text = (folder / "common.lua").read_text("utf-8") + "\n" + (folder / f"{name}.lua").read_text("utf-8")
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def frames(answer: bytes) -> list[bytes]:
    """The texts that a script framed."""
    found, at, end = [], 0, len(answer)
    while at < end:
        start = at + _SIZE
        at = start + int.from_bytes(answer[at:start], "big")
        found.append(answer[start:at])
    return found
