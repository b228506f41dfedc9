"""A provider of messages that answer a query, and of the latest messages."""

from __future__ import annotations

from typing import ClassVar

from memory.agents.providers.provider import ProviderSession, SessionProvider
from memory.domain import validation
from memory.domain.corrections import explain_guesses
from memory.domain.errors import InvalidInput
from memory.domain.message import Message
from memory.facade.memory import Memory
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.window.reads import WindowRead
from memory.orchestrator.conversations.window.replacing import AT_ONCE
from memory.policies.message_alignment import behind
from memory.policies.message_ranking import best_of
from memory.policies.window import newest, with_stand_ins


@explain_guesses
class SemanticProvider(SessionProvider):
    """Returns the messages that answer the query best, and the latest ones.

    Messages of any age can be found. They are returned in the order in which they were
    said. Without a query only the latest are returned. Written messages are appended,
    as in `SlidingWindowProvider`, and none is removed.

    Args:
        memory: Keeps the sessions.
        namespace: The prefix of its sessions; `"semantic"` by default.
        user: The owner of its sessions.
        last: The number of latest messages.
        found: The maximum number of messages that are found by the query, at most
            1,000. With a `limit` on a read, the best of them are returned before the
            latest.
    """

    type: ClassVar[str] = "semantic"

    def __init__(
        self,
        memory: Memory,
        *,
        namespace: str | None = None,
        user: str | None = None,
        last: int = 10,
        found: int = 10,
    ) -> None:
        super().__init__(memory, namespace=namespace, user=user)
        self._last = validation.whole("last", last)
        if validation.whole("found", found) > validation.MAX_LIMIT:
            raise InvalidInput("found", f"must be at most {validation.MAX_LIMIT:,}, not {found:,}")
        self._found = found

    def _trim_window(self, window: list[Message]) -> list[Message]:
        return [window[at] for at in newest(window, self._last)]

    async def _best(
        self, held: ProviderSession, window: list[Message], query: str, most: int | None
    ) -> list[Message]:
        last = with_stand_ins(self._trim_window(window))
        hits = await held.session.search(query, limit=self._found) if query and self._found else []
        known = {message.id for message in last}
        earlier = [hit.item for hit in hits if hit.message.id not in known and not hit.message.tool_calls]
        shown = [item.message for item in sorted(earlier, key=lambda item: item.number)] + last
        found = {hit.message.id: rank for rank, hit in enumerate(hits)}
        return best_of(
            shown,
            {at: found.get(message.id, len(hits) + len(shown) - at) for at, message in enumerate(shown)},
            most=most,
        )

    async def _store(
        self, held: ProviderSession, conversation: Conversation, messages: list[Message], new: bool
    ) -> list[str]:
        read = self._last_read(conversation)
        is_known = read is not None and read.shown is not None
        there, now = ([], WindowRead()) if is_known else await self._window(held.session)
        seen = read.shown if read is not None and read.shown is not None else there
        more = messages if new else behind(messages, seen)
        named = {message.id: message for message in seen if message.id is not None}
        versions = now.versions if read is None else {**now.versions, **read.versions}
        told = [
            message for message in messages if message.id in named and message != named[message.id]
        ] + more
        stored: list[Message | None] = []
        for start in range(0, len(told), AT_ONCE):
            stored += await conversation.append_as_read(told[start : start + AT_ONCE], versions=versions)
        if is_known or not new:
            fresh = [message for message in stored[len(told) - len(more) :] if message is not None]
            self._knows(conversation, [*seen, *fresh])
        return []
