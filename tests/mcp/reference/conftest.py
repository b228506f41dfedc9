"""A memory in this process, and clients of the reference profile."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from memory import Memory


@pytest.fixture
async def memory() -> AsyncIterator[Memory]:
    async with Memory("memory://") as opened:
        yield opened
