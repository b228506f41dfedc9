"""One run of an agent on a provider: read before it, and write if it succeeds."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from memory.domain import validation
from memory.domain.message import Message, Role
from memory.domain.shapes import import_message, import_messages
from memory.facade.resources.session import MessageLike
from memory.orchestrator.conversations.window.reads import WindowReads, reads_of_caller, with_reads

DEFAULT = "default"
"""The session that is used if the caller names none."""
Emit: TypeAlias = Callable[[str, Mapping[str, Any]], object]
"""Called with `memory:read` or `memory:write` and the details of the call.

The details are the session, the agent and the number of messages. It may be async.
"""


@dataclass(slots=True)
class Turn:
    """The messages that a run receives and adds.

    `messages` is the input for a model: system, history, user, then added messages.
    """

    system: list[Message]
    history: list[Message]
    new: list[Message]
    notes: list[str] = field(default_factory=list)
    """Notes of the provider's write about limits; known after the run."""

    @property
    def messages(self) -> list[Message]:
        """The messages for a model: system, history, then new ones."""
        return [*self.system, *self.history, *self.new]

    def add(self, message: MessageLike | Sequence[MessageLike]) -> None:
        """Add answers of the model or results of tools.

        They are part of `messages` from now on, and are stored if the run succeeds.
        """
        self.new += said_of(message)


def turn_of(
    provider: Any,
    user: MessageLike | Sequence[MessageLike],
    session_id: str = DEFAULT,
    *,
    system: str | None = None,
    limit: int | None = None,
    query: str | None = None,
    tags: Sequence[str] = (),
    agent: str | None = None,
    emit: Emit | None = None,
) -> AbstractAsyncContextManager[Turn]:
    """Run an agent on any provider: read first, and write the new messages at the end.

    Nothing is written if the run raises.

        async with provider.turn("what is my name?", "s1") as turn:
            turn.add(await model(turn.messages))

    Args:
        provider: Any object with `read` and `write`.
        user: A text or messages of the user.
        session_id: The session.
        system: The system prompt of the run; it is not stored.
        limit: As in `read`.
        query: As in `read`.
        tags: As in `write`.
        agent: As in `write`.
        emit: Called after the read and after the write.

    Returns:
        A context manager with the `Turn`.
    """
    given = said_of({"role": "user", "content": user} if isinstance(user, str) else user)
    said = [] if system is None else [Message(role=Role.SYSTEM, content=validation.text("system", system))]
    described_as(tags, agent)  # before the run, so that an error does not lose its messages
    reads = reads_of_caller()  # the read and the write of a run may be in different tasks
    return _turn(
        provider, reads, said, given, session_id, limit=limit, query=query, tags=tags, agent=agent, emit=emit
    )


@asynccontextmanager
async def _turn(
    provider: Any,
    reads: WindowReads,
    said: list[Message],
    given: list[Message],
    session_id: str,
    *,
    limit: int | None,
    query: str | None,
    tags: Sequence[str],
    agent: str | None,
    emit: Emit | None,
) -> AsyncIterator[Turn]:
    history = await with_reads(reads, provider.read, session_id, limit=limit, query=query)
    await _tell(emit, "memory:read", session_id, agent, len(history))
    turn = Turn(said, list(history), given)
    yield turn
    turn.notes = await with_reads(reads, written_new, provider, turn.new, session_id, tags=tags, agent=agent)
    await _tell(emit, "memory:write", session_id, agent, len(turn.new))


def described_as(tags: Sequence[str], agent: str | None) -> dict[str, tuple[str, ...] | str | None]:
    """Validate the tags and the agent of a write."""
    return {
        "tags": tuple(validation.tags(validation.sequence("tags", tags))),
        "agent": None if agent is None else validation.identifier("agent", agent),
    }


async def written_new(
    provider: Any, messages: Sequence[Message], session_id: str, *, tags: Sequence[str], agent: str | None
) -> list[str]:
    """Append messages with any provider.

    A provider that only takes whole lists gets its messages together with the new ones.
    """
    if getattr(provider, "takes_new", False):
        return list(await provider.write(messages, session_id, tags=tags, agent=agent, new=True))
    there = await provider.read(session_id)
    return list(await provider.write([*there, *messages], session_id, tags=tags, agent=agent) or [])


def said_of(given: MessageLike | Sequence[MessageLike]) -> list[Message]:
    """Return copies of one or several messages of any shape as `Message`s."""
    return import_messages(given, "messages") if isinstance(given, list | tuple) else import_message(given)


async def _tell(emit: Emit | None, name: str, session_id: str, agent: str | None, count: int) -> None:
    if emit is not None:
        told = emit(name, {"session_id": session_id, "agent": agent, "messages": count})
        if inspect.isawaitable(told):
            await told


class TurnMixin:
    """Adds `turn` to classes that have `read` and `write`, as providers do."""

    def turn(
        self,
        user: MessageLike | Sequence[MessageLike],
        session_id: str = DEFAULT,
        *,
        system: str | None = None,
        limit: int | None = None,
        query: str | None = None,
        tags: Sequence[str] = (),
        agent: str | None = None,
        emit: Emit | None = None,
    ) -> AbstractAsyncContextManager[Turn]:
        """Run an agent on this provider; see `turn_of`."""
        return turn_of(
            self, user, session_id, system=system, limit=limit, query=query, tags=tags, agent=agent, emit=emit
        )
