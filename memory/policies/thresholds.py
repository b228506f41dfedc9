"""When a session's window is compacted before a model is asked, and what of it a
summary then stands for. Pure.

By tokens (`TokenThreshold`), by messages, by turns. Compaction of plain lists
(`CompactionSettings`) is a policy of its own: see `compacting`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from memory.domain import validation
from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role
from memory.policies.window import TokenThreshold, split_by_policy, turns


@dataclass(frozen=True, slots=True)
class MessageThreshold:
    """Compacts a window of more than `most` messages, system and summary aside, down to
    the last `keep_last` (half of `most`).
    """

    most: int = 80
    keep_last: int = None  # type: ignore[assignment]  # None where it is not given: see `_checked`

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep_last", _resolve_keep_last(self.most, self.keep_last))


@dataclass(frozen=True, slots=True)
class TurnThreshold:
    """Compacts a window of more than `most` turns down to the last `keep_last` (half of
    `most`); one that has not ended counts.
    """

    most: int = 40
    keep_last: int = None  # type: ignore[assignment]  # None where it is not given: see `_checked`

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep_last", _resolve_keep_last(self.most, self.keep_last))


WindowPolicy: TypeAlias = TokenThreshold | MessageThreshold | TurnThreshold


def archived_by(
    policy: WindowPolicy, messages: Sequence[Message], costs: Sequence[int], of_tools: int = 0
) -> tuple[int, ...]:
    """The positions of the messages that leave a window; none where it is not due, or
    nothing would.

    `costs` are the tokens of each message, `of_tools` those of the tools. The last user
    message stays (B46); a result stays with its call (B47).
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
    """How many stay: half of the most unless given."""
    validation.whole("most", most)
    if keep_last is None:
        return most // 2
    if validation.whole("keep_last", keep_last) > most:
        raise InvalidInput(
            "keep_last", f"must be at most the {most} at which it is compacted, not {keep_last}"
        )
    return keep_last
