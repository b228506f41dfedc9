"""Faults put into sessions, each of which the judge must see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from memory import Memory, Message, Session
from memory.domain.session import ErasedUser, HistoryPage
from memory.facade.resources.admin import Admin
from memory.facade.resources.sessions import Sessions
from memory.facade.runtime.access import access_of
from tests.model.mutants import Method, mutant


@mutant("session.append")
async def the_last_of_several_messages_is_not_stored(
    whole: Method, session: Session, message: Any, **kwargs: Any
) -> Any:
    if not isinstance(message, list) or len(message) < 3 or "tool_calls" in message[-1]:
        return await whole(session, message, **kwargs)
    stored = await whole(session, message[:-1], **kwargs)
    return [*stored, Message.model_validate({"id": "made up"} | message[-1])]


@mutant("session.exclude")
async def an_exclusion_is_said_to_be_done_and_is_not(
    whole: Method, session: Session, message_id: str, reason: str = "manual"
) -> Any:
    return (
        any(message.id == message_id for message in (await session.context()).messages)
        and message_id != "system"
    )


@mutant("session.restore")
async def what_is_restored_comes_back_for_a_moment_only(
    whole: Method, session: Session, message_id: str
) -> Any:
    back = await whole(session, message_id)
    if back:
        await session.exclude(message_id, "manual")
    return back


@mutant("session.roll_back")
async def a_roll_back_leaves_one_message(
    whole: Method, session: Session, checkpoint: Any, reason: str = "manual"
) -> Any:
    before = [message.id for message in (await session.context()).messages]
    count = await whole(session, checkpoint, reason)
    if count:
        left = {message.id for message in (await session.context()).messages}
        await session.restore(next(str(name) for name in before if name not in left))
    return count


@mutant("session.compact")
async def a_compaction_keeps_one_message_fewer(
    whole: Method, session: Session, summarise: Any, *, keep_last: int, **kwargs: Any
) -> Any:
    return await whole(session, summarise, keep_last=max(0, keep_last - 1), **kwargs)


@mutant("session.erase")
async def an_erased_message_is_only_excluded(whole: Method, session: Session, message_id: str) -> Any:
    there = bool((await session.history(ids=[message_id])).items)
    await session.exclude(message_id, "erased")
    return there


@mutant("session.history")
async def a_history_from_the_newest_back_has_no_beginning(
    whole: Method, session: Session, **kwargs: Any
) -> Any:
    page = await whole(session, **kwargs)
    behind = kwargs.get("order") == "newest" and page.cursor is None
    return HistoryPage([item for item in page.items if not behind or item.number > 1], page.cursor)


@mutant("session.info")
async def a_session_counts_what_is_in_the_window(whole: Method, session: Session) -> Any:
    return replace(await whole(session), message_count=len((await session.context()).messages))


@mutant("session.fork")
async def a_fork_forgets_the_last_message(
    whole: Method, session: Session, at: str | None = None, session_id: str | None = None
) -> Any:
    forked = await whole(session, at, session_id)
    messages = (await forked.context()).messages
    if len(messages) > 1:
        await forked.exclude(str(messages[-1].id))
    return forked


@mutant("sessions.delete")
async def a_deleted_session_is_only_archived(whole: Method, sessions: Sessions, session_id: str) -> Any:
    if await sessions.get(session_id) is None:
        return await whole(sessions, session_id)
    return bool(await Memory._over(access_of(sessions)).session(session_id, create=False).archive()) or True


@mutant("sessions.list")
async def a_list_leaves_out_its_last_session(whole: Method, sessions: Sessions, **kwargs: Any) -> Any:
    page = await whole(sessions, **kwargs)
    return replace(page, sessions=page.sessions[:-1]) if len(page.sessions) > 1 else page


@mutant("admin.erase_user")
async def what_a_user_said_in_sessions_of_others_stays(whole: Method, admin: Admin, user: str) -> Any:
    memory = Memory._over(access_of(admin))
    theirs = (await memory.sessions.list(user=user, limit=1_000)).sessions
    for one in theirs:
        await memory.sessions.delete(one.id)
    sessions = [
        memory.session(one.id, create=False) for one in (await memory.sessions.list(limit=1_000)).sessions
    ]
    said = [
        item
        for session in sessions
        for item in (await session.history(limit=1_000)).items
        if item.message.name == user
    ]
    return ErasedUser(len(theirs), len(said), await admin.erase(f"user:{user}"))
