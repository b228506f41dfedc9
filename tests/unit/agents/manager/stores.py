"""Stores for a manager that remember what they were asked, fail when told to, and wait
until let go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from memory.agents.manager import NamedStore, StoreEntry


class Searched:
    """A store that can only search."""

    def __init__(self, *found: Any, error: Exception | None = None) -> None:
        self.found = found
        self.error = error
        self.asked: list[tuple[str, int]] = []

    async def search(self, query: str, *, limit: int) -> Sequence[Any]:
        self.asked.append((query, limit))
        if self.error is not None:
            raise self.error
        return self.found


class Kept(Searched):
    """One that takes single texts too."""

    def __init__(self, *found: Any, error: Exception | None = None) -> None:
        super().__init__(*found)
        self.refuses = error
        self.added: list[tuple[str, Mapping[str, Any] | None]] = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def add(self, content: str, metadata: Mapping[str, Any] | None = None) -> None:
        await self.may_go_on.wait()
        if self.refuses is not None:
            raise self.refuses
        self.added.append((content, metadata))


class Heard(Searched):
    """One that takes what was said, and no single texts."""

    async def add_messages(self, messages: Sequence[Any], context: Mapping[str, Any] | None = None) -> None:
        raise AssertionError("nothing here extracts")


def entries(*texts: str) -> list[StoreEntry]:
    return [StoreEntry(text) for text in texts]


def named(store: Any, name: str = "personal", **more: Any) -> NamedStore:
    return NamedStore(name, store, **more)
