"""Policies that decide when a session's window is compacted, and which messages leave.

A window is compacted before a model is called, by its tokens (`TokenThreshold`), its
messages or its turns. `compacting` compacts plain lists by a policy of its own
(`CompactionSettings`). Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from memory.domain import validation
from memory.domain.corrections import explain_arguments
from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role
from memory.policies.window import TokenThreshold, split_by_policy, turns


@explain_arguments
@dataclass(frozen=True, slots=True)
class MessageThreshold:
    """Compact a window of more than `most` messages down to its last `keep_last`.

    System messages and summaries do not count. The default of `keep_last` is half of
    `most`.

    Raises:
        InvalidInput: a number is not whole or is negative, or `keep_last` exceeds
            `most`.
    """

    most: int = 80
    keep_last: int = None  # type: ignore[assignment]  # None where it is not given: see `_resolve_keep_last`

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep_last", _resolve_keep_last(self.most, self.keep_last))


@explain_arguments
@dataclass(frozen=True, slots=True)
class TurnThreshold:
    """Compact a window of more than `most` turns down to its last `keep_last`.

    A turn that has not ended counts. `keep_last` is half of `most` by default.

    Raises:
        InvalidInput: a number is not whole or is negative, or `keep_last` exceeds
            `most`.
    """

    most: int = 40
    keep_last: int = None  # type: ignore[assignment]  # None where it is not given: see `_resolve_keep_last`

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep_last", _resolve_keep_last(self.most, self.keep_last))


WindowPolicy: TypeAlias = TokenThreshold | MessageThreshold | TurnThreshold


def archived_by(
    policy: WindowPolicy, messages: Sequence[Message], costs: Sequence[int], of_tools: int = 0
) -> tuple[int, ...]:
    """Return the positions of the messages that leave a window.

    It returns none if compaction is not due, or if no message would leave. The last
    user message stays, and a tool result stays with its call.

    Args:
        costs: The tokens of each message.
        of_tools: The tokens of the tools.
    """
    count, tokens = (
        sum(1 for message in messages if message.role is not Role.SYSTEM and not message.is_summary),
        sum(costs) + of_tools,
    )
    match policy:
        case TokenThreshold():
            archived = (
                policy.split(messages, costs, tokens).archived if policy.is_reached(messages, tokens) else ()
            )
        case MessageThreshold():
            archived = split_by_policy(messages, policy.keep_last).archived if count > policy.most else ()
        case TurnThreshold():
            units = turns(messages)
            kept = sum(map(len, units[len(units) - policy.keep_last :]))
            archived = split_by_policy(messages, kept).archived if len(units) > policy.most else ()
    return archived if any(not messages[at].is_summary for at in archived) else ()


def _resolve_keep_last(most: int, keep_last: int | None) -> int:
    """Return how many stay: half of `most` unless given."""
    validation.whole("most", most)
    if keep_last is None:
        return most // 2
    if validation.whole("keep_last", keep_last) > most:
        raise InvalidInput(
            "keep_last", f"must be at most the {most} at which it is compacted, not {keep_last}"
        )
    return keep_last
