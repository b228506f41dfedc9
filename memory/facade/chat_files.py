"""Import chat files of common frameworks into a session, and export a session.

A message without an id gets one that is derived from it and all messages before it. So
a file can be imported again, or after it has grown, and no message is stored twice. A
file in any shape may begin like the session does. Then it is aligned with it message by
message, and only the messages after that are new (`_find_unstored`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from datetime import datetime
from hashlib import blake2b
from itertools import groupby
from typing import IO, Any

from memory.domain.errors import InvalidInput
from memory.domain.import_reports import ChatImport
from memory.domain.message import SYSTEM, Message, Role, text_of
from memory.domain.results import as_json
from memory.domain.session import HistoryItem
from memory.domain.shapes import export_messages, import_message
from memory.domain.shapes.content_parts import content_as
from memory.domain.shapes.exporter import with_distinct_calls
from memory.domain.shapes.registry import KEPT_WHOLE
from memory.domain.validation import named_moment
from memory.facade.memory import Memory
from memory.facade.resources.session import Session
from memory.facade.runtime.access import engine_of
from memory.facade.transfer.lines import BadLine, objects
from memory.policies.window import arrange

BATCH = 200
"""The number of messages that are written together."""
DERIVED = "file:"
"""The prefix of ids that are derived from a file's content."""


_IN_IDS = ("at", "time", None)
"""Names of moments that are included in a derived id.

Later names are not, so files that were imported earlier keep their ids.
"""


def read_messages(stream: IO[bytes], name: str) -> list[Message]:
    """Read the messages of JSON Lines or of one JSON array, each with an id.

    Raises:
        BadLine: For the first line that cannot be imported, with its problem.
    """
    found: dict[str, Message] = {}
    said = blake2b(digest_size=16)
    for line, one in objects(stream, name, 1):
        if isinstance(one, BadLine):
            raise one
        try:
            messages = import_message(one)
        except InvalidInput as exc:
            raise BadLine(name, line, str(exc)) from None
        for message in messages:
            moment_in_id = {"at"} if named_moment(one) not in _IN_IDS else None
            said.update(message.model_dump_json(exclude_defaults=True, exclude=moment_in_id).encode())
            message.id = DERIVED + said.hexdigest() if message.id in (None, SYSTEM) else message.id
            if found.setdefault(str(message.id), message) != message:
                raise BadLine(
                    name,
                    line,
                    f"id: '{message.id}' is already used above for other content. Change one of the ids",
                )
    return list(found.values())


async def import_chat(
    memory: Memory,
    session_id: str,
    messages: Sequence[Message],
    told: Callable[[int, int], None],
    *,
    user: str | None = None,
    agent: str | None = None,
    namespace: str | None = None,
    revive: bool = False,
) -> ChatImport:
    """Append the messages that the session does not have.

    A new session gets this user, agent and namespace, and its system message is the
    first message of the file, if that is one. A message with the id of a stored message
    and other content replaces that one. Messages that were erased or edited in the
    session stay so, and a deleted session is not created again, unless `revive`.

    Args:
        told: Called after each batch with the number of stored messages and the total.
        revive: Write erased and edited messages again, and create a deleted session
            again.

    Raises:
        SessionOwnerMismatch: If the session exists with another owner; before any read.
    """
    first = messages[0] if messages else None
    system = (
        first.content
        if first is not None
        and first.role is Role.SYSTEM
        and isinstance(first.content, str)
        and first.content
        else None
    )
    session = memory.session(session_id, system=system, user=user, agent=agent, namespace=namespace)
    is_there = await memory.sessions.get(session_id) is not None
    if (
        not is_there
        and not revive
        and await engine_of(memory).conversations.sessions.is_deleted(memory.tenant, session_id)
    ):
        return ChatImport(session_id, len(messages), 0, len(messages))
    before = (await session.info()).message_count if is_there else 0
    stands = (await session.history(ids=[SYSTEM])).items if system is not None else []
    rest = messages[1:] if stands and stands[0].message.text == system else messages
    total = len(rest)
    rest, left_out = await _find_unstored(rest, session, revive=revive)
    for start in range(0, len(rest), BATCH):
        left_out += await (await session._conversation()).carry_in(rest[start : start + BATCH], revive=revive)
        told(total - max(0, len(rest) - start - BATCH), total)
    new = (await session.info()).message_count - before
    return ChatImport(session_id, len(messages), new, left_out, len(messages) - new - left_out)


