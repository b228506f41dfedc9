"""What of a conversation a model is shown. Pure: messages in, their positions out.

A call and its results are never parted, and stand together whoever wrote in between. System messages and summaries stand outside of blocks and
turns: they are kept whatever the budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from memory.domain.message import Message, Role, ToolCall

Block = tuple[int, ...]
"""Positions of messages that stay together, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that no result answers, and the position of the message that made it."""

    position: int
    call: ToolCall


@dataclass(frozen=True, slots=True)
class Arranged:
    """Positions of messages in the order in which a model takes them.

    `invalid_response` are results that answer no call, or one that had its result: they leave the window and stay in the history under that
    reason (B53). `interrupted` are calls without a result, to be mended before a model is asked.
    """

    order: tuple[int, ...]
    invalid_response: tuple[int, ...]
    interrupted: tuple[OpenCall, ...]


def arranged(messages: Sequence[Message]) -> Arranged:
    """The messages with each result directly behind the call it answers, in the order in which results came (B22, B53, B75).

    A result belongs to the nearest earlier call of its id that has none (decision B53).
    """
    answers: dict[int, list[int]] = {}
    waiting: dict[str, list[tuple[int, int]]] = {}
    invalid: list[int] = []
    for position, message in enumerate(messages):
        if message.role is not Role.TOOL:
            answers[position] = []
            for number, call in enumerate(message.tool_calls):
                waiting.setdefault(call.id, []).append((position, number))
        elif calls := waiting.get(message.tool_call_id or ""):
            asked, _ = calls.pop()
            answers[asked].append(position)
        else:
            invalid.append(position)
    order = tuple(each for asked, results in answers.items() for each in (asked, *results))
    unanswered = sorted(each for calls in waiting.values() for each in calls)
    return Arranged(order, tuple(invalid), tuple(OpenCall(at, messages[at].tool_calls[number]) for at, number in unanswered))


def blocks(messages: Sequence[Message]) -> list[Block]:
    """What is never parted: a call with its results, or one message (B47, C27, C45). Results that answer nothing are in no block."""
    found: list[list[int]] = []
    for position in arranged(messages).order:
        message = messages[position]
        if message.role is Role.TOOL:
            found[-1].append(position)
        else:
            found.append([position])
    return [tuple(block) for block in found if not is_pinned(messages[block[0]])]


def turns(messages: Sequence[Message]) -> list[Block]:
    """Turns end at an assistant's message without calls; what follows the last one is a turn that is not complete (C29)."""
    found: list[Block] = []
    turn: Block = ()
    for block in blocks(messages):
        turn += block
        ends = messages[block[0]]
        if ends.role is Role.ASSISTANT and not ends.tool_calls:
            found.append(turn)
            turn = ()
    return [*found, turn] if turn else found


@dataclass(frozen=True, slots=True)
class Fitted:
    """What of a list is shown under a budget. `kept` stands in the order in which it is shown.

    `over_budget` is by how much that which had to be kept exceeds the budget, mostly 0.
    """

    kept: tuple[int, ...]
    left_out: tuple[int, ...]
    tokens: int
    over_budget: int


def fitted(
    messages: Sequence[Message], costs: Sequence[int], budget: int, *, by: Literal["blocks", "turns"] = "blocks", keep_last_user: bool = True
) -> Fitted:
    """The newest of the messages that fit, whole blocks or whole turns (C17–C20, C34).

    System messages come first and are kept, then the summaries. Then blocks are taken from the newest back, up to the first that does not fit:
    older ones are not pulled in (C19). With `keep_last_user` the block of the last user message has its room before all others, and is kept
    even where there is none.
    """
    units = blocks(messages) if by == "blocks" else turns(messages)
    always = pinned(messages)
    last_user = _last_user(messages) if keep_last_user else None
    taken = {unit for unit in units if last_user in unit}
    tokens = sum(costs[at] for unit in (always, *taken) for at in unit)
    for unit in reversed(units):
        if unit in taken:
            continue
        cost = sum(costs[at] for at in unit)
        if tokens + cost > budget:
            break
        taken.add(unit)
        tokens += cost
    kept = (*always, *(at for unit in units if unit in taken for at in unit))
    return Fitted(kept, _others(messages, kept), tokens, max(0, tokens - budget))


