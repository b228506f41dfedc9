"""Select the messages of a conversation that a model is shown. Pure.

The functions take messages and return their positions. A call and its results stay
together, even if others wrote in between. System messages and summaries are outside of
blocks and turns: they are kept regardless of the budget.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Literal, TypeAlias

from memory.domain import validation
from memory.domain.corrections import explain_arguments
from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role, ToolCall
from memory.domain.shapes import responses
from memory.domain.shapes.registry import KEPT_WHOLE
from memory.domain.shapes.tool_calls import is_made_up, kept_of

INTERRUPTED = "TOOL_CALL_INTERRUPTED"
"""The text of a placeholder for a missing result."""
_STAND_IN = "interrupted:"
"""The prefix of a placeholder's id."""
RECALLED = "recalled"
"""The id of the message that shows a model the results of a memory search."""
_RECALLED_HEADING = "What is remembered that may help:\n"

Block = tuple[int, ...]
"""Positions of messages that stay together, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call without a result, and the position of the message that made it."""

    position: int
    call: ToolCall
    number: int = 0
    """The position of the call in its message."""


@dataclass(frozen=True)
class MessageArrangement:
    """Messages in the order for a model, as positions.

    `units` are messages that stay together, including pinned ones. `invalid_response`
    are results without a call, or with a call that already had its result. They leave
    the window and stay in the history for that reason. `interrupted` are calls without
    a result, which need one before a model is called.
    """

    messages: Sequence[Message]
    units: tuple[Block, ...]
    invalid_response: tuple[int, ...]
    interrupted: tuple[OpenCall, ...]
    answers: Mapping[int, str] = field(default_factory=dict)
    """The call ids of results that came without a call id, by position.

    The ids are found by the name of the tool and the order of calls.
    """

    @cached_property
    def order(self) -> tuple[int, ...]:
        return tuple(chain.from_iterable(self.units))

    @cached_property
    def pinned_positions(self) -> Block:
        """The positions of system messages, then of summaries."""
        pinned = [at for at, message in enumerate(self.messages) if is_pinned(message)]
        return tuple(sorted(pinned, key=lambda at: self.messages[at].is_summary))

    @cached_property
    def blocks(self) -> list[Block]:
        """Messages that stay together: a call with its results, or one message.

        Results without a call are in no block.
        """
        always = set(self.pinned_positions)
        return [unit for unit in self.units if unit[0] not in always]

    @cached_property
    def turns(self) -> list[Block]:
        """The turns; each ends at an assistant message without calls.

        Later messages form a last, incomplete turn.
        """
        found: list[Block] = []
        turn: Block = ()
        for block in self.blocks:
            turn += block
            if self.messages[block[0]].role is Role.ASSISTANT and not any(
                self.messages[at].tool_calls for at in block
            ):
                found.append(turn)
                turn = ()
        return [*found, turn] if turn else found

    def among(self, units: Sequence[Block]) -> int | None:
        """Return the number of the unit with the last user message."""
        spoken = (
            number
            for number in range(len(units) - 1, -1, -1)
            if any(_is_users(self.messages[at]) for at in units[number])
        )
        return next(spoken, None)


Messages: TypeAlias = Sequence[Message] | MessageArrangement
"""Messages, or their arrangement if it is used several times."""


def arrange(messages: Messages) -> MessageArrangement:
    """Arrange messages: put each result after its call, in the order of the results.

    A result belongs to the nearest earlier call with its id that has no result. After
    that, results without an id are matched in the last earlier message with calls. Each
    belongs to the first open call with its name, or to the first open call if it has no
    name. A call that another result names by id is not open, in any order. A real
    result replaces a placeholder.

    Items of one response, such as reasoning and parallel calls, are one unit. So their
    results stay behind all of them. An item that says nothing to a model, such as a
    notice in a transcript, belongs to the unit before it.
    """
    if isinstance(messages, MessageArrangement):
        return messages
    units: list[list[int]] = []
    waiting: dict[str, list[_Slot]] = {}
    last: list[_Slot] = []
    invalid: list[int] = []
    answers: dict[int, str] = {}
    unnamed: list[tuple[int, list[_Slot]]] = []

    def bind(position: int, found: _Slot | None) -> None:
        if found is None:
            invalid.append(position)
            return
        if found.answer is not None:
            found.unit.remove(found.answer)
            invalid.append(found.answer)
        found.unit.append(position)
        found.answer, found.is_open = position, is_stand_in(messages[position])

    for position, message in enumerate(messages):
        if message.role is not Role.TOOL:
            if units and _continues_unit(message, messages[position - 1], messages[units[-1][0]]):
                units[-1].append(position)
            else:
                units.append([position])
            slots = [_Slot(units[-1], number, call) for number, call in enumerate(message.tool_calls)]
            for slot in slots:
                waiting.setdefault(slot.call.id, []).append(slot)
            last = slots or last
        elif message.tool_call_id:
            bind(position, _called_by_id(message, waiting))
        else:
            unnamed.append((position, last))
    for position, slots in unnamed:
        found = _called_by_name(messages[position], slots)
        bind(position, found)
        if found is not None:
            answers[position] = found.call.id
            found.unit.sort()
    unanswered = [slot for slots in waiting.values() for slot in slots if slot.answer is None]
    unanswered.sort(key=lambda slot: (slot.unit[0], slot.number))
    open_calls = [OpenCall(slot.unit[0], slot.call, slot.number) for slot in unanswered]
    return MessageArrangement(
        messages, tuple(map(tuple, units)), tuple(sorted(invalid)), tuple(open_calls), answers
    )


