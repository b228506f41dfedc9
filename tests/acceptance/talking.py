"""Messages, and what a session shows of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memory import Message, Session

SYSTEM = "You are kind."


def user(text: str, message_id: str | None = None) -> dict[str, Any]:
    return _message("user", text, message_id)


def assistant(text: str, message_id: str | None = None, **more: Any) -> dict[str, Any]:
    return _message("assistant", text, message_id) | more


def _message(role: str, text: str, message_id: str | None) -> dict[str, Any]:
    named = {} if message_id is None else {"id": message_id}
    return {"role": role, "content": text} | named


def summary(message_id: str) -> Callable[[list[Message]], Message]:
    return lambda _: Message(id=message_id, role="system", content="so far")


async def window(session: Session) -> list[str]:
    return [str(message.id) for message in (await session.context()).messages]


async def history(session: Session, **asked: Any) -> list[str]:
    return [str(item.message.id) for item in (await session.history(**asked)).items]
