"""A process that is killed at a store call, as another one sees it afterwards; or that
stops there while others act.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from memory.domain.errors import StoreError
from memory.ports.base import BaseStore


@contextmanager
def cut_off_at(number: int, calls: Sequence[str], patch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Lose the answer of the store call of this number, and let all later ones fail: as
    if killed. `calls` are the methods of stores that count.
    """
    seen: list[str] = []

    def cut(name: str) -> Any:
        original = getattr(BaseStore, name)

        async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(name)
            if len(seen) < number:
                return await original(self, *args, **kwargs)
            if len(seen) == number:
                await original(self, *args, **kwargs)
            raise StoreError(self.name, "cut off")

        return call

    with patch.context() as context:
        for name in calls:
            context.setattr(BaseStore, name, cut(name))
        yield seen


@contextmanager
def acts_at(
    number: int, calls: Sequence[str], act: Callable[[], Awaitable[object]], patch: pytest.MonkeyPatch
) -> Iterator[list[str]]:
    """Let others `act` before the store call of this number; then the caller goes on.
    Their calls do not count.
    """
    seen: list[str] = []
    others = [False]

    def counted(name: str) -> Any:
        original = getattr(BaseStore, name)

        async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not others[0]:
                seen.append(name)
                if len(seen) == number:
                    others[0] = True
                    await act()
                    others[0] = False
            return await original(self, *args, **kwargs)

        return call

    with patch.context() as context:
        for name in calls:
            context.setattr(BaseStore, name, counted(name))
        yield seen