def _continues_unit(message: Message, before: Message, first: Message) -> bool:
    """Return whether a message belongs to the unit of the message before it.

    `first` is the first message of that unit.
    """
    if _is_silent(message):
        return not is_pinned(first)
    return _is_item(message) and (_is_item(before) or (_is_silent(before) and _is_item(first)))


def _is_silent(message: Message) -> bool:
    """Return whether it is an item of a framework that says nothing to a model."""
    return (
        message.shape in KEPT_WHOLE
        and message.role is Role.ASSISTANT
        and not (message.content or message.tool_calls or message.reasoning or message.is_summary)
    )


def _is_item(message: Message) -> bool:
    return message.shape == responses.NAME and message.role is Role.ASSISTANT and not is_pinned(message)


def _may_continue(message: Message) -> bool:
    return _is_item(message) or _is_silent(message)


@dataclass(slots=True, eq=False)
class _Slot:
    """A call of a tool, with its unit and the position of its result.

    The call is open until a result that is no placeholder is found.
    """

    unit: list[int]
    number: int
    call: ToolCall
    answer: int | None = None
    is_open: bool = True


def _called_by_id(message: Message, waiting: Mapping[str, list[_Slot]]) -> _Slot | None:
    slots = waiting.get(message.tool_call_id or "", ())
    unanswered = (slot for slot in reversed(slots) if slot.answer is None)
    stood_in_for = (slot for slot in reversed(slots) if slot.is_open and not is_stand_in(message))
    return next(unanswered, None) or next(stood_in_for, None)


def _called_by_name(message: Message, slots: Sequence[_Slot]) -> _Slot | None:
    return next((slot for slot in slots if slot.is_open and message.name in (None, slot.call.name)), None)


def stand_in(message: Message, found: OpenCall) -> Message:
    """Return the placeholder result for an open call of this message."""
    call, is_unnamed = found.call, is_made_up(found.call.id, found.call.name)
    return Message(
        id=stand_in_id(f"{message.id}:{found.number}" if is_unnamed else call.id),
        role=Role.TOOL,
        content=INTERRUPTED,
        tool_call_id=call.id,
        name=call.name if is_unnamed else None,
        is_error=True,
        extra={"no_call_id": True} if is_unnamed and _shows_no_id(message, found) else {},
    )


def _shows_no_id(message: Message, found: OpenCall) -> bool:
    """Return whether the call came without an id, and goes out without one.

    Other formats have no such calls, or show the id that the call got here.
    """
    kept = kept_of(message, message.shape) if message.shape in ("openai", "plain") else []
    return bool(kept) and "unnamed" in kept[found.number]


def stand_in_id(call: str) -> str:
    """Return the id of the placeholder for the result of a call."""
    return f"{_STAND_IN}{call}"


def is_stand_in(message: Message) -> bool:
    return (
        message.role is Role.TOOL
        and message.content == INTERRUPTED
        and (message.id or "").startswith(_STAND_IN)
    )


def recall_message(found: Sequence[str]) -> Message:
    """Return the message that shows a model the results of a memory search."""
    return Message(
        id=RECALLED, role=Role.SYSTEM, content=_RECALLED_HEADING + "\n".join(f"- {one}" for one in found)
    )


