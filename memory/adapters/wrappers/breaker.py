"""Circuit breaker: pauses calls to a store that keeps failing, so callers fail fast.

See Nygard, Release It!, chapter 5. It has the usual three states. Closed: calls pass.
Open: calls are refused. Half open: one trial call passes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from memory.adapters.wrappers.base import Call, Wrapper
from memory.domain.errors import StoreError, StoreUnavailable
from memory.ports.store import Health, Store

T = TypeVar("T")

PASSING = ("open", "close")
"""Never refused and never counted: an explicit open or close must reach the store."""
LATE = 5.0
"""Seconds. A call that its caller cancels after this time counts as a failure.

Readers set shorter deadlines than the store itself does.
"""


class CircuitBreaker(Wrapper):
    """Refuses calls for `cool_down` seconds after `failures` failed calls in a row.

    Refused calls raise `StoreUnavailable`. After the pause, one trial call passes. If
    the store answers it, all calls pass again; if not, the next pause begins.

    Only `StoreUnavailable`, its subclasses, and calls cancelled after `LATE` seconds
    are failures. Any answer is a success, including a conflict or a refusal. `check()`
    is never refused, and a healthy result closes the circuit.
    """

    def __init__(self, inner: Store, failures: int = 5, cool_down: float = 10.0) -> None:
        super().__init__(inner)
        self._limit = failures
        self._cool_down = cool_down
        self._failed = 0
        self._refusing_until: float | None = None
        self._trying = False

    @property
    def state(self) -> str:
        """State of the circuit: 'closed', 'open' or 'half-open'.

        Calls pass while it is closed, and are refused while it is open. When it is
        half-open, the next call is the trial call.
        """
        if self._refusing_until is None:
            return "closed"
        return "open" if self._trying or _now() < self._refusing_until else "half-open"

    async def _call(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        if call.method in PASSING:
            return await work()
        trying = self._admit()
        begun = _now()
        try:
            answer = await work()
        except asyncio.CancelledError:
            if _now() - begun >= LATE:
                self._note_failure()
            raise
        except StoreUnavailable:
            self._note_failure()
            raise
        except StoreError:
            self._note_success()  # an answer, although a refusal
            raise
        else:
            self._note_success()
            return answer
        finally:
            if trying:  # even after a cancellation
                self._trying = False

    async def check(self) -> Health:
        health = await self.inner.check()
        if health.ok:
            self._note_success()
        return health

    def _admit(self) -> bool:
        """Let a call pass or refuse it. Return whether it is the trial call."""
        if self._refusing_until is None:
            return False
        left = self._refusing_until - _now()
        if left > 0 or self._trying:
            when = f"try again in {left:.1f} s" if left > 0 else "one call is testing it now; try again later"
            raise StoreUnavailable(
                self.name, f"was unavailable {self._failed} times in a row, so calls to it are paused; {when}"
            )
        self._trying = True
        return True

    def _note_failure(self) -> None:
        self._failed += 1
        if self._failed >= self._limit:
            self._refusing_until = _now() + self._cool_down

    def _note_success(self) -> None:
        self._failed, self._refusing_until = 0, None


def _now() -> float:
    return asyncio.get_running_loop().time()
