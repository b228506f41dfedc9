"""Faults put into what has stores learn from sessions, each of which the judge must
see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from memory.agents.manager.injection import Injection
from memory.agents.manager.recording import Attachment
from memory.agents.manager.spool import Log, Position
from tests.model.mutants import OWNERS, Method, mutant

OWNERS |= {owner.__name__: owner for owner in (Attachment, Injection)} | {"Spool": Log}


@mutant("Attachment._deliver")
async def a_store_is_not_told_the_last_of_a_batch(
    whole: Method, attachment: Attachment, batch: Sequence[Any], of: range
) -> None:
    await whole(attachment, batch[:-1], of)


@mutant("Attachment._deliver")
async def what_a_store_is_told_is_numbered_by_its_position(
    whole: Method, attachment: Attachment, batch: Sequence[Any], of: range
) -> None:
    await whole(attachment, [(place, message) for place, (_, message) in enumerate(batch)], of)


@mutant("Spool.commit")
async def how_far_a_store_has_come_is_not_noted(whole: Method, spool: Log, store: str, mark: int) -> None:
    await whole(spool, store, 0)


@mutant("Spool.since")
async def what_has_left_the_window_is_told_to_nobody(whole: Method, spool: Log, *args: Any) -> Any:
    shown = {message.id for message in (await spool.session.context()).messages}
    batch, behind = await whole(spool, *args)
    return [(number, message) for number, message in batch if message.id in shown], behind


@mutant("Spool.open")
async def what_may_wait_is_not_noted(whole: Method, spool: Log) -> None:
    """Nobody would find it."""


@mutant("Spool.position")
async def a_store_is_told_of_a_session_from_its_end_on(whole: Method, spool: Log, store: str) -> Position:
    come: Position = await whole(spool, store)
    return come if come.mark else replace(come, mark=max(0, (await spool.session.info()).message_count - 1))


@mutant("Injection._block")
async def a_model_is_shown_one_entry_less(
    whole: Method, injection: Injection, messages: Sequence[Any], search: Any
) -> Any:
    async def fewer(query: str, limit: int) -> Any:
        return (await search(query, limit))[1:]

    return await whole(injection, messages, fewer)
