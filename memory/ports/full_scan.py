"""Everything a question finds, page by page: `query` answers `MAX_LIMIT` at most."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

from memory.ports.query import Page, Query
from memory.ports.store import Store


async def scan(store: Store, query: Query, page: int = 500) -> AsyncIterator[Page]:
    """Every page of the query, of `page` records each, from its cursor on.

    No snapshot: each page is read only once the one before it has been dealt with, and
    is of its own moment. What stays as it is comes exactly once.
    """
    async for found in follow(store.query, replace(query, limit=page)):
        yield found


async def follow(ask: Callable[[Query], Awaitable[Page]], query: Query) -> AsyncIterator[Page]:
    """The same for whoever has more to do around each question."""
    while True:
        found = await ask(query)
        yield found
        if found.cursor is None:
            return
        query = replace(query, cursor=found.cursor)
