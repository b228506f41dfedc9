"""`session.stream()`: one message whose text arrives in pieces."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self

from memory.domain import validation
from memory.domain.corrections import explain_guesses
from memory.domain.errors import InvalidInput, MemoryTiersError
from memory.domain.message import Message
from memory.facade.arguments import changes_of
from memory.facade.runtime.async_context import AsyncContext
from memory.facade.runtime.handles import copies_are_the_handle
from memory.orchestrator.conversations.window.streaming import StreamedMessage

log = logging.getLogger(__name__)

INTERRUPTED = "interrupted"
"""The `finish_reason` of a message whose writer ended with an error."""


@copies_are_the_handle
@explain_guesses
class MessageStream(AsyncContext):
    """A message whose text arrives in pieces, such as a model's answer.

        async with session.stream() as out:
            async for piece in answer:
                await out.write(piece)

    The message is in the window from the first piece on. It is stored again at most
    every 0.5 seconds, and at the end. Until then its `is_final` is False: no compaction
    removes it, and the end of the session keeps it as it is then.

    If an error leaves the block, the message keeps the pieces so far, with the
    `finish_reason` `"interrupted"`. If nothing was written, there is no message.
    """

    def __init__(
        self,
        begin: Callable[[str], Awaitable[StreamedMessage]],
        message_id: str,
        check_process: Callable[[], None],
        check_claims: Callable[[Mapping[str, Any]], None],
        refuse_blocked: Callable[[], Awaitable[None]],
    ) -> None:
        self._begin = begin
        self._check_process = check_process
        self._check_claims = check_claims
        self._refuse_blocked = refuse_blocked
        self._id = message_id
        self._streamed: StreamedMessage | None = None
        self._room = validation.MAX_MESSAGE_BYTES
        self._finished = False

    def __repr__(self) -> str:
        return f"<MessageStream id={self._id!r}{' finished' * self._finished}>"

    @property
    def id(self) -> str:
        """The id of the message. It is known before the message is stored."""
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
        except MemoryTiersError as also:  # the caller must see the first error
            log.info("message %s keeps only the part that was stored: %s", self._id, also)

    async def write(self, text: str) -> None:
        """Add text to the message; 32 MiB in all.

        A store that fails is tried again with the next piece. Only the end of the
        stream confirms that everything is stored.

        Raises:
            Conflict: The message was finished meanwhile (by the end of the session),
                another writer writes it, or the session takes no messages.
            RejectedByGate: The origin of the view was blocked meanwhile.
        """
        piece = validation.text("text", text)
        if self._finished:
            raise InvalidInput("text", "came after the end of the message. Open another stream for more text")
        size = len(piece.encode())
        if size > self._room:
            raise InvalidInput(
                "text",
                f"the message would exceed {validation.MAX_MESSAGE_BYTES} bytes. Finish it, and send the rest"
                " as another message",
            )
        streamed = self._require_open()
        await self._refuse_blocked()
        self._room -= size
        await streamed.write(piece)

    async def finish(self, **changes: Any) -> Message | None:
        """Store the whole message, and return it as stored.

        A call that failed can be repeated. Leaving the `async with` block calls
        `finish` unless you did.

        Args:
            **changes: Other fields of the message: `usage`, `finish_reason`,
                `tool_calls`, `reasoning`, `metadata`, `name`.

        Returns:
            The message, or None if nothing was written and no field was given.
        """
        if "content" in changes:
            raise InvalidInput(
                "content",
                "was given, but the text comes from `write`. Change it afterwards with `session.update`",
            )
        changed = changes_of(changes, "MessageStream.finish")
        self._check_claims(changed)
        streamed = self._require_open()
        await self._refuse_blocked()
        stored = await streamed.finish(changed)
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
