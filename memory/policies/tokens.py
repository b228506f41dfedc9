"""What messages and tools cost in tokens, by a counter that can be exchanged. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory.domain.errors import InvalidInput
from memory.domain.message import Message, text_of
from memory.ports.tokens import TokenCounter

MESSAGE_TOKENS = 4
"""What each message costs besides what is in it (A114, B45, C16)."""
PART_TOKENS = 1_000
"""What an image or another part that is not text counts as: about a picture of a megapixel. No bytes are looked at."""

_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+")


@dataclass(frozen=True, slots=True)
class DefaultCounter:
    """A quarter of a token a character, one and a half a Chinese, Japanese or Korean one; summed, then rounded up (decision A111–A113)."""

    name: str = "characters/4"

    def count(self, text: str) -> int:
        wide = 0 if text.isascii() else len(text) - len(_CJK.sub("", text))
        return -(-(len(text) + 5 * wide) // 4)


@dataclass(frozen=True, slots=True)
class FunctionCounter:
    """Any function that counts the tokens of a text, as a counter: `FunctionCounter(lambda text: len(encoding.encode(text)), name="o200k")`.

    `name` is stored beside what was counted: change it whenever the function counts otherwise. Without one the function's own name is taken.
    """

    function: Callable[[str], int]
    name: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            named = getattr(self.function, "__qualname__", type(self.function).__qualname__)
            object.__setattr__(self, "name", f"{getattr(self.function, '__module__', '?')}.{named}")

    def count(self, text: str) -> int:
        """What the function says; 0 for the empty text, of which it is not asked. Raises `InvalidInput` where it says no number of tokens."""
        counted = self.function(text) if text else 0
        if isinstance(counted, bool) or not isinstance(counted, int) or counted < 0:
            raise InvalidInput("token_counter", f"must return a whole number, not below 0; '{self.name}' returned {repr(counted)[:40]}")
        return counted


def message_tokens(message: Message, counter: TokenCounter) -> int:
    """4, and what its content, its reasoning and the names and arguments of its calls cost together.

    Never more for how it would be written as JSON (decision B45). A part that is not text costs `PART_TOKENS`.
    """
    parts = [] if isinstance(message.content, str) else message.content
    others = sum(1 for part in parts if _said_by(part) is None)
    return MESSAGE_TOKENS + counter.count("".join(_said(message))) + others * PART_TOKENS


def messages_tokens(messages: Iterable[Message], counter: TokenCounter) -> int:
    """What a list costs: the sum of its messages (C16)."""
    return sum(message_tokens(message, counter) for message in messages)


def tools_tokens(tools: Sequence[Mapping[str, Any]], counter: TokenCounter) -> int:
    """What the schemas of tools cost: their JSON (B45). No tools cost nothing."""
    return counter.count(json.dumps([dict(tool) for tool in tools], ensure_ascii=False)) if tools else 0


def _said(message: Message) -> Iterator[str]:
    if isinstance(message.content, str):
        yield message.content
    else:
        yield from (_said_by(part) or "" for part in message.content)
    yield message.reasoning or ""
    for call in message.tool_calls:
        yield call.name
        yield call.arguments


def _said_by(part: Mapping[str, Any]) -> str | None:
    """The text of a part, also of a document that is given as text; None where it is something else."""
    source = part.get("source")
    if isinstance(source, Mapping) and source.get("type") == "text" and isinstance(source.get("data"), str):
        return str(source["data"])
    if isinstance(part.get("refusal"), str):
        return str(part["refusal"])
    return text_of(part) if isinstance(part.get("text"), str) else None
