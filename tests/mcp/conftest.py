"""A server over an in-memory store, and calls of its tools as a client makes them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from memory import Memory


@pytest.fixture
async def memory() -> AsyncIterator[Memory]:
    async with Memory("memory://") as opened:
        yield opened
