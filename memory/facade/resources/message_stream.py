"""`session.stream()`: one message, however its text arrives."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from memory.domain import validation
from memory.domain.corrections import explain_guesses
from memory.domain.errors import InvalidInput, MemoryTiersError
from memory.domain.message import Message
from memory.facade.arguments import changes_of
from memory.facade.runtime.async_context import AsyncContext
from memory.orchestrator.conversations.window.streaming import StreamedMessage

log = logging.getLogger(__name__)

INTERRUPTED = "interrupted"
"""The `finish_reason` of a message whose writer ended with an error."""


@explain_guesses
class MessageStream(AsyncContext):
    """A message that is being said, such as a model's answer:

        async with session.stream() as out:
            async for piece in answer:
                await out.write(piece)

    It is in the window from the first piece on, and is written again at most every 0.5
    s, and at the end. Until the end its `is_final` is false: no compaction takes it
    away, and the end of the session takes it as it stands. Where the block is left by
    an error the message stays as far as it came, with the `finish_reason`
    'interrupted'. Where nothing was written there is no message.
    """

    def __init__(
        self,
        begin: Callable[[str], Awaitable[StreamedMessage]],
        message_id: str,
        check_process: Callable[[], None],
    ) -> None:
        self._begin = begin
        self._check_process = check_process
        self._id = message_id
        self._streamed: StreamedMessage | None = None
        self._room = validation.MAX_MESSAGE_BYTES
        self._finished = False

    def __repr__(self) -> str:
        return f"<MessageStream id={self._id!r}{' finished' * self._finished}>"

    @property
    def id(self) -> str:
        """The message's id, known before it is there."""
        return self._id

    async def __aenter__(self) -> Self:
        self._streamed = await self._begin(self._id)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and not self._finished:
            await self.finish()
        if error is None or self._finished or not self._has_said:
            return
        try:
            await self.finish(finish_reason=INTERRUPTED)
        except MemoryTiersError as also:  # what went wrong first is what the caller must see
            log.info("message %s keeps only the part that was stored: %s", self._id, also)

    async def write(self, text: str) -> None:
        """Add to what the message says; 32 MiB in all. A store that fails is asked
        again with the next piece: only the end says that all is stored.

        Raises `Conflict` where the message was finished meanwhile (by the end of the
        session) or another says it, and where nothing may be appended.
        """
        piece = validation.text("text", text)
        if self._finished:
            raise InvalidInput("text", "came after the end of the message. Open another stream for more text")
        size = len(piece.encode())
        if size > self._room:
            raise InvalidInput(
                "text",
                f"the message would exceed {validation.MAX_MESSAGE_BYTES} bytes. Finish it, and send the rest as another message",
            )
        streamed = self._require_open()
        self._room -= size
        await streamed.write(piece)

    async def finish(self, **changes: Any) -> Message | None:
        """Store the whole message, with what else there is to say of it: `usage`,
        `finish_reason`, `tool_calls`, `reasoning`, `metadata`, `name`.

        Returns it as stored; None where nothing was written and nothing is given. A
        call that failed can be repeated. Leaving the block does it, if nobody has.
        """
        if "content" in changes:
            raise InvalidInput(
                "content",
                "is the text that was written to the stream. Change it afterwards with `session.update`",
            )
        stored = await self._require_open().finish(changes_of(changes, "MessageStream.finish"))
        self._finished = True
        return stored

    @property
    def _has_said(self) -> bool:
        return self._room < validation.MAX_MESSAGE_BYTES

    def _require_open(self) -> StreamedMessage:
        self._check_process()
        if self._streamed is None:
            raise InvalidInput("stream", "is not open; use it as `async with session.stream() as out`")
        return self._streamed
