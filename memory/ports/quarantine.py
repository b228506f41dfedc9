"""Damaged rows: they are moved out of the way as they are found, so that limits and
statistics are of what can be read, and every reader is told.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
Found = TypeVar("Found")

ROUNDS = 8
"""How often one reading is done again."""

log = logging.getLogger(__name__)


async def sound(
    read: Callable[[], Awaitable[tuple[T, Sequence[Found]]]],
    quarantine: Callable[[Sequence[Found]], Awaitable[bool]],
) -> T:
    """What `read` answers: the answer, and what it met that is damaged and still in its
    place. That is quarantined and the reading done again.

    Where it cannot be quarantined, or others damage rows as quickly, the last answer
    counts: a damaged row is never served.
    """
    for _ in range(ROUNDS):
        answer, damaged = await read()
        if not damaged or not await quarantine(damaged):
            break
    return answer


async def try_quarantine(
    store: str,
    move: Callable[[Sequence[Found]], Awaitable[None]],
    damaged: Sequence[Found],
    translate: Callable[[Exception], Exception | None],
) -> bool:
    """Whether `move` could take them out of the way. It cannot on a full disk or a
    standby, which is logged; what is no driver's error is raised.
    """
    try:
        await move(damaged)
    except Exception as exc:
        if translate(exc) is None:
            raise
        log.warning(
            "store '%s': %d corrupt records could not be moved to quarantine: %s",
            store,
            len(damaged),
            type(exc).__name__,
        )
        return False
    return True
