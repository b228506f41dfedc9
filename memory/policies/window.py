"""What of a conversation a model is shown. Pure: messages in, their positions out.

A call and its results are never parted, and stand together whoever wrote in between. System messages and summaries stand outside of blocks and
turns: they are kept whatever the budget.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Literal, TypeAlias

from memory.domain import door
from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role, ToolCall

Block = tuple[int, ...]
"""Positions of messages that stay together, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that no result answers, and the position of the message that made it."""

    position: int
    call: ToolCall


@dataclass(frozen=True)
class Arranged:
    """Messages in the order in which a model takes them, told by their positions. `units` are those that stay together, pinned ones too.

    `invalid_response` are results that answer no call, or one that had its result: they leave the window and stay in the history under that
    reason (B53). `interrupted` are calls without a result, to be mended before a model is asked.
    """

    messages: Sequence[Message]
    units: tuple[Block, ...]
    invalid_response: tuple[int, ...]
    interrupted: tuple[OpenCall, ...]

    @cached_property
    def order(self) -> tuple[int, ...]:
        return tuple(chain.from_iterable(self.units))

    @cached_property
    def pinned(self) -> Block:
        """System messages, then summaries."""
        pinned = [at for at, message in enumerate(self.messages) if is_pinned(message)]
        return tuple(sorted(pinned, key=lambda at: self.messages[at].is_summary))

    @cached_property
    def blocks(self) -> list[Block]:
        """What is never parted: a call with its results, or one message (B47, C27, C45). Results that answer nothing are in no block."""
        always = set(self.pinned)
        return [unit for unit in self.units if unit[0] not in always]

    @cached_property
    def turns(self) -> list[Block]:
        """Turns end at an assistant's message without calls; what follows the last one is a turn that is not complete (C29)."""
        found: list[Block] = []
        turn: Block = ()
        for block in self.blocks:
            turn += block
            ends = self.messages[block[0]]
            if ends.role is Role.ASSISTANT and not ends.tool_calls:
                found.append(turn)
                turn = ()
        return [*found, turn] if turn else found

    def among(self, units: Sequence[Block]) -> int | None:
        """The number of the unit in which the user spoke last."""
        spoken = (number for number in range(len(units) - 1, -1, -1) if any(_is_users(self.messages[at]) for at in units[number]))
        return next(spoken, None)


Messages: TypeAlias = Sequence[Message] | Arranged
"""What the functions here take: messages, or what they come to, where that is asked several things."""


def arranged(messages: Messages) -> Arranged:
    """The messages with each result directly behind the call it answers, in the order in which results came (B22, B53, B75).

    A result belongs to the nearest earlier call of its id that has none (decision B53).
    """
    if isinstance(messages, Arranged):
        return messages
    units: list[list[int]] = []
    waiting: dict[str, list[tuple[list[int], int]]] = {}
    invalid: list[int] = []
    for position, message in enumerate(messages):
        if message.role is not Role.TOOL:
            units.append([position])
            for number, call in enumerate(message.tool_calls):
                waiting.setdefault(call.id, []).append((units[-1], number))
        elif calls := waiting.get(message.tool_call_id or ""):
            calls.pop()[0].append(position)
        else:
            invalid.append(position)
    unanswered = sorted((unit[0], number) for calls in waiting.values() for unit, number in calls)
    open_calls = [OpenCall(at, messages[at].tool_calls[number]) for at, number in unanswered]
    return Arranged(messages, tuple(map(tuple, units)), tuple(invalid), tuple(open_calls))


def blocks(messages: Messages) -> list[Block]:
    return arranged(messages).blocks


def turns(messages: Messages) -> list[Block]:
    return arranged(messages).turns


@dataclass(frozen=True, slots=True)
class Fitted:
    """What of a list is shown under a budget. `kept` stands in the order in which it is shown.

    `over_budget` is by how much that which had to be kept exceeds the budget, mostly 0.
    """

    kept: tuple[int, ...]
    tokens: int
    over_budget: int


