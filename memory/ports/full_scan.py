"""Reads all results of a query, page by page; one page has at most `MAX_LIMIT`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

from memory.ports.query import Page, Query
from memory.ports.store import Store


async def scan(store: Store, query: Query, page: int = 500) -> AsyncIterator[Page]:
    """Yield every page of the query, of `page` records each, from its cursor on.

    This is no snapshot. Each page is read after the caller has processed the one
    before, and shows that moment. A row that does not change comes exactly once.
    """
    async for found in follow(store.query, replace(query, limit=page)):
        yield found


async def follow(ask: Callable[[Query], Awaitable[Page]], query: Query) -> AsyncIterator[Page]:
    """Yield the pages like `scan`, through a query function of the caller."""
    while True:
        found = await ask(query)
        yield found
        if found.cursor is None:
            return
        query = replace(query, cursor=found.cursor)
