"""What of a window is read out for a model. Pure: a window and what its messages cost in, a `Context` out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memory.domain.message import Message, Role
from memory.domain.session import Context
from memory.policies.stepping import stepped
from memory.policies.window import arranged, fitted, layered, newest

LAYERED = 80
"""Messages of a layered read-out that are neither system nor summary, unless told (B51)."""


@dataclass(frozen=True, slots=True)
class ContextAsked:
    """What of a window is asked for: see `Session.context`. `budget` is what there is for messages and tools together."""

    budget: int | None = None
    last: int | None = None
    by_turns: bool = False
    slack: float = 0
    layered: bool = False
    earlier: Sequence[Message] = field(default_factory=tuple)
    """Summaries that were archived, for a layered read-out."""


def read_out(window: Sequence[Message], costs: Mapping[str | None, int], version: int, asked: ContextAsked, tools_tokens: int = 0) -> Context:
    """The window as it is asked for; `costs` has what each message takes, by its id."""
    arrangement = arranged(window)
    shown = [window[at] for at in arrangement.order]
    if asked.layered:
        shown = layered(window, asked.earlier, LAYERED if asked.last is None else asked.last)
    elif asked.last is not None:
        within = {window[at].id for at in newest(window, asked.last)}
        shown = [message for message in shown if message.id in within or layer_of(message) != "recent"]
    over = 0
    if asked.budget is not None:
        weights, by = [costs[message.id] for message in shown], "turns" if asked.by_turns else "blocks"
        room = asked.budget - tools_tokens
        found = stepped(shown, weights, room, asked.slack, by=by) if asked.slack else fitted(shown, weights, room, by=by)  # type: ignore[arg-type]
        shown, over = [shown[at] for at in found.kept], found.over_budget
    invalid = {window[at].id: None for at in arrangement.invalid_response}
    there = {message.id for message in shown}
    return Context(
        shown,
        [costs[message.id] for message in shown],
        version,
        [str(message.id) for message in window if message.id not in there and message.id not in invalid],
        over,
        [str(message_id) for message_id in invalid],
        [open_call.call.id for open_call in arrangement.interrupted],
        tools_tokens,
        [layer_of(message) for message in shown],
    )


def layer_of(message: Message) -> str:
    """Which layer a message is of (B51)."""
    return "summary" if message.is_summary else "system" if message.role is Role.SYSTEM else "recent"
