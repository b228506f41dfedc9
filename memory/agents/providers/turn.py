"""One run of an agent over a provider: read before it, write after it, and only if it
went well (C52 to C54).
"""

from __future__ import annotations

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
"""The session that is read and written where none is named (C2)."""
Emit: TypeAlias = Callable[[str, Mapping[str, Any]], object]
"""Is told `memory:read` and `memory:write`, with the session, the agent, and how many
messages.
"""


@dataclass(slots=True)
class Turn:
    """What a run is given and what it adds. `messages` are what a model is to be sent:
    system, history, user, then what was added.
    """

    system: list[Message]
    history: list[Message]
    new: list[Message]
    notes: list[str] = field(default_factory=list)
    """What the provider could not keep to when it wrote; known after the run."""

    @property
    def messages(self) -> list[Message]:
        return [*self.system, *self.history, *self.new]

    def add(self, message: MessageLike | Sequence[MessageLike]) -> None:
        """What the model answered, or a tool found: part of `messages` from now on, and
        stored when the run has gone well.
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
    """One run over any provider: reads, gives the run its messages, and writes what is
    new when it ends without an exception; else nothing.

        async with provider.turn("what is my name?", "s1", system="You are kind.") as turn:
            turn.add(await model(turn.messages))

    `user` is text or messages; `limit` and `query` are those of `read`, `tags` and
    `agent` those of `write`.
    """
    given = said_of({"role": "user", "content": user} if isinstance(user, str) else user)
    said = [] if system is None else [Message(role=Role.SYSTEM, content=validation.text("system", system))]
    described_as(tags, agent)  # not when the run is over, which would be lost
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
    tell(emit, "memory:read", session_id, agent, len(history))
    turn = Turn(said, list(history), given)
    yield turn
    turn.notes = await with_reads(reads, written_new, provider, turn.new, session_id, tags=tags, agent=agent)
    tell(emit, "memory:write", session_id, agent, len(turn.new))


def described_as(tags: Sequence[str], agent: str | None) -> dict[str, tuple[str, ...] | str | None]:
    """What a write says of a session, checked."""
    return {
        "tags": tuple(validation.tags(validation.sequence("tags", tags))),
        "agent": None if agent is None else validation.identifier("agent", agent),
    }


async def written_new(
    provider: Any, messages: Sequence[Message], session_id: str, *, tags: Sequence[str], agent: str | None
) -> list[str]:
    """Write messages behind those that are there, to any provider: one that only takes
    whole lists is given what it has, and they.
    """
    if getattr(provider, "takes_new", False):
        return list(await provider.write(messages, session_id, tags=tags, agent=agent, new=True))
    there = await provider.read(session_id)
    return list(await provider.write([*there, *messages], session_id, tags=tags, agent=agent) or [])


def said_of(given: MessageLike | Sequence[MessageLike]) -> list[Message]:
    """One message or several, in any shape, as ours: copies."""
    return import_messages(given, "messages") if isinstance(given, list | tuple) else import_message(given)


def tell(emit: Emit | None, name: str, session_id: str, agent: str | None, count: int) -> None:
    if emit is not None:
        emit(name, {"session_id": session_id, "agent": agent, "messages": count})


class TurnMixin:
    """What has a `read` and a `write` as a provider's."""

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
        """One run of an agent: see `turn_of`."""
        return turn_of(
            self, user, session_id, system=system, limit=limit, query=query, tags=tags, agent=agent, emit=emit
        )
