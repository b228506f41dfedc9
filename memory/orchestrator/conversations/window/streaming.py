"""A streamed message: one message of the log, written in pieces.

The first piece appends it. Later pieces change it, at most once per `WRITTEN_EVERY`,
and so does the end. Until then it is not final, and no compaction archives it. A late
piece, for a message that was finished or is written by another, is dropped by its
version.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from memory.domain.errors import Conflict, StoreError
from memory.domain.message import Message, Role
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.storage.placement import Placement

log = logging.getLogger(__name__)

WRITTEN_EVERY = timedelta(seconds=0.5)
"""The least time between writes; pieces in between wait for the next write."""


class StreamedMessage:
    """A message that one writer writes in pieces."""

    def __init__(
        self,
        conversation: Conversation,
        placement: Placement,
        role: Role,
        message_id: str,
        metadata: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._conversation = conversation
        self._placement = placement
        self._role = role
        self._id = message_id
        self._metadata = dict(metadata)
        """Metadata that no change replaces."""
        self._said = ""
        self._begun = False
        self._written_at: datetime | None = None

    async def write(self, text: str) -> None:
        """Add text to the message.

        A failed store is tried again with the next piece; only `finish` guarantees that
        the text is stored.

        Raises:
            Conflict: the message was finished meanwhile, or another writer writes it.
            NotFound: the message was erased.
        """
        self._said += text
        now = self._placement.now()
        if self._said and (
            self._written_at is None or not timedelta() <= now - self._written_at < WRITTEN_EVERY
        ):
            self._written_at = now
            try:
                await self._store({})
            except StoreError as error:
                log.info(
                    "a piece of message %s of session %s is not stored yet: %s",
                    self._id,
                    self._conversation.id,
                    error,
                )

    async def finish(self, changes: Mapping[str, Any]) -> Message | None:
        """Store the whole message as final, with these changes.

        None if there is no text and no change. Repeating it does nothing more.
        """
        return await self._store({**changes, "is_final": True}) if self._said or changes else None

    async def _store(self, changes: Mapping[str, Any]) -> Message:
        if self._metadata and (not self._begun or "metadata" in changes):
            changes = {**changes, "metadata": {**changes.get("metadata", {}), **self._metadata}}
        if self._begun:
            return await self._conversation.change(self._id, self._make_change(changes), as_seen=True)
        first = Message(id=self._id, role=self._role, content=self._said, is_final=False).model_copy(
            update=dict(changes)
        )
        (stored,) = await self._conversation.append([first])
        self._begun = True
        return stored

    def _make_change(self, changes: Mapping[str, Any]) -> Callable[[Message], Message]:
        """Return the change that adds the text to the stored message.

        Other changes of the stored message are kept.
        """

        def grow_stored(stored: Message) -> Message:
            new = stored.model_copy(update={"content": self._said, **changes})
            if new != stored and (stored.is_final or not self._said.startswith(stored.text)):
                raise Conflict(
                    f"message '{self._id}' was"
                    f" {'finished' if stored.is_final else 'changed by another writer'} meanwhile; this piece"
                    " is dropped",
                    self._id,
                )
            return new

        return grow_stored
