"""Strands Agents over `memory`: a repository of sessions.

Snapshots and the memory store are in `stores.py`.
"""

from __future__ import annotations

import json
from typing import Any

from strands.session.session_repository import SessionRepository
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage

from memory import BlockingMemory, Conflict, Document, Memory, Scope

PAGE = 1_000
NUMBER_DIGITS = 12


class MemorySessionRepository(SessionRepository):
    """Keeps the sessions of Strands agents in the documents of one scope.

        memory = Memory("sqlite:///agents.db", loop="own")
        sessions = MemorySessionRepository(memory, "user:ada")
        manager = RepositorySessionManager("chat-1", sessions)
        agent = Agent(session_manager=manager)

    Several processes may use one repository. A session, an agent or a message that
    exists is never overwritten by another one that is created. Erasing the scope, such
    as by `memory.admin.erase_user`, erases its sessions.

    A value is the text of its JSON, as in Strands' own managers. So it may be as deep
    as they allow, and hold NaN.

    Args:
        memory: An open memory that was made with `loop="own"`. Its owner closes it.
        scope: The scope of the sessions. Use one scope for each user.
    """

    def __init__(self, memory: Memory, scope: Scope | str) -> None:
        self._documents = BlockingMemory(memory).documents
        self._scope = scope

    def create_session(self, session: Session, **kwargs: Any) -> Session:
        """Store a new session.

        Raises:
            SessionException: The session exists.
        """
        self._create(_key(session.session_id), session.to_dict(), f"Session {session.session_id}")
        return session

    def read_session(self, session_id: str, **kwargs: Any) -> Session | None:
        """Return a session, or None."""
        found = self._read(_key(session_id))
        return None if found is None else Session.from_dict(found)

    def delete_session(self, session_id: str, **kwargs: Any) -> None:
        """Delete a session with its agents and messages.

        Raises:
            SessionException: There is no such session.
        """
        self._require(_key(session_id), f"Session {session_id}")
        self._documents.delete_many(self._scope, prefix=_key(session_id, ""))
        self._documents.delete(self._scope, _key(session_id))

    def create_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """Store a new agent of a session.

        Raises:
            SessionException: There is no such session, or it has the agent.
        """
        self._require(_key(session_id), f"Session {session_id}")
        agent_id = session_agent.agent_id
        self._create(_key(session_id, "agent", agent_id), session_agent.to_dict(), f"Agent {agent_id}")

    def read_agent(self, session_id: str, agent_id: str, **kwargs: Any) -> SessionAgent | None:
        """Return an agent of a session, or None."""
        found = self._read(_key(session_id, "agent", agent_id))
        return None if found is None else SessionAgent.from_dict(found)

    def update_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """Replace an agent of a session; its `created_at` stays.

        Raises:
            SessionException: The session has no such agent.
        """
        agent_id = session_agent.agent_id
        self._update(_key(session_id, "agent", agent_id), session_agent, f"Agent {agent_id}")

    def create_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any
    ) -> None:
        """Store a new message of an agent.

        Raises:
            SessionException: There is no such agent, or it has a message with this
                number. Then another process uses the session too.
        """
        self._require(_key(session_id, "agent", agent_id), f"Agent {agent_id}")
        number = session_message.message_id
        self._create(_message(session_id, agent_id, number), session_message.to_dict(), f"Message {number}")

    def read_message(
        self, session_id: str, agent_id: str, message_id: int, **kwargs: Any
    ) -> SessionMessage | None:
        """Return a message of an agent, or None."""
        found = self._read(_message(session_id, agent_id, message_id))
        return None if found is None else SessionMessage.from_dict(found)

    def update_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any
    ) -> None:
        """Replace a message of an agent; its `created_at` stays.

        Raises:
            SessionException: The agent has no message with this number.
        """
        number = session_message.message_id
        self._update(_message(session_id, agent_id, number), session_message, f"Message {number}")

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **kwargs: Any
    ) -> list[SessionMessage]:
        """Return the messages of an agent in their order, after the first `offset`.

        Raises:
            SessionException: There is no such agent.
        """
        self._require(_key(session_id, "agent", agent_id), f"Agent {agent_id}")
        prefix = _key(session_id, "message", agent_id, "")
        start = self._key_after(prefix, offset) if offset else prefix
        found: list[SessionMessage] = []
        cursor: str | None = None
        while start is not None and (limit is None or len(found) < limit):
            most = PAGE if limit is None else min(limit - len(found), PAGE)
            page = self._documents.list(
                self._scope, prefix=prefix, start=start, values=True, limit=most, cursor=cursor
            )
            found += [SessionMessage.from_dict(_unpacked(document)) for document in page.documents]
            if (cursor := page.cursor) is None:
                break
        return found

    def create_multi_agent(self, session_id: str, multi_agent: Any, **kwargs: Any) -> None:
        """Store the state of a new graph or swarm of a session.

        Raises:
            SessionException: There is no such session, or it has the graph or swarm.
        """
        self._require(_key(session_id), f"Session {session_id}")
        key = _key(session_id, "multi", multi_agent.id)
        self._create(key, multi_agent.serialize_state(), f"MultiAgent {multi_agent.id}")

    def read_multi_agent(self, session_id: str, multi_agent_id: str, **kwargs: Any) -> dict[str, Any] | None:
        """Return the state of a graph or swarm, or None."""
        return self._read(_key(session_id, "multi", multi_agent_id))

    def update_multi_agent(self, session_id: str, multi_agent: Any, **kwargs: Any) -> None:
        """Replace the state of a graph or swarm.

        Raises:
            SessionException: The session has no such graph or swarm.
        """
        key = _key(session_id, "multi", multi_agent.id)
        self._require(key, f"MultiAgent {multi_agent.id}")
        self._documents.put(self._scope, key, _packed(multi_agent.serialize_state()))

    def _create(self, key: str, value: dict[str, Any], name: str) -> None:
        try:
            self._documents.put(self._scope, key, _packed(value), if_exists="error")
        except Conflict:
            raise SessionException(f"{name} already exists") from None

    def _read(self, key: str) -> dict[str, Any] | None:
        found = self._documents.get(self._scope, key)
        return None if found is None else _unpacked(found)

    def _require(self, key: str, name: str) -> Document:
        found = self._documents.get(self._scope, key)
        if found is None:
            raise SessionException(f"{name} does not exist")
        return found

    def _update(self, key: str, changed: SessionAgent | SessionMessage, name: str) -> None:
        def replace(found: Document | None) -> bytes:
            if found is None:
                raise SessionException(f"{name} does not exist")
            changed.created_at = _unpacked(found)["created_at"]
            return _packed(changed.to_dict())

        self._documents.edit(self._scope, key, replace)

    def _key_after(self, prefix: str, count: int) -> str | None:
        """Return the key after the first `count` keys; None if there is none."""
        cursor: str | None = None
        while True:
            page = self._documents.list(self._scope, prefix=prefix, limit=PAGE, cursor=cursor)
            if count < len(page.documents):
                return page.documents[count].key
            if page.cursor is None:
                return None
            count, cursor = count - len(page.documents), page.cursor


def _key(*parts: str) -> str:
    """Join parts to a key. A part with a slash is still one part."""
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


def _message(session_id: str, agent_id: str, number: int) -> str:
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError(f"message_id=<{number}> | message id must be an integer")
    if not 0 <= number < 10**NUMBER_DIGITS:
        raise ValueError(f"message_id=<{number}> | must be from 0 to {10**NUMBER_DIGITS - 1}")
    return _key(session_id, "message", agent_id, f"{number:0{NUMBER_DIGITS}}")


def _packed(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def _unpacked(document: Any) -> Any:
    return json.loads(document.value)