def fitted(
    messages: Messages, costs: Sequence[int], budget: int, *, by: Literal["blocks", "turns"] = "blocks", keep_last_user: bool = True
) -> Fitted:
    """The newest of the messages that fit, whole blocks or whole turns (C17–C20, C34).

    System messages come first and are kept, then the summaries. Then blocks are taken from the newest back, up to the first that does not fit:
    older ones are not pulled in (C19). With `keep_last_user` the block of the last user message has its room before all others, and is kept
    even where there is none.
    """
    it = arranged(messages)
    units = it.blocks if by == "blocks" else it.turns
    weights = [sum([costs[at] for at in unit]) for unit in units]
    tokens, first, own = sum([costs[at] for at in it.pinned]), len(units), it.among(units) if keep_last_user else None
    if own is not None:
        tokens, weights[own] = tokens + weights[own], 0
    while first > 0 and tokens + weights[first - 1] <= budget:
        first -= 1
        tokens += weights[first]
    kept = units[first:] if own is None or own >= first else [units[own], *units[first:]]
    return Fitted((*it.pinned, *chain.from_iterable(kept)), tokens, max(0, tokens - budget))


def fitted_in_steps(
    messages: Messages,
    costs: Sequence[int],
    said_by_then: Sequence[int],
    budget: int,
    step: int,
    *,
    by: Literal["blocks", "turns"] = "blocks",
) -> Fitted:
    """As `fitted`, but older blocks go in steps: what is shown begins with the same message until another step of so many tokens has to go.

    So the beginning of what a model is sent stays equal from one call to the next, and its provider's prefix cache holds. Steps are counted from the
    beginning of the session (`said_by_then`: how much had been said when each message was): who reads only the end of a window, and another
    process, cut at the same place. Where no step fits, it is cut as `fitted` cuts.
    """
    it = arranged(messages)
    units = it.blocks if by == "blocks" else it.turns
    own = it.among(units)
    sizes = [sum([costs[at] for at in unit]) for unit in units]
    left = sum([costs[at] for at in it.pinned]) + sum(sizes)
    for first, unit in enumerate(units):
        begins = first == 0 or said_by_then[units[first - 1][0]] // step != said_by_then[unit[0]] // step
        if begins and left <= budget and (own is None or own >= first):
            return Fitted((*it.pinned, *chain.from_iterable(units[first:])), left, 0)
        left -= sizes[first]
    return fitted(it, costs, budget, by=by)


def newest(messages: Messages, most: int) -> tuple[int, ...]:
    """The newest so many that are neither system nor summary, in the order in which they are shown; none for 0 and below (C26).

    Where the cut falls into a call's results, what is left of them goes too: never more than `most` (decision C27).
    """
    units, room = arranged(messages).blocks, most
    first = len(units)
    while first > 0 and len(units[first - 1]) <= room:
        first -= 1
        room -= len(units[first])
    return tuple(chain.from_iterable(units[first:]))


def reaches_back(
    messages: Messages, costs: Sequence[int], *, last: int | None, budget: int | None, by: Literal["blocks", "turns"] = "blocks"
) -> bool:
    """Whether the end of a window is enough to know what of all of it is shown: what stands before it would be left out, or change nothing.

    The messages are the window's newest ones, and those that are pinned. With `last`, so many are there; with `budget`, the oldest block there (or
    turn) has no room, and the last user message is among the newer ones. In either case no result there is without its call.
    """
    it = arranged(messages)
    if it.invalid_response or (last is None and budget is None):
        return False
    if last is not None:
        return sum(map(len, it.blocks)) >= last
    units, kept = it.blocks if by == "blocks" else it.turns, fitted(it, costs, budget or 0, by=by).kept
    return (it.among(units) or 0) > 0 and units[0][0] not in kept


def layered(messages: Messages, summaries: Sequence[Message] = (), most: int = 80) -> list[Message]:
    """System messages, all summaries (those given, archived ones too, and those among the messages), and the newest `most` others (B51)."""
    it = arranged(messages)
    pinned = [it.messages[at] for at in it.pinned]
    among = [m for m in pinned if m.is_summary]
    earlier = [s for s in summaries if not any(_is_same(s, m) for m in among)]
    return [*(m for m in pinned if not m.is_summary), *earlier, *among, *(it.messages[at] for at in newest(it, most))]


@dataclass(frozen=True, slots=True)
class Split:
    """What a compaction keeps: the window is then `system`, the new summary, `kept` (B35), and the summary stands for `archived`."""

    system: tuple[int, ...]
    archived: tuple[int, ...]
    kept: tuple[int, ...]


def split_for_compaction(messages: Sequence[Message], keep_last: int) -> Split:
    """Keeps the last so many that are neither system nor summary; below 0 means 0, more than there are keeps all (B34, B41).

    An earlier summary is archived in any case (B40). Where the cut falls into a call's results it moves back to the call: more are kept then (B47).
    A message that is still being said is kept, wherever it stands.
    """
    it = arranged(messages)
    return _split(it, range(_cut(it, keep_last), len(it.blocks)))


