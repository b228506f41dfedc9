"""Replacement of a window by a list of messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from memory.domain.message import Message
from memory.orchestrator.conversations.log.events import EDITS, Draft, Event, EventType, copy_of
from memory.orchestrator.conversations.log.seen import LogSnapshot
from memory.orchestrator.storage.places import Places
from memory.policies.message_alignment import align_messages

AT_ONCE = 500
"""Messages that are put together."""


class WindowChanged(Exception):
    """The window changed between the check of its version and the first write."""


class WindowGuard:
    """Lets the first write of a replacement happen only if the window did not change.

    The later writes of the call come after that one, so they need no check.
    """

    def __init__(self, version: int) -> None:
        """`version` counts the changes of the window."""
        self._version = version
        self.is_passed = False

    def with_check(
        self, decide: Callable[[LogSnapshot], list[Draft]]
    ) -> Callable[[LogSnapshot], list[Draft]]:
        """Return `decide`, which raises `WindowChanged` if the window changed."""

        def decide_checked(seen: LogSnapshot) -> list[Draft]:
            if not self.is_passed and seen.state.after.version != self._version:
                raise WindowChanged
            return decide(seen)

        return decide_checked

    def note(self, events: Sequence[Event]) -> None:
        """Note a write, which may be none."""
        self.is_passed |= bool(events)


def begin_edits(seen: LogSnapshot) -> list[Draft]:
    """Return the event before the edits of a replacement, which are no events.

    Two replacements of one version may edit different messages. The place of the event
    is taken once, so one of them begins.
    """
    return [Draft(EventType.REPLACE, data={"left": [], "reason": "replaced", EDITS: True})]


class Replacement:
    """The difference between a window and the messages that replace it."""

    def __init__(
        self,
        messages: Sequence[Message],
        shown: Sequence[Message],
        places: Mapping[str, int],
        known: Places,
        *,
        by_content: bool,
    ) -> None:
        """Compare a window with the messages that replace it.

        Messages that others wrote since the caller's read stay, behind the list.

        Args:
            shown: The window in reading order, each message with an id.
            places: The places of these messages, without the system message.
            known: The places of the caller's read.
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
        """The messages that are new, or have other content under their id."""

    def as_stored(self, told: Sequence[Message | None]) -> list[Message]:
        """Return all messages, with the stored ones in place of those in `told`.

        None in the argument stands for a message that was erased meanwhile.
        """
        rest = iter(told)
        stored = [next(rest) if stands is None else copy_of(stands) for stands in self._stands]
        return [message for message in stored if message is not None]
