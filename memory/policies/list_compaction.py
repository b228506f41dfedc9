"""Compaction of a plain list of messages, without a clock or a store.

The only model is the summariser that the caller gives. Compaction has four steps, and
each runs only while the list exceeds its target. They remove duplicates, remove the
least important messages, replace the older part by a summary, and remove the oldest
messages. A call and its results are removed together or stay together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from memory.domain import validation
from memory.domain.corrections import explain_arguments
from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role
from memory.policies.message_importance import duplicates, importance
from memory.policies.tokens import message_tokens
from memory.policies.window import Block, blocks
from memory.ports.tokens import TokenCounter

Summarise = Callable[[Sequence[Message]], Message | str]
"""A function that returns one message, or its text, for the messages given."""

BESIDE = 2
"""The tokens that each message of a list costs besides its own."""
FEWEST_TO_SUMMARISE = 3
_SENTENCES = 5
_SENTENCE_CHARS = 200
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|(?<=[。！？])|\n")


@explain_arguments
@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """Settings that say when a list is compacted, and how far.

    `threshold` and `target` are shares of `max_tokens`. The default of `target` is 0.7,
    or `threshold` if that is lower. The last `keep_recent` messages are protected; 0
    protects none. `keep_last_user` protects the last user message too.

    Raises:
        InvalidInput: a number is out of range, or `target` exceeds `threshold`.
    """

    max_tokens: int = 100_000
    target: float = None  # type: ignore[assignment]  # None where it is not given
    threshold: float = 0.85
    min_importance: float = 30
    keep_recent: int = 10
    summarise: bool = True
    deduplicate: bool = True
    similarity: float = 0.85
    task_words: tuple[str, ...] = ()
    keep_last_user: bool = False

    def __post_init__(self) -> None:
        validation.whole("max_tokens", self.max_tokens, least=1)
        validation.whole("keep_recent", self.keep_recent)
        for name in ("threshold", "min_importance"):
            validation.number(name, getattr(self, name))
        if self.threshold < 0:
            raise InvalidInput("threshold", f"must be 0 or more, not {self.threshold:g}")
        if self.target is None:
            object.__setattr__(self, "target", min(0.7, self.threshold))
        if not 0 <= validation.number("target", self.target) <= self.threshold:
            raise InvalidInput(
                "target",
                f"must be 0 or more and at most the threshold of {self.threshold:g}, not {self.target:g}",
            )
        validation.share("similarity", self.similarity)


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The result of a compaction: the new list, and what was removed.

    `strategy` is the last step that removed something: none, dedupe, importance,
    summarise or trim. `removed` holds positions in the list given, including those of
    the messages that `summary` replaces. `over_target` is the number of tokens by which
    the protected messages exceed the target.
    """

    messages: list[Message]
    strategy: str
    tokens_before: int
    tokens_after: int
    removed: tuple[int, ...] = ()
    summary: Message | None = None
    over_target: int = 0


@dataclass(frozen=True, slots=True)
class AppendResult:
    """A list after one message was appended."""

    messages: list[Message]
    compacted: bool
    result: CompactionResult


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """How many tokens of the maximum are used.

    `remaining` is negative if more is used than the maximum.
    """

    used: int
    remaining: int
    percent_used: float


def cost_of(message: Message, counter: TokenCounter) -> int:
    """Return the tokens of a message: its own `tokens`, or else a count."""
    return message.tokens if message.tokens is not None else message_tokens(message, counter)


def context_tokens(messages: Iterable[Message], counter: TokenCounter) -> int:
    """Return the tokens of a list: those of each message plus 2; 0 if it is empty."""
    return sum(cost_of(message, counter) + BESIDE for message in messages)


def token_budget(
    messages: Iterable[Message], settings: CompactionSettings, counter: TokenCounter
) -> TokenBudget:
    used = context_tokens(messages, counter)
    return TokenBudget(used, settings.max_tokens - used, 100 * used / settings.max_tokens)


def format_token_count(count: int) -> str:
    """Return the count in short form: `999`, `1.0k` or `1.5M`."""
    if count < 1_000:
        return str(count)
    thousands = f"{count / 1_000:.1f}"
    return f"{thousands}k" if float(thousands) < 1_000 else f"{count / 1_000_000:.1f}M"


def summary_of(messages: Sequence[Message]) -> Message:
    """Make a summary without a model.

    It has the first sentence of each of the first five messages. The same messages give
    the same summary.
    """
    sentences = [
        sentence
        for message in messages[:_SENTENCES]
        if (sentence := _first_sentence(message.said_or_thought))
    ]
    return _as_summary("Summary of the conversation so far: " + " ".join(sentences), messages)


def compact_messages(
    messages: Sequence[Message],
    settings: CompactionSettings,
    counter: TokenCounter,
    summarise: Summarise | None = None,
) -> CompactionResult:
    """Compact the list to the target if it has reached the threshold.

    Neither removed nor kept messages are changed. A summary is only used if it costs
    less than the messages that it replaces.
    """
    before = context_tokens(messages, counter)
    if not messages or before < settings.threshold * settings.max_tokens:
        return CompactionResult(list(messages), "none", before, before)
    work = _Work(messages, settings, counter)
    steps = (
        ("dedupe", work.deduplicate if settings.deduplicate else None),
        ("importance", work.drop_least),
        ("summarise", (lambda: work.summarise(summarise or summary_of)) if settings.summarise else None),
        ("trim", work.trim),
    )
    strategy = "none"
    for name, step in steps:
        if step is not None and work.tokens > work.target and step():
            strategy = name
    return work.result(strategy, before)