def split_by_policy(messages: Sequence[Message], keep_last: int) -> Split:
    """As `split_for_compaction`, with the cut moved back to the last user message where that is earlier (B46). It may leave nothing to archive."""
    it = arranged(messages)
    cut, of_user = _cut(it, keep_last), it.among(it.blocks)
    cut = cut if of_user is None else min(cut, of_user)
    return _split(it, range(cut, len(it.blocks)))


def split_by_tokens(messages: Messages, costs: Sequence[int], room: int) -> Split:
    """Keep the newest blocks that fit the room, and archive the others with every earlier summary.

    These stay even where there is no room: the block of the last user message, a last call that waits for results, and messages that are still being
    said.
    """
    it = arranged(messages)
    waiting = {one.position for one in it.interrupted}
    kept = {n for n, block in enumerate(it.blocks) if not all(it.messages[at].is_final for at in block)}
    kept |= {n for n in (it.among(it.blocks),) if n is not None}
    kept |= {n for n, block in enumerate(it.blocks[-1:], len(it.blocks) - 1) if block[0] in waiting}
    sizes = [sum([costs[at] for at in block]) for block in it.blocks]
    room -= sum([sizes[n] for n in kept])
    for n in range(len(it.blocks) - 1, -1, -1):
        if n not in kept:
            room -= sizes[n]
            if room < 0:
                break
            kept.add(n)
    return _split(it, kept)


@dataclass(frozen=True, slots=True)
class Threshold:
    """When a window is compacted before a model is asked: once it takes `share` of the tokens that are left beside `max_output_tokens`.

    The newest messages are kept up to `target`, a share of what the system message and the tools leave free. The rest of it has room for the
    summary, so every message is in the summary or in a context of `max_tokens`. Give `keep_last` to keep a number of messages instead, whatever
    they cost; a context of `max_tokens` may then leave some out.
    """

    max_tokens: int
    max_output_tokens: int = 0
    keep_last: int | None = None
    share: float = 0.9
    target: float = 0.5

    def __post_init__(self) -> None:
        for name in ("max_tokens", "max_output_tokens"):
            door.whole(name, getattr(self, name))
        if self.keep_last is not None:
            door.whole("keep_last", self.keep_last)
        door.share("share", self.share)
        if door.share("target", self.target) > self.share:
            raise InvalidInput("target", f"must be at most the share of {self.share:g} at which a window is compacted, not {self.target:g}")

    @property
    def usable(self) -> int:
        """What the model has for its input."""
        return max(1, self.max_tokens - self.max_output_tokens)

    def is_reached(self, messages: Sequence[Message], tokens: int) -> bool:
        """Whether the tokens reach the share of what is usable, and there is more than what would be kept."""
        return tokens >= self.usable * self.share and sum(1 for m in messages if not is_pinned(m)) > (self.keep_last or 0)

    def split(self, messages: Sequence[Message], costs: Sequence[int], tokens: int) -> Split:
        """What a compaction keeps of messages with these costs. `tokens` is what they and the tools come to."""
        if self.keep_last is not None:
            return split_by_policy(messages, self.keep_last)
        pinned = [at for at, message in enumerate(messages) if is_pinned(message)]
        of_summary = sum([costs[at] for at in pinned if messages[at].is_summary])
        fixed = tokens - sum([cost for at, cost in enumerate(costs) if at not in pinned]) - of_summary
        free = self.usable - fixed
        return split_by_tokens(messages, costs, min(int(free * self.target), free - of_summary))  # the next summary may be as long


def _cut(it: Arranged, keep_last: int) -> int:
    """The number of the first block that is kept."""
    room, cut = keep_last, len(it.blocks)
    while cut > 0 and room > 0:
        cut -= 1
        room -= len(it.blocks[cut])
    return cut


def _split(it: Arranged, keep: Container[int]) -> Split:
    """Keep the blocks of these numbers, and messages that are still being said."""
    messages = it.messages
    kept = tuple(at for n, block in enumerate(it.blocks) if n in keep or not all(messages[at].is_final for at in block) for at in block)
    system = tuple(at for at in it.pinned if not messages[at].is_summary)
    stay = {*system, *kept}
    return Split(system, tuple(at for at in range(len(messages)) if at not in stay), kept)


def is_pinned(message: Message) -> bool:
    """Whether it is kept whatever the budget."""
    return message.role is Role.SYSTEM or message.is_summary


def _is_users(message: Message) -> bool:
    return message.role is Role.USER and not message.is_summary


def _is_same(one: Message, other: Message) -> bool:
    return one is other or (one.id is not None and one.id == other.id)
