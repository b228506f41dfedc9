"""Jobs that look at one slice of all records in every sweep, one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from memory.domain import ids
from memory.orchestrator.storage.placement import Placement
from memory.ports.query import Page, Query, encode_cursor
from memory.ports.store import Store


class Round:
    """Goes through the results of a query, a fixed number of rows per sweep.

    If there are no more rows than that, every sweep goes through all of them.

    A process begins at a random place, so that processes that live for one sweep do not
    look at the same rows.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._cursor: str | None = None
        self._begun = False

    async def slice(self, name: str, store: Store, query: Query) -> AsyncIterator[Page]:
        """Yield the next `query.limit` rows, as a named step."""
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