def append_message(
    messages: Sequence[Message],
    message: Message,
    settings: CompactionSettings,
    counter: TokenCounter,
    summarise: Summarise | None = None,
) -> AppendResult:
    """Append the message, and compact the list if it crosses the threshold."""
    result = compact_messages([*messages, message], settings, counter, summarise)
    return AppendResult(result.messages, result.strategy != "none", result)


class _Work:
    """One compaction under way."""

    def __init__(
        self, messages: Sequence[Message], settings: CompactionSettings, counter: TokenCounter
    ) -> None:
        self._all = messages
        self._settings = settings
        self._counter = counter
        self._costs = [cost_of(message, counter) + BESIDE for message in messages]
        self._removed: set[int] = set()
        self._summary: tuple[int, Message] | None = None
        self.tokens = sum(self._costs)
        self.target = settings.target * settings.max_tokens
        recent = set(range(max(0, len(messages) - settings.keep_recent), len(messages)))
        if settings.keep_last_user:
            recent |= {
                max((at for at, m in enumerate(messages) if m.role is Role.USER), default=len(messages))
            }
        in_blocks = blocks(messages)
        known = {at for block in in_blocks for at in block}
        lost = [(at,) for at, m in enumerate(messages) if at not in known and m.role is Role.TOOL]
        self._free: set[Block] = {block for block in (*in_blocks, *lost) if recent.isdisjoint(block)}
        self._summaries: list[Block] = [
            (at,) for at, m in enumerate(messages) if m.is_summary and at not in recent
        ]

    def deduplicate(self) -> bool:
        """Remove messages that are very similar to an earlier one.

        Protected messages, calls and messages with more than text stay.
        """
        takable = {block for block in self._free if len(block) == 1 and _is_only_text(self._all[block[0]])}
        alike = {(at,) for later in duplicates(self._all, self._settings.similarity).values() for at in later}
        for block in alike & takable:
            self._remove(block)
        return bool(alike & takable)

    def drop_least(self) -> bool:
        """Remove blocks below the minimum importance, the least important first."""
        weighed = sorted((self._weight(block), block) for block in self._free)
        least = [block for weight, block in weighed if weight < self._settings.min_importance]
        return self._remove_while_over(least)

    def summarise(self, make: Summarise) -> bool:
        """Make one summary of the unprotected messages, if there are at least three."""
        positions = sorted(at for block in self._free for at in block)
        if len(positions) < FEWEST_TO_SUMMARISE:
            return False
        summary = _make_summary(make, [self._all[at].model_copy(deep=True) for at in positions])
        cost = cost_of(summary, self._counter) + BESIDE
        if summary.is_empty or cost >= sum(self._costs[at] for at in positions):
            return False
        for block in sorted(self._free):
            self._remove(block)
        self._summary = (positions[0], summary)
        self.tokens += cost
        return True

    def trim(self) -> bool:
        """Remove the oldest blocks first, and earlier summaries last.

        Protected messages stay, and at least `keep_recent` + 1 messages remain.
        """
        return self._remove_while_over(
            [*sorted(self._free), *self._summaries], fewest=self._settings.keep_recent + 1
        )

    def result(self, strategy: str, before: int) -> CompactionResult:
        kept: list[Message] = []
        for position, message in enumerate(self._all):
            if self._summary is not None and self._summary[0] == position:
                kept.append(self._summary[1])
            if position not in self._removed:
                kept.append(message)
        summary = self._summary[1] if self._summary is not None else None
        over = max(0, self.tokens - int(self.target))
        return CompactionResult(
            kept, strategy, before, self.tokens, tuple(sorted(self._removed)), summary, over
        )

    def _remove_while_over(self, candidates: Iterable[Block], fewest: int = 0) -> bool:
        removed = False
        for block in candidates:
            if self.tokens <= self.target or self._count() - len(block) < fewest:
                break
            self._remove(block)
            removed = True
        return removed

    def _remove(self, block: Block) -> None:
        self._removed.update(block)
        self._free.discard(block)
        self.tokens -= sum(self._costs[at] for at in block)

    def _count(self) -> int:
        return len(self._all) - len(self._removed) + (self._summary is not None)

    def _weight(self, block: Block) -> float:
        return max(importance(self._all[at], at, len(self._all), self._settings.task_words) for at in block)


def _make_summary(make: Summarise, sources: list[Message]) -> Message:
    made: object = make(sources)
    if isinstance(made, str):
        return _as_summary(made, sources)
    if not isinstance(made, Message):
        raise InvalidInput("summarise", f"must return a message or its text, not {type(made).__name__}")
    summary = made.model_copy(update={"is_summary": True}, deep=True)
    summary.metadata.setdefault("summarizes", [m.id for m in sources if m.id is not None])
    return summary


def _as_summary(text: str, sources: Sequence[Message]) -> Message:
    named = sha256(
        "\0".join([text, *(f"{m.id or ''}\1{m.role.value}\1{m.text}" for m in sources)]).encode(
            "utf-8", "surrogatepass"
        )
    )
    about = {"importance": 70, "summarizes": [m.id for m in sources if m.id is not None]}
    content = text.strip()
    return Message(
        id=f"summary_{named.hexdigest()[:16]}",
        role=Role.SYSTEM,
        content=content,
        is_summary=True,
        metadata=about,
    )


def _first_sentence(text: str) -> str:
    """Return the text to the first end of a sentence or line, below 200 characters."""
    first = _SENTENCE_END.split(text.strip(), maxsplit=1)[0]
    return first if len(first) < _SENTENCE_CHARS else first[: _SENTENCE_CHARS - 2] + "…"


def _is_only_text(message: Message) -> bool:
    return not message.tool_calls and (
        isinstance(message.content, str) or all(part.get("type") == "text" for part in message.content)
    )
