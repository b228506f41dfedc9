"""Moves damaged rows aside when a read finds them.

Limits and statistics then cover only readable rows, and every reader is informed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
Found = TypeVar("Found")

ROUNDS = 8
"""How often one read is repeated."""

log = logging.getLogger(__name__)


async def sound(
    read: Callable[[], Awaitable[tuple[T, Sequence[Found]]]],
    quarantine: Callable[[Sequence[Found]], Awaitable[bool]],
) -> T:
    """Read, move damaged rows to the quarantine, and read again.

    `read` returns its answer and the damaged rows that are still in their place. The
    last answer counts if they cannot be quarantined, or if new damage appears as fast.
    A damaged row is never served.
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
    """Return whether `move` could move the rows aside.

    It cannot on a full disk or a standby, which is logged. An error that is not the
    driver's is raised.
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
