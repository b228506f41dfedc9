"""Jobs that nothing calls for: they look at a slice of all there is in every sweep, and
come round.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from memory.domain import ids
from memory.orchestrator.storage.placement import Placement
from memory.ports.query import Page, Query, encode_cursor
from memory.ports.store import Store


class Round:
    """Goes over what a query finds, so many rows a sweep. Where there are no more than
    that, over all of it every time.

    A process begins at a random place: one that lives for a single sweep does not look
    at the same rows as the one before it.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._cursor: str | None = None
        self._begun = False

    async def slice(self, name: str, store: Store, query: Query) -> AsyncIterator[Page]:
        """The next rows, `query.limit` of them, under a step's name."""
        if not self._begun:
            self._begun, self._cursor = (
                True,
                encode_cursor((), ids.derived_id("", "", str(self._placement.random_bits(64)))),
            )
        left, goes_on = query.limit, self._cursor is not None
        while left > 0:
            page = await self._placement.page(name, store, replace(query, limit=left, cursor=self._cursor))
            self._cursor = page.cursor
            yield page
            left -= len(page.records) + len(page.heads)
            if page.cursor is None and not goes_on:
                return
            goes_on = goes_on and page.cursor is not None
