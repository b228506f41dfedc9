"""Select the messages of a window for a model. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from memory.domain.message import Message, Role
from memory.domain.session import Context
from memory.policies.tokens import message_tokens
from memory.policies.window import (
    MessageArrangement,
    add_stand_ins,
    arrange,
    fit_in_steps,
    fit_to_budget,
    from_user,
    layered_view,
    newest,
)
from memory.ports.tokens import TokenCounter

LAYERED = 80
"""The default number of messages in a layered read, without system and summaries."""


@dataclass(frozen=True, slots=True)
class ContextRequest:
    """The request for a context; see `Session.context`.

    `budget` is the number of tokens for messages and tools together.
    """

    budget: int | None = None
    last: int | None = None
    by: Literal["blocks", "turns"] = "blocks"
    slack: float = 0
    layered: bool = False
    start: Literal["any", "user"] = "any"
    completes: bool = False
    """Whether calls without a result get a placeholder result, as models require."""
    earlier: Sequence[Message] = field(default_factory=tuple)
    """Archived summaries for a layered read."""
    as_stored: bool = False
    """Whether no message is added, moved to its call or left out.

    Then only `last` is considered, and it counts all messages.
    """

    @property
    def newest(self) -> int | None:
        """The maximum number of newest messages; None for no limit."""
        return LAYERED if self.layered and self.last is None else self.last


def read_out(
    window: MessageArrangement,
    costs: Sequence[int],
    said_by_then: Sequence[int],
    count: int,
    version: int,
    asked: ContextRequest,
    counter: TokenCounter,
    tools_tokens: int = 0,
) -> Context:
    """Return the requested context of a window.

    The messages are the end of the window, which has `count` messages in all. For
    `said_by_then` see `fit_in_steps`.
    """
    if asked.as_stored:
        return _as_stored(window, costs, count, version, asked.last)
    places = {id(message): at for at, message in enumerate(window.messages)}
    if asked.completes:
        said_by_then = [*said_by_then, *(said_by_then[found.position] for found in window.interrupted)]
        window, made = add_stand_ins(window)
        costs = [*costs, *(message_tokens(message, counter) for message in made)]
    some, weights, said = window, costs, said_by_then
    at_hand = {id(message): at for at, message in enumerate(window.messages)}
    if asked.layered or asked.last is not None:
        some = arrange(
            layered_view(window, asked.earlier, asked.newest or 0)
            if asked.layered
            else _newest(window, asked.last or 0)
        )
        at = [at_hand.get(id(message)) for message in some.messages]
        weights = [
            message_tokens(m, counter) if place is None else costs[place]
            for m, place in zip(some.messages, at, strict=True)
        ]
        said = [0 if place is None else said_by_then[place] for place in at]
    kept, over = some.order, 0
    if asked.budget is not None:
        room = asked.budget - tools_tokens
        if asked.slack:
            found = fit_in_steps(some, weights, said, room, max(1, int(room * asked.slack)), by=asked.by)
        else:
            found = fit_to_budget(some, weights, room, by=asked.by)
        kept, over = found.kept, found.over_budget
    if asked.start == "user":
        kept = from_user(some, kept)
    shown = [some.messages[at] for at in kept]
    there = {id(message) for message in shown}
    return Context(
        shown,
        [weights[at] for at in kept],
        version,
        count - len(there & places.keys()) - len(window.invalid_response),
        over,
        [str(window.messages[at].id) for at in window.invalid_response],
        [
            open_call.call.id
            for open_call in window.interrupted
            if id(window.messages[open_call.position]) in there
        ],
        tools_tokens,
        [layer_of(message) for message in shown],
    )


def _as_stored(
    window: MessageArrangement, costs: Sequence[int], count: int, version: int, last: int | None
) -> Context:
    first = 0 if last is None else max(0, len(window.messages) - last)
    shown = window.messages[first:]
    return Context(
        list(shown),
        list(costs[first:]),
        version,
        count - len(shown),
        invalid=[str(window.messages[at].id) for at in window.invalid_response if at >= first],
        interrupted=[open_call.call.id for open_call in window.interrupted if open_call.position >= first],
        layers=[layer_of(message) for message in shown],
    )


def _newest(window: MessageArrangement, last: int) -> list[Message]:
    """Return the `last` newest messages and the pinned ones, in order."""
    within = {*window.pinned_positions, *newest(window, last)}
    return [window.messages[at] for at in window.order if at in within]


def layer_of(message: Message) -> str:
    """Return the layer of a message."""
    return "summary" if message.is_summary else "system" if message.role is Role.SYSTEM else "recent"