def is_made_for_reading(message: Message) -> bool:
    """Return whether a read made this message up.

    Such a message is shown and not stored, even if it comes back without its id.
    """
    if message.id is None:
        is_recalled = message.role is Role.SYSTEM and message.text.startswith(_RECALLED_HEADING)
        return is_recalled or (message.role is Role.TOOL and message.content == INTERRUPTED)
    return message.id == RECALLED or is_stand_in(message)


def add_stand_ins(messages: Messages) -> tuple[MessageArrangement, list[Message]]:
    """Add a placeholder after each call without a result; also return the placeholders.

    The returned messages end with the placeholders. Model APIs refuse a call without
    its result.
    """
    it = arrange(messages)
    made = [stand_in(it.messages[found.position], found) for found in it.interrupted]
    if not made:
        return it, []
    behind: dict[int, list[int]] = {}
    for position, found in enumerate(it.interrupted, start=len(it.messages)):
        behind.setdefault(found.position, []).append(position)
    units = tuple((*unit, *behind.get(unit[0], ())) for unit in it.units)
    return (
        MessageArrangement([*it.messages, *made], units, it.invalid_response, it.interrupted, it.answers),
        made,
    )


def with_stand_ins(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with a placeholder after each call without a result."""
    it, made = add_stand_ins(messages)
    return [it.messages[at] for at in it.order] if made else list(messages)


def blocks(messages: Messages) -> list[Block]:
    return arrange(messages).blocks


def turns(messages: Messages) -> list[Block]:
    return arrange(messages).turns


@dataclass(frozen=True, slots=True)
class WindowFit:
    """The messages that fit a budget.

    `kept` has the order in which they are shown. `over_budget` is the excess of
    messages that must be kept; usually 0.
    """

    kept: tuple[int, ...]
    tokens: int
    over_budget: int


def fit_to_budget(
    messages: Messages,
    costs: Sequence[int],
    budget: int,
    *,
    by: Literal["blocks", "turns"] = "blocks",
    keep_last_user: bool = True,
) -> WindowFit:
    """Return the newest messages that fit, as whole blocks or whole turns.

    System messages come first and are kept, then summaries. Then blocks are added from
    the newest backwards, up to the first that does not fit; no older ones are added.
    With `keep_last_user` the block of the last user message is added before all others,
    and is kept even if it does not fit.
    """
    it = arrange(messages)
    units = it.blocks if by == "blocks" else it.turns
    weights = [sum([costs[at] for at in unit]) for unit in units]
    tokens, first, own = (
        sum([costs[at] for at in it.pinned_positions]),
        len(units),
        it.among(units) if keep_last_user else None,
    )
    if own is not None:
        tokens, weights[own] = tokens + weights[own], 0
    while first > 0 and tokens + weights[first - 1] <= budget:
        first -= 1
        tokens += weights[first]
    kept = units[first:] if own is None or own >= first else [units[own], *units[first:]]
    return WindowFit((*it.pinned_positions, *chain.from_iterable(kept)), tokens, max(0, tokens - budget))


def fit_in_steps(
    messages: Messages,
    costs: Sequence[int],
    said_by_then: Sequence[int],
    budget: int,
    step: int,
    *,
    by: Literal["blocks", "turns"] = "blocks",
) -> WindowFit:
    """Return messages as `fit_to_budget` does, but drop older blocks in steps.

    The shown messages start with the same message until another step of `step` tokens
    must be dropped. So the beginning of the model's input stays equal between calls,
    and the provider's prefix cache works.

    Steps are counted from the beginning of the session: `said_by_then` has the tokens
    of all messages up to each one. So every process cuts at the same place, even if it
    has only read the end of a window. If no step fits, the result is that of
    `fit_to_budget`.
    """
    it = arrange(messages)
    units = it.blocks if by == "blocks" else it.turns
    own = it.among(units)
    sizes = [sum([costs[at] for at in unit]) for unit in units]
    left = sum([costs[at] for at in it.pinned_positions]) + sum(sizes)
    for first, unit in enumerate(units):
        begins = first == 0 or said_by_then[units[first - 1][0]] // step != said_by_then[unit[0]] // step
        if begins and left <= budget and (own is None or own >= first):
            return WindowFit((*it.pinned_positions, *chain.from_iterable(units[first:])), left, 0)
        left -= sizes[first]
    return fit_to_budget(it, costs, budget, by=by)


def from_user(messages: Messages, kept: Sequence[int]) -> tuple[int, ...]:
    """Return the kept messages from the first user message on, and the pinned ones.

    If no kept message is a user message, all kept messages are returned.
    """
    it = arrange(messages)
    pinned, users = (
        set(it.pinned_positions),
        {block[0] for block in it.blocks if _is_users(it.messages[block[0]])},
    )
    first = next((number for number, at in enumerate(kept) if at in users), 0)
    return tuple(at for number, at in enumerate(kept) if number >= first or at in pinned)


def newest(messages: Messages, most: int) -> tuple[int, ...]:
    """Return the newest messages, without system messages and summaries.

    At most `most` messages are returned; none if `most` is 0 or less. If this limit
    would split a call from its results, the whole block is left out.
    """
    units, room = arrange(messages).blocks, most
    first = len(units)
    while first > 0 and len(units[first - 1]) <= room:
        first -= 1
        room -= len(units[first])
    return tuple(chain.from_iterable(units[first:]))


def reaches_back(
    messages: Messages,
    costs: Sequence[int],
    *,
    last: int | None,
    budget: int | None,
    by: Literal["blocks", "turns"] = "blocks",
) -> bool:
    """Return whether the messages read so far are enough to decide what is shown.

    If so, no earlier message would be shown or change the result. `messages`
    are the newest ones of the window, and the pinned ones. With `last`, this number of
    messages must be present. With `budget`, the oldest block (or turn) must not fit,
    and the last user message must be in a newer one. With either argument, every result
    must have its call.
    """
    it = arrange(messages)
    if it.invalid_response or (last is None and budget is None):
        return False
    if last is not None:
        begins_within = it.blocks and _may_continue(it.messages[it.blocks[0][0]])
        return sum(map(len, it.blocks[1:] if begins_within else it.blocks)) >= last
    units, kept = it.blocks if by == "blocks" else it.turns, fit_to_budget(it, costs, budget or 0, by=by).kept
    return (it.among(units) or 0) > 0 and units[0][0] not in kept


def layered_view(messages: Messages, summaries: Sequence[Message] = (), most: int = 80) -> list[Message]:
    """Return system messages, all summaries, and the newest `most` other messages.

    The summaries are the archived ones in `summaries` and those in `messages`.
    """
    it = arrange(messages)
    pinned = [it.messages[at] for at in it.pinned_positions]
    among = [m for m in pinned if m.is_summary]
    earlier = [s for s in summaries if not any(_is_same(s, m) for m in among)]
    return [
        *(m for m in pinned if not m.is_summary),
        *earlier,
        *among,
        *(it.messages[at] for at in newest(it, most)),
    ]


@dataclass(frozen=True, slots=True)
class Split:
    """The result of splitting a window for a compaction.

    The new window is `system`, the new summary and `kept`. The summary replaces
    `archived`.
    """

    system: tuple[int, ...]
    archived: tuple[int, ...]
    kept: tuple[int, ...]


def split_for_compaction(messages: Sequence[Message], keep_last: int) -> Split:
    """Keep the last messages that are neither system messages nor summaries.

    A number below 0 means 0, and a larger number than there are keeps all. An earlier
    summary is always archived. A cut between a call and its results moves back to the
    call, so more messages are kept. A message that is still being streamed is kept at
    any place.
    """
    it = arrange(messages)
    return _split(it, range(_first_kept_block(it, keep_last), len(it.blocks)))


def split_by_policy(messages: Sequence[Message], keep_last: int) -> Split:
    """Split as `split_for_compaction`, but keep the last user message.

    `archived` of the result may be empty.
    """
    it = arrange(messages)
    cut, of_user = _first_kept_block(it, keep_last), it.among(it.blocks)
    cut = cut if of_user is None else min(cut, of_user)
    return _split(it, range(cut, len(it.blocks)))


def split_by_tokens(messages: Messages, costs: Sequence[int], room: int) -> Split:
    """Keep the newest blocks that fit, from a user message on, and archive the others.

    Earlier summaries are archived too. Some blocks are kept even if they do not fit:
    that of the last user message, a last call that waits for results, and messages that
    are still being streamed.
    """
    it = arrange(messages)
    waiting = {one.position for one in it.interrupted}
    kept = {n for n, block in enumerate(it.blocks) if not all(it.messages[at].is_final for at in block)}
    kept |= {n for n in (it.among(it.blocks),) if n is not None}
    kept |= {n for n, block in enumerate(it.blocks[-1:], len(it.blocks) - 1) if block[0] in waiting}
    must_stay = frozenset(kept)
    sizes = [sum([costs[at] for at in block]) for block in it.blocks]
    room -= sum([sizes[n] for n in kept])
    for n in range(len(it.blocks) - 1, -1, -1):
        if n not in kept:
            room -= sizes[n]
            if room < 0:
                break
            kept.add(n)
    return _split(it, must_stay | {n for n in kept if n >= _first_of_user(it, kept)})


def _first_of_user(it: MessageArrangement, kept: Set[int]) -> int:
    """Return the number of the first of these blocks that is the user's; 0 without one.

    A context under a budget begins with it.
    """
    return next((n for n in sorted(kept) if _is_users(it.messages[it.blocks[n][0]])), 0)


@explain_arguments
@dataclass(frozen=True, slots=True)
class TokenThreshold:
    """Compact a window once it takes `share` of the tokens that a model has for input.

    The model has `max_tokens` less `max_output_tokens` for its input. The newest
    messages are kept up to `target`, a share of the tokens that the system message and
    the tools leave free. The rest has room for the summary. So every message is in the
    summary or in a context of `max_tokens`.

    `keep_last` keeps this number of messages instead, at any cost. Then a context of
    `max_tokens` may leave some of them out.

    Raises:
        InvalidInput: a number is out of range, or `target` exceeds `share`.
    """

    max_tokens: int
    max_output_tokens: int = 0
    keep_last: int | None = None
    share: float = 0.9
    target: float = 0.5

    def __post_init__(self) -> None:
        validation.whole("max_tokens", self.max_tokens, least=1)
        validation.whole("max_output_tokens", self.max_output_tokens)
        if self.keep_last is not None:
            validation.whole("keep_last", self.keep_last)
        validation.share("share", self.share)
        if validation.share("target", self.target) > self.share:
            raise InvalidInput(
                "target",
                f"must be at most the share of {self.share:g} at which a window is compacted, not"
                f" {self.target:g}",
            )

    @property
    def usable(self) -> int:
        """The tokens that the model has for its input."""
        return max(1, self.max_tokens - self.max_output_tokens)

    def is_reached(self, messages: Sequence[Message], tokens: int) -> bool:
        """Return whether compaction is needed.

        `tokens` must reach the `share` of the usable tokens, and the window must have
        messages besides those that `keep_last` keeps.
        """
        return tokens >= self.usable * self.share and sum(1 for m in messages if not is_pinned(m)) > (
            self.keep_last or 0
        )

    def split(self, messages: Sequence[Message], costs: Sequence[int], tokens: int) -> Split:
        """Split a window into the messages to summarise and the messages to keep.

        `costs` has the tokens of each message. `tokens` is the size of the whole input:
        all messages and the schemas of the tools.
        """
        if self.keep_last is not None:
            return split_by_policy(messages, self.keep_last)
        pinned = [at for at, message in enumerate(messages) if is_pinned(message)]
        of_summary = sum([costs[at] for at in pinned if messages[at].is_summary])
        fixed = tokens - sum([cost for at, cost in enumerate(costs) if at not in pinned]) - of_summary
        free = self.usable - fixed
        return split_by_tokens(
            messages, costs, min(int(free * self.target), free - of_summary)
        )  # the next summary may be as long


def _first_kept_block(it: MessageArrangement, keep_last: int) -> int:
    """Return the number of the first block that is kept."""
    room, cut = keep_last, len(it.blocks)
    while cut > 0 and room > 0:
        cut -= 1
        room -= len(it.blocks[cut])
    return cut


def _split(it: MessageArrangement, keep: Container[int]) -> Split:
    """Keep the blocks with these numbers, and messages that are being streamed."""
    messages = it.messages
    kept = tuple(
        at
        for n, block in enumerate(it.blocks)
        if n in keep or not all(messages[at].is_final for at in block)
        for at in block
    )
    system = tuple(at for at in it.pinned_positions if not messages[at].is_summary)
    stay = {*system, *kept}
    return Split(system, tuple(at for at in range(len(messages)) if at not in stay), kept)


def is_pinned(message: Message) -> bool:
    """Return whether the message is kept regardless of the budget."""
    return message.role is Role.SYSTEM or message.is_summary


def _is_users(message: Message) -> bool:
    return message.role is Role.USER and not message.is_summary


def _is_same(one: Message, other: Message) -> bool:
    return one is other or (one.id is not None and one.id == other.id)
