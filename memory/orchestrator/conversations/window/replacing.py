"""A window that becomes the list handed in (C22)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memory.domain.message import Message
from memory.orchestrator.conversations.log.events import copy_of
from memory.orchestrator.storage.places import Places
from memory.policies.message_alignment import align_messages

AT_ONCE = 500
"""Messages that are put together."""


class Replacement:
    """What becomes of a window, and of the messages that it is to consist of."""

    def __init__(
        self,
        messages: Sequence[Message],
        shown: Sequence[Message],
        places: Mapping[str, int],
        known: Places,
        *,
        by_content: bool,
    ) -> None:
        """`shown` is the window in the order in which it is read, each of its messages
        with an id; `places` has theirs, the system message's not.

        `known` are the places of the caller's read: messages that others wrote
        elsewhere since stay, behind the list.
        """
        named = {message.id: at for at, message in enumerate(shown)}
        found = (
            align_messages(messages, shown) if by_content else [named.get(message.id) for message in messages]
        )
        kept = {shown[at].id for at in found if at is not None}
        self.leaving = Places.of(
            place for message_id, place in places.items() if message_id not in kept and place in known
        )
        pairs = list(zip(messages, found, strict=True))
        self._stands = [
            None if at is None or (message.id is not None and message != shown[at]) else shown[at]
            for message, at in pairs
        ]
        self.told = [
            message for message, stands in zip(messages, self._stands, strict=True) if stands is None
        ]
        """The messages that are new, or say something else under their id."""

    def as_stored(self, told: Sequence[Message | None]) -> list[Message]:
        """All of the messages, once those told of are stored. None stands for one that
        was erased meanwhile.
        """
        rest = iter(told)
        stored = [next(rest) if stands is None else copy_of(stands) for stands in self._stands]
        return [message for message in stored if message is not None]