async def _find_unstored(
    messages: Sequence[Message], session: Session, *, revive: bool
) -> tuple[list[Message], int]:
    """Return the messages that the session may lack.

    Also return how many of the others were erased or edited there. Messages without an
    id of their own are compared with the session's messages, one by one from the first,
    until they differ.
    """
    left: list[Message] = []
    at, changed = 0, 0
    stored = (item async for item in all_said(session) if item.message.id != SYSTEM)
    async with aclosing(stored):
        while at < len(messages) and (item := await anext(stored, None)) is not None:
            message = messages[at]
            has_own_id = not str(message.id).startswith(DERIVED)
            is_same = _content(message, message.shape) == _content(item.message, message.shape)
            is_changed = item.is_redacted or item.updated_at > item.created_at
            is_it = (
                message.id == item.message.id
                if has_own_id
                else is_same or (is_changed and message.role is item.message.role)
            )
            if not is_it:
                break
            if (not is_same or revive) if has_own_id else (not is_same and revive):
                left.append(message)
            else:
                changed += not is_same
            at += 1
    return [*left, *messages[at:]], changed


def _content(message: Message, shape: str) -> tuple[object, ...]:
    """Return the content of a message as an export in this shape has it."""
    content = content_as(message, shape)
    parts: Sequence[dict[str, Any]] = [{"text": content}] if isinstance(content, str) else content
    texts = "\n".join(text for part in parts if (text := text_of(part)))
    others = [
        json.dumps(part, sort_keys=True, default=str)
        for part in parts
        if not text_of(part) and part.get("text") is None
    ]
    return (
        message.role,
        texts,
        others,
        [call.name for call in message.tool_calls],
    )  # without the ids of calls, which an export makes distinct


async def all_said(session: Session) -> AsyncIterator[HistoryItem]:
    """Yield every message of a session in order, without summaries.

    Summaries repeat messages that are yielded themselves.
    """
    cursor, more = None, True
    while more:
        page = await session.history(summaries=False, limit=1_000, cursor=cursor)
        for item in page.items:
            yield item
        cursor = page.cursor
        more = cursor is not None


async def export_chat(session: Session, shape: str) -> list[dict[str, Any]]:
    """Return every message of the session in this shape.

    Anthropic's list begins with the system text, as a message of its own. Each message
    has a time under `at`: when it was said, or else when it was stored or imported. If
    a shape joins messages, only messages of the same time are joined. A result that
    only names its tool gets the id of its call. OpenAI's messages are as its API
    accepts them. A call without a result stays.

    A format that keeps its originals whole has no times but its own. Bytes in it become
    Base64.
    """
    messages: list[Message] = []
    async for item in all_said(session):
        message = _as_given(item)
        if (
            messages and item.message.at is None and message.extra.get("joined")
        ):  # it was part of the message before
            message = message.model_copy(update={"at": messages[-1].at})
        messages.append(message)
    answers = arrange(messages).answers
    named = [
        message.model_copy(update={"tool_call_id": answers.get(at, message.tool_call_id)})
        for at, message in enumerate(messages)
    ]
    if shape in KEPT_WHOLE:
        return list(as_json(_without_bytes(export_messages(named, shape))))
    messages = with_distinct_calls(named)
    leads = [message for message in messages if message.role is Role.SYSTEM] if shape == "anthropic" else []
    found = export_messages(leads, "plain")
    for _, told in groupby(messages, key=lambda message: message.at if shape == "anthropic" else id(message)):
        together = list(told)
        found += [_with_moment(one, together[0].at) for one in export_messages(together, shape, strict=True)]
    return list(as_json(found))


def _without_bytes(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _without_bytes(inner) for name, inner in value.items()}
    return [_without_bytes(inner) for inner in value] if isinstance(value, list) else value


def _as_given(item: HistoryItem) -> Message:
    """Return the message with its time.

    The system message has neither time nor id: it belongs to its session.
    """
    message = item.message
    if message.id == SYSTEM:
        return message.model_copy(update={"id": None})
    return message if message.at is not None else message.model_copy(update={"at": item.created_at})


def _with_moment(given: dict[str, Any], moment: datetime | None) -> dict[str, Any]:
    data = given.get("data")
    told = named_moment(given) or (named_moment(data) if isinstance(data, dict) else None)
    return given if moment is None or told is not None else given | {"at": moment}
