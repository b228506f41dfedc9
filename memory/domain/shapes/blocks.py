"""Contents in which text, thinking and calls alternate: taken apart into what a message
has, and put together in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from memory.domain.message import Message, ToolCall
from memory.domain.shapes.fields import Fields

_BETWEEN = "\n\n"
"""What stands between several thoughts of one message."""

Call = tuple[ToolCall, Fields]


@dataclass(slots=True)
class Blocks:
    """What was found in a content. `order` says what stood where; it is empty where
    there were parts only.
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
        """A block of thinking, whose text is under the name."""
        self.thoughts.append(block.pop(name))
        self.order.append({"thought": block, "under": name, "chars": len(self.thoughts[-1])})

    def add_verbatim(self, block: Fields) -> None:
        """A block that means nothing to others: kept where it stood."""
        self.order.append({"block": block})


def together(
    message: Message, kept: Fields, parts: list[Fields], call_back: Callable[[ToolCall, Fields], Fields]
) -> list[Fields]:
    """The blocks in the order in which they came; what was added since comes behind.
    Thinking that was changed since is left out: it was signed.
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
    """The reasoning in the pieces in which it came; None where it is not what came."""
    lengths = [entry["chars"] for entry in order if "thought" in entry]
    if sum(lengths) + len(_BETWEEN) * max(0, len(lengths) - 1) != len(reasoning):
        return None
    starts = [sum(lengths[:n]) + len(_BETWEEN) * n for n in range(len(lengths))]
    return (reasoning[start : start + length] for start, length in zip(starts, lengths, strict=True))
