"""Split contents with text, thinking and calls, and join them in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from memory.domain.message import Message, ToolCall
from memory.domain.shapes.fields import Fields

_BETWEEN = "\n\n"
"""The separator of several thoughts of one message."""

Call = tuple[ToolCall, Fields]


@dataclass(slots=True)
class Blocks:
    """The parts of a content.

    `order` records their order; it is empty if the content has only ordinary parts.
    """

    parts: list[Fields] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    order: list[Fields] = field(default_factory=list)

    @property
    def reasoning(self) -> str | None:
        return _BETWEEN.join(self.thoughts) or None

    @property
    def extra_fields(self) -> Fields:
        return {"blocks": self.order} if any(self.order) else {}

    def add_part(self, block: Fields) -> None:
        self.parts.append(block)
        self.order.append({})

    def add_call(self, call: Call) -> None:
        self.calls.append(call)
        self.order.append({"call": call[1]})

    def add_thinking(self, name: str, block: Fields) -> None:
        """Add a block of thinking, whose text is under `name`."""
        self.thoughts.append(block.pop(name))
        self.order.append({"thought": block, "under": name, "chars": len(self.thoughts[-1])})

    def add_verbatim(self, block: Fields) -> None:
        """Add a block that other formats do not know; it keeps its place."""
        self.order.append({"block": block})


def together(
    message: Message, kept: Fields, parts: list[Fields], call_back: Callable[[ToolCall, Fields], Fields]
) -> list[Fields]:
    """Return the blocks in their original order, and later additions after them.

    Changed thinking is left out, because it was signed.
    """
    left, calls = iter(parts), iter(message.tool_calls)
    thoughts = _thoughts(message.reasoning or "", kept.get("blocks", []))
    found: list[Fields] = []
    for entry in kept.get("blocks", []):
        if "thought" in entry:
            found += [{**entry["thought"], entry["under"]: next(thoughts)}] if thoughts is not None else []
        elif "block" in entry:
            found.append(entry["block"])
        elif "call" in entry:
            found += [call_back(call, entry["call"]) for call in islice(calls, 1)]
        else:
            found += islice(left, 1)
    return [*found, *left, *(call_back(call, {}) for call in calls)]


def _thoughts(reasoning: str, order: list[Fields]) -> Iterator[str] | None:
    """Split the reasoning into its original pieces; None if it was changed."""
    lengths = [entry["chars"] for entry in order if "thought" in entry]
    if sum(lengths) + len(_BETWEEN) * max(0, len(lengths) - 1) != len(reasoning):
        return None
    starts = [sum(lengths[:n]) + len(_BETWEEN) * n for n in range(len(lengths))]
    return (reasoning[start : start + length] for start, length in zip(starts, lengths, strict=True))
