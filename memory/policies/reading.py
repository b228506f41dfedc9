"""What of a window is read out for a model. Pure: a window and what its messages cost in, a `Context` out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from memory.domain.message import Message, Role
from memory.domain.session import Context
from memory.policies.tokens import message_tokens
from memory.policies.window import arranged, fitted, fitted_in_steps, is_pinned, layered, newest
from memory.ports.tokens import TokenCounter

LAYERED = 80
"""Messages of a layered read-out that are neither system nor summary, unless told (B51)."""


@dataclass(frozen=True, slots=True)
class ContextAsked:
    """What of a window is asked for: see `Session.context`. `budget` is what there is for messages and tools together."""

    budget: int | None = None
    last: int | None = None
    by: Literal["blocks", "turns"] = "blocks"
    slack: float = 0
    layered: bool = False
    earlier: Sequence[Message] = field(default_factory=tuple)
    """Summaries that were archived, for a layered read-out."""

    @property
    def newest(self) -> int | None:
        """How many of the newest messages there are at most; None for no limit."""
        return LAYERED if self.layered and self.last is None else self.last


def read_out(
    window: Sequence[Message],
    costs: Sequence[int],
    said_by_then: Sequence[int],
    count: int,
    version: int,
    asked: ContextAsked,
    counter: TokenCounter,
    tools_tokens: int = 0,
) -> Context:
    """The window as it is asked for, of which this is the end, and which has `count` messages in all; for `said_by_then` see `fitted_in_steps`."""
    arrangement = arranged(window)
    if asked.layered:
        shown = layered(window, asked.earlier, asked.newest or 0)
    elif asked.last is not None:
        within = set(newest(window, asked.last))
        shown = [window[at] for at in arrangement.order if at in within or is_pinned(window[at])]
    else:
        shown = [window[at] for at in arrangement.order]
    known = {id(message): (cost, said) for message, cost, said in zip(window, costs, said_by_then, strict=True)}
    told = [known.get(id(message)) or (message_tokens(message, counter), 0) for message in shown]
    over = 0
    if asked.budget is not None:
        room, weights = asked.budget - tools_tokens, [cost for cost, _ in told]
        if asked.slack:
            step = max(1, int(room * asked.slack))
            found = fitted_in_steps(shown, weights, [said for _, said in told], room, step, by=asked.by)
        else:
            found = fitted(shown, weights, room, by=asked.by)
        shown, told, over = [shown[at] for at in found.kept], [told[at] for at in found.kept], found.over_budget
    there = {id(message) for message in shown}
    return Context(
        shown,
        [cost for cost, _ in told],
        version,
        count - sum(id(message) in there for message in window) - len(arrangement.invalid_response),
        over,
        [str(window[at].id) for at in arrangement.invalid_response],
        [open_call.call.id for open_call in arrangement.interrupted if id(window[open_call.position]) in there],
        tools_tokens,
        [layer_of(message) for message in shown],
    )


def layer_of(message: Message) -> str:
    """Which layer a message is of (B51)."""
    return "summary" if message.is_summary else "system" if message.role is Role.SYSTEM else "recent"
