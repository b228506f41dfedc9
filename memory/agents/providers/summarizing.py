"""A provider of a summary and the newest messages of each session."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from memory.agents.providers.provider import HELD, ProviderSession, SessionProvider
from memory.domain import validation
from memory.domain.corrections import explain_guesses
from memory.domain.errors import CompactionError, InvalidInput
from memory.domain.message import Message, Role
from memory.facade.memory import Memory
from memory.orchestrator.conversations.conversation import Conversation
from memory.policies.message_alignment import align_messages
from memory.policies.window import blocks

log = logging.getLogger(__name__)

PROMPT = (
    "Summarise this conversation for the assistant that goes on with it. Keep names, numbers, decisions and"
    " open questions."
)
HEADING = "[Conversation summary so far]\n"
CHARACTERS = 4
"""The maximum number of characters of a summary per token of its limit."""


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """The request to a summariser.

    It has the messages to summarise, the previous summary, the limit of the new one in
    tokens, and the prompt.
    """

    messages: list[Message]
    previous: str | None
    max_tokens: int
    prompt: str

    def to_messages(self) -> list[dict[str, str]]:
        """Return the request as messages for a model."""
        said = "\n".join(
            f"{message.role.value.upper()}: {message.said_or_thought}" for message in self.messages
        )
        earlier = (
            ""
            if self.previous is None
            else f"Previous summary:\n{self.previous}\n\nNew conversation to add:\n"
        )
        return [{"role": "system", "content": self.prompt}, {"role": "user", "content": earlier + said}]


Summariser: TypeAlias = Callable[[SummaryRequest], "str | Awaitable[str]"]


@explain_guesses
class SummarizingProvider(SessionProvider):
    """Summarises the older messages of a session, and keeps the newest.

    A written list replaces the stored one. If it exceeds `active_tokens`, its older
    half becomes part of the summary. This repeats until it fits or one message is left.
    A read returns the summary as a system message, then the messages that it does not
    cover.

    Args:
        memory: Keeps the sessions.
        summarise: Takes a `SummaryRequest` and returns text, or an awaitable of it. If
            it fails, `write` returns a note and the written messages stay.
        namespace: The prefix of its sessions; `"summarizing"` by default.
        user: The owner of its sessions.
        active_tokens: The maximum number of tokens of messages outside the summary.
        summary_tokens: The maximum number of tokens of the summary.
        prompt: The instruction for the summariser.
    """

    type: ClassVar[str] = "summarizing"

    def __init__(
        self,
        memory: Memory,
        summarise: Summariser,
        *,
        namespace: str | None = None,
        user: str | None = None,
        active_tokens: int = 3_000,
        summary_tokens: int = 600,
        prompt: str = PROMPT,
    ) -> None:
        super().__init__(memory, namespace=namespace, user=user)
        if not callable(summarise):
            raise InvalidInput(
                "summarise", f"must be a function from SummaryRequest to text, not {type(summarise).__name__}"
            )
        self._summarise = summarise
        self._active_tokens = validation.whole("active_tokens", active_tokens, least=1)
        self._summary_tokens = validation.whole("summary_tokens", summary_tokens, least=1)
        self._prompt = prompt

    async def summary(self, session_id: str = "default") -> str | None:
        """Return the current summary; None if there is none."""
        entries = await self.entries(session_id)
        return next(
            (message.text for entry in entries for message in entry.messages if message.is_summary), None
        )

    async def _read_view(self, held: ProviderSession, window: list[Message]) -> list[Message]:
        return [*_summary_messages(window), *(message for message in window if not message.is_summary)]

    async def _best(
        self, held: ProviderSession, window: list[Message], query: str, most: int | None
    ) -> list[Message]:
        shown = [*_summary_messages(window), *await super()._best(held, window, query, most)]
        return (
            [message for message in shown if not message.is_summary]
            if most is not None and len(shown) > most
            else shown
        )

    async def _store(
        self, held: ProviderSession, conversation: Conversation, messages: list[Message], new: bool
    ) -> list[str]:
        window, now = await self._window(held.session)
        read = self._last_read(conversation)
        summaries, active = [m for m in window if m.is_summary], [m for m in window if not m.is_summary]
        spoken = [message for message in messages if not message.is_summary]
        seen = [
            message
            for message in (active if read is None or read.shown is None else read.shown)
            if not message.is_summary
        ]
        matched = (
            []
            if new
            else [
                (m, None if at is None else seen[at].id)
                for m, at in zip(spoken, align_messages(spoken, seen), strict=True)
            ]
        )
        there = {message.id for message in active}
        kept = [
            m if named is None else m.model_copy(update={"id": named})
            for m, named in matched
            if named is None or named in there
        ]
        known = now if new or read is None or not read.is_read else read
        stored = await conversation.replace(
            [*summaries, *(active + spoken if new else kept)], by_content=not new, read=known
        )
        if not new:
            summarised = [message for message in seen if message.id not in there]
            self._knows(
                conversation,
                [*summarised, *[message for message in stored if not message.is_summary]][-HELD:],
            )
        elif read is not None:
            self._knows(conversation, [*seen, *[m for m in stored if m.id not in now.versions]][-HELD:])
        return await self._fit(conversation)

    async def _fit(self, conversation: Conversation) -> list[str]:
        """Compact until the active messages fit, or one block is left.

        Return notes about limits that could not be kept.
        """
        while True:
            context, _ = await conversation.read()
            counted = zip(context.messages, context.tokens, strict=True)
            active = [(m, tokens) for m, tokens in counted if m.role is not Role.SYSTEM and not m.is_summary]
            over = sum(tokens for _, tokens in active) - self._active_tokens
            sizes = [len(block) for block in blocks([message for message, _ in active])]
            if over <= 0:
                return []
            if len(sizes) < 2:
                return [
                    f"one message with the results of its calls exceeds active_tokens={self._active_tokens}"
                    f" by {over} tokens"
                ]
            archived = sizes[0]
            for size in sizes[1:-1]:
                if archived + size > sum(sizes) // 2:
                    break
                archived += size
            try:
                await conversation.compact(
                    self._make_summary, keep_last=sum(sizes) - archived, reason="active_tokens"
                )
            except CompactionError as error:
                log.warning("session %s exceeds active_tokens by %d tokens: %s", conversation.id, over, error)
                return [f"active_tokens is exceeded by {over} tokens, because no summary was made: {error}"]

    async def _make_summary(self, messages: Sequence[Message]) -> str:
        previous = next((message.text for message in messages if message.is_summary), None)
        asked = SummaryRequest(
            [m for m in messages if not m.is_summary], previous, self._summary_tokens, self._prompt
        )
        said = self._summarise(asked)
        text = await said if inspect.isawaitable(said) else said
        return text[: self._summary_tokens * CHARACTERS] if isinstance(text, str) else text


def _summary_messages(window: Sequence[Message]) -> list[Message]:
    """Return the summaries of the window as system messages with a heading."""
    return [
        Message(id=m.id, role=Role.SYSTEM, content=HEADING + m.text, is_summary=True)
        for m in window
        if m.is_summary
    ]
