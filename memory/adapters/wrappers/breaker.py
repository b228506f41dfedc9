"""A circuit breaker: a store that keeps failing is left alone for a while, so that
callers hear at once what they would have waited for.

Nygard, Release It!, chapter 5. The states are the usual three: closed (calls pass),
open (calls are refused), half open (one call tries).
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
"""Never refused and never counted: who opens or closes a store means it."""
LATE = 5.0
"""Seconds. A call that its caller gives up after waiting so long, or longer, was not
answered: readers have deadlines shorter than a store's own.
"""


class CircuitBreaker(Wrapper):
    """After `failures` calls in a row that found the store unavailable, calls are
    refused as `StoreUnavailable` for `cool_down` seconds.

    Then one call is let through: if it is answered, all are again; if not, the wait
    begins anew. Any answer counts, also a conflict or a refusal: failures are
    `StoreUnavailable` and its kinds, and calls given up after `LATE` seconds. `check()`
    is never refused, and one that finds the store well lets all calls through.
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
        """'closed' while calls pass, 'open' while they are refused, 'half-open' when
        the next one is to try.
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
            self._note_success()  # it refused: it is there
            raise
        else:
            self._note_success()
            return answer
        finally:
            if trying:  # also when the caller gave up
                self._trying = False

    async def check(self) -> Health:
        health = await self.inner.check()
        if health.ok:
            self._note_success()
        return health

    def _admit(self) -> bool:
        """Let a call through or refuse it; whether it is the one that tries."""
        if self._refusing_until is None:
            return False
        left = self._refusing_until - _now()
        if left > 0 or self._trying:
            when = f"calls are tried again in {left:.1f} s" if left > 0 else "one call is trying it now"
            raise StoreUnavailable(
                self.name, f"was unavailable {self._failed} times in a row and is left alone; {when}"
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
