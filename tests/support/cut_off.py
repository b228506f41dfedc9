"""A process that is killed at a store call, as another one sees it afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
