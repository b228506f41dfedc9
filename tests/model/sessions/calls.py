"""How a worker asks something of a session: through a handle that it keeps, as an agent
does, or through a fresh one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import Any

from memory import Memory, Message, Session
from memory.policies.window_exit import ExitedMessages
from tests.model.clock import ModelClock
from tests.model.learning.calls import CALLS
from tests.model.sessions.talk import REMEMBER

BETWEEN = timedelta(seconds=1)
"""What passes between two pieces of a stream."""


@dataclass(frozen=True)
class Of:
    """Which session is meant: through a fresh handle, or the one that is kept; created
    as told where there is none, or not.
    """

    id: str
    created_as: dict[str, Any] | None = None
    fresh: bool = False


@dataclass(frozen=True)
class View:
    """Through which restricted view something is asked."""

    scopes: tuple[str, ...]
    role: str | None = None
    is_refused: bool = False
    """Whether the view has not what is asked for."""
    is_whole: bool = False
    """Whether the answer is judged by all that the tenant has."""


@dataclass(frozen=True)
class Summed:
    """A summariser; None fails."""

    text: str | None

    def __call__(self, messages: list[Message]) -> str:
        if self.text is None:
            raise ValueError("no summary today")
        return self.text


def noted(leaving: ExitedMessages) -> list[str]:
    """The callback of every memory: what it is asked to remember is noted, a text each."""
    return [f"noted: {message.text}" for message in leaving.messages if REMEMBER in message.text.split()]


class Handles:
    """The handles of one worker."""

    def __init__(self, clock: ModelClock) -> None:
        self._clock = clock
        self._kept: dict[tuple[str, str], Session] = {}

    def method(self, memory: Memory, name: str, args: Sequence[Any]) -> Callable[..., Any]:
        """What is called, with its positional arguments; `session.append` takes an `Of`
        first, and `view.get` a `View`.
        """
        noun, _, called = name.partition(".")
        if noun == "manager":
            return partial(CALLS[called], memory, *args)
        if noun == "view":
            view: View = args[0]
            restricted: Any = memory.restrict(view.scopes, role=view.role)  # type: ignore[arg-type]
            return partial(attrgetter(called)(restricted), *args[1:])
        if noun != "session":
            return partial(attrgetter(name)(memory), *args)
        session = self._of(memory, args[0])
        method = partial(self._streamed, session) if called == "stream" else attrgetter(called)(session)
        return partial(method, *args[1:])

    def _of(self, memory: Memory, of: Of) -> Session:
        if of.fresh or of.created_as is not None or (memory.tenant, of.id) not in self._kept:
            self._kept[memory.tenant, of.id] = memory.session(
                of.id, create=of.created_as is not None, **(of.created_as or {})
            )
        return self._kept[memory.tenant, of.id]

    async def _streamed(
        self, session: Session, message_id: str, pieces: Sequence[str], *, breaks: bool = False
    ) -> None:
        try:
            async with session.stream(message_id=message_id) as out:
                for piece in pieces:
                    await out.write(piece)
                    self._clock.now += BETWEEN
                if breaks:
                    raise _Broken
        except _Broken:
            pass


class _Broken(Exception):
    """What ends an agent in the middle of its answer."""


def as_told(answer: Any) -> Any:
    """An answer that can be sent to another process: a session is told by its id."""
    return answer.id if isinstance(answer, Session) else answer
