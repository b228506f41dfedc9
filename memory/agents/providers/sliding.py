"""A provider of the newest turns of each session."""

from __future__ import annotations

from typing import ClassVar

from memory.agents.providers.provider import ProviderSession, SessionProvider
from memory.domain import validation
from memory.domain.corrections import explain_guesses
from memory.domain.message import Message
from memory.facade.memory import Memory
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.window.reads import WindowRead
from memory.policies.context import ContextRequest
from memory.policies.message_alignment import behind
from memory.policies.window import blocks, turns


@explain_guesses
class SlidingWindowProvider(SessionProvider):
    """Keeps the newest turns of each session; a read returns those that fit.

    Written messages are appended. If a list starts like the last read or write of this
    instance, only its new messages are appended. A turn is never shown in part.

    Args:
        memory: Keeps the sessions.
        namespace: The prefix of its sessions; `"sliding-window"` by default.
        user: The owner of its sessions.
        max_turns: The maximum number of turns of a session that are kept.
        max_tokens: The maximum number of tokens that a read returns; None for no limit.
    """

    type: ClassVar[str] = "sliding-window"

    def __init__(
        self,
        memory: Memory,
        *,
        namespace: str | None = None,
        user: str | None = None,
        max_turns: int = 50,
        max_tokens: int | None = 4_000,
    ) -> None:
        super().__init__(memory, namespace=namespace, user=user)
        self._max_turns = validation.whole("max_turns", max_turns)
        self._max_tokens = None if max_tokens is None else validation.whole("max_tokens", max_tokens)

    async def stats(self, session_id: str = "default") -> dict[str, int] | None:
        """Return the number of stored turns and of their tokens.

        Returns:
            `turns` and `estimated_tokens`; None if there is no such session.
        """
        entries = await self.entries(session_id)
        return (
            {"turns": len(turns(entries[0].messages)), "estimated_tokens": entries[0].token_count or 0}
            if entries
            else None
        )

    def _trim_window(self, window: list[Message]) -> list[Message]:
        units = turns(window)
        return [window[at] for unit in units[max(0, len(units) - self._max_turns) :] for at in unit]

    async def _read_view(self, held: ProviderSession, window: list[Message]) -> list[Message]:
        messages = self._trim_window(window)
        if self._max_tokens is None:
            return messages
        context, _ = await (await held.session._conversation()).read(
            ContextRequest(self._max_tokens, by="turns", completes=True)
        )
        kept = {message.id for message in context.messages}
        return [messages[at] for block in blocks(messages) if messages[block[0]].id in kept for at in block]

    async def _store(
        self, held: ProviderSession, conversation: Conversation, messages: list[Message], new: bool
    ) -> list[str]:
        there, now = await self._window(held.session)
        seen = self._last_read(conversation)
        known = there if seen is None or seen.shown is None else seen.shown
        more = messages if new else behind(messages, known)
        together = with_changes(there, messages, now, seen or now) + more
        stored = await conversation.replace(self._trim_window(together), by_content=False, read=now)
        if seen is not None or not new:
            fresh = [message for message in stored if message.id not in now.versions]
            self._knows(conversation, [*known, *more[: max(0, len(more) - len(fresh))], *fresh])
        return []


def with_changes(
    there: list[Message], written: list[Message], now: WindowRead, seen: WindowRead
) -> list[Message]:
    """Apply the written messages to the stored messages with the same ids.

    A message that was edited since the caller's read (`seen`) stays as it is.
    """
    changed: dict[str | None, Message] = {
        message.id: message for message in written if message.id is not None
    }
    edited = {name for name, version in now.versions.items() if seen.versions.get(name, version) != version}
    return [message if message.id in edited else changed.get(message.id, message) for message in there]