def fitted_in_steps(
    messages: Sequence[Message],
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
    units = blocks(messages) if by == "blocks" else turns(messages)
    always, last_user = pinned(messages), _last_user(messages)
    tokens = sum(costs[at] for at in always)
    sizes = [sum(costs[at] for at in unit) for unit in units]
    left = tokens + sum(sizes)
    for first, unit in enumerate(units):
        begins = first == 0 or said_by_then[units[first - 1][0]] // step != said_by_then[unit[0]] // step
        if begins and left <= budget and (last_user is None or any(last_user in later for later in units[first:])):
            kept = (*always, *(at for later in units[first:] for at in later))
            return Fitted(kept, _others(messages, kept), left, 0)
        left -= sizes[first]
    return fitted(messages, costs, budget, by=by)


def newest(messages: Sequence[Message], most: int) -> tuple[int, ...]:
    """The newest so many that are neither system nor summary, in the order in which they are shown; none for 0 and below (C26).

    Where the cut falls into a call's results, what is left of them goes too: never more than `most` (decision C27).
    """
    flat = [at for block in blocks(messages) for at in block]
    within = set(flat[max(0, len(flat) - max(0, most)) :])
    return tuple(at for block in blocks(messages) if block[0] in within for at in block)


def reaches_back(
    messages: Sequence[Message], costs: Sequence[int], *, last: int | None, budget: int | None, by: Literal["blocks", "turns"] = "blocks"
) -> bool:
    """Whether the end of a window is enough to know what of all of it is shown: what stands before it would be left out, or change nothing.

    The messages are the window's newest ones, and those that are pinned. With `last`, so many are there; with `budget`, the oldest block there (or
    turn) has no room, and the last user message is among the newer ones. In either case no result there is without its call.
    """
    if arranged(messages).invalid_response or (last is None and budget is None):
        return False
    if last is not None:
        return sum(map(len, blocks(messages))) >= last
    units, kept = blocks(messages) if by == "blocks" else turns(messages), set(fitted(messages, costs, budget or 0, by=by).kept)
    last_user = _last_user(messages)
    return last_user is not None and bool(units) and units[0][0] not in kept and last_user not in units[0]


def layered(messages: Sequence[Message], summaries: Sequence[Message] = (), most: int = 80) -> list[Message]:
    """System messages, all summaries (those given, archived ones too, and those among the messages), and the newest `most` others (B51)."""
    among = [m for m in messages if m.is_summary]
    earlier = [s for s in summaries if not any(_is_same(s, m) for m in among)]
    system = [m for m in messages if m.role is Role.SYSTEM and not m.is_summary]
    return [*system, *earlier, *among, *(messages[at] for at in newest(messages, most))]


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
    return _split(messages, _cut(messages, keep_last))


def split_by_policy(messages: Sequence[Message], keep_last: int) -> Split:
    """As `split_for_compaction`, with the cut moved back to the last user message where that is earlier (B46). It may leave nothing to archive."""
    cut, last_user = _cut(messages, keep_last), _last_user(messages)
    of_user = [number for number, block in enumerate(blocks(messages)) if last_user in block]
    return _split(messages, min(cut, *of_user) if of_user else cut)


@dataclass(frozen=True, slots=True)
class Threshold:
    """When a window is compacted before a model is asked (B43, B44)."""

    max_tokens: int
    max_output_tokens: int = 0
    keep_last: int = 40
    share: float = 0.9

    @property
    def usable(self) -> int:
        """What the model has for its input."""
        return max(1, self.max_tokens - self.max_output_tokens)

    def is_reached(self, messages: Sequence[Message], tokens: int) -> bool:
        """Whether the tokens reach the share of what is usable, and there is more than what would be kept."""
        return tokens >= self.usable * self.share and sum(1 for m in messages if not is_pinned(m)) > self.keep_last


def _cut(messages: Sequence[Message], keep_last: int) -> int:
    """The number of the first block that is kept."""
    room = max(0, keep_last)
    sizes = [len(block) for block in blocks(messages)]
    cut = len(sizes)
    while cut > 0 and room > 0:
        cut -= 1
        room -= sizes[cut]
    return cut


def _split(messages: Sequence[Message], cut: int) -> Split:
    kept = tuple(at for n, block in enumerate(blocks(messages)) if n >= cut or not all(messages[at].is_final for at in block) for at in block)
    system = tuple(at for at, message in enumerate(messages) if message.role is Role.SYSTEM and not message.is_summary)
    return Split(system, _others(messages, (*system, *kept)), kept)


def pinned(messages: Sequence[Message]) -> Block:
    """System messages, then summaries."""
    pinned = [at for at, message in enumerate(messages) if is_pinned(message)]
    return tuple(sorted(pinned, key=lambda at: messages[at].is_summary))


def is_pinned(message: Message) -> bool:
    """Whether it is kept whatever the budget."""
    return message.role is Role.SYSTEM or message.is_summary


def _last_user(messages: Sequence[Message]) -> int | None:
    return max((at for at, message in enumerate(messages) if message.role is Role.USER and not message.is_summary), default=None)


def _others(messages: Sequence[Message], these: Iterable[int]) -> tuple[int, ...]:
    known = set(these)
    return tuple(at for at in range(len(messages)) if at not in known)


def _is_same(one: Message, other: Message) -> bool:
    return one is other or (one.id is not None and one.id == other.id)
