"""A provider of the newest messages of each session."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from memory.agents.providers.provider import (
    Messages,
    ProviderSession,
    SessionProvider,
    costs_of,
    storable_messages,
    trim_to_newest,
)
from memory.domain import validation
from memory.domain.corrections import explain_guesses
from memory.domain.message import Message
from memory.facade.memory import Memory
from memory.facade.resources.session import Session
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.storage.places import Places
from memory.policies.window import fit_to_budget, newest, with_stand_ins


@explain_guesses
class BufferProvider(SessionProvider):
    """Keeps the newest messages of each session.

    A written list replaces the stored one, and its newest `max_messages` are kept. A
    tool result is never kept without its call. Stored messages are recognised, as in
    `Session.replace`, so nothing is duplicated.

    Args:
        memory: Keeps the sessions.
        namespace: The prefix of its sessions; `"buffer"` by default.
        user: The owner of its sessions.
        max_messages: The maximum number of messages of a session that are kept.
        max_tokens: The maximum number of tokens that a read returns; all messages stay
            stored.
        seed: Messages by session id, written for sessions that do not exist yet.
    """

    type: ClassVar[str] = "buffer"

    def __init__(
        self,
        memory: Memory,
        *,
        namespace: str | None = None,
        user: str | None = None,
        max_messages: int = 20,
        max_tokens: int | None = None,
        seed: Mapping[str, Messages] | None = None,
    ) -> None:
        super().__init__(memory, namespace=namespace, user=user)
        self._max_messages = validation.whole("max_messages", max_messages)
        self._max_tokens = None if max_tokens is None else validation.whole("max_tokens", max_tokens)
        self._seed = {
            validation.identifier("seed", session_id): storable_messages(messages)
            for session_id, messages in (seed or {}).items()
        }
        self._sowing = asyncio.Lock()

    async def session_count(self) -> int:
        """Return the number of sessions."""
        await self._sow()
        return len([info async for info in self._infos()])

    async def _sow(self) -> None:
        """Write the seed sessions that do not exist yet.

        The first of several concurrent calls writes them, and the others wait for it.
        """
        if not self._seed:
            return
        async with self._sowing:
            while self._seed:
                session_id, messages = next(iter(self._seed.items()))
                if await self._memory.sessions.get(self._key(session_id)) is None:
                    await self._write_messages(session_id, messages, {"tags": (), "agent": None}, False)
                del self._seed[session_id]  # only now: other calls wait until it is written

    async def _before(self) -> None:
        await super()._before()
        await self._sow()

    def _trim_window(self, window: list[Message]) -> list[Message]:
        return trim_to_newest(window, self._max_messages)

    async def _read_view(self, held: ProviderSession, window: list[Message]) -> list[Message]:
        messages = self._trim_window(window)
        return (
            messages
            if self._max_tokens is None
            else await fit_to_tokens(held.session, messages, self._max_tokens)
        )

    async def _store(
        self, held: ProviderSession, conversation: Conversation, messages: list[Message], new: bool
    ) -> list[str]:
        before, read = list[Message](), self._last_read(conversation)
        if new:
            before, read = await self._window(held.session)
        elif read is not None and (
            hidden := read.hidden_messages
        ):  # they stay before the list while there is room
            written = {message.id for message in messages}
            before = [
                m for m in (await self._window(held.session))[0] if m.id in hidden and m.id not in written
            ]
            read = replace(read, places=read.places.with_all(Places.of(hidden.values())))
        whole = [*before, *messages]
        stored = await conversation.replace(
            [whole[at] for at in newest(whole, self._max_messages)], by_content=not new, read=read
        )
        if not new:
            self._knows(conversation, stored)
        return []


async def fit_to_tokens(session: Session, messages: Sequence[Message], budget: int) -> list[Message]:
    """Return the newest messages that fit the token budget of the session's counter.

    Calls stay with their results. The first block that does not fit ends the result.
    """
    costs = await costs_of(session)
    there = [message for message in with_stand_ins(messages) if message.id in costs]
    return [
        there[at]
        for at in fit_to_budget(
            there, [costs[message.id] for message in there], budget, keep_last_user=False
        ).kept
    ]
