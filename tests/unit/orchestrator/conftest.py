"""Worlds for the engine's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.orchestrator.world import VOLATILE, World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Three durable stores."""
    async with World() as opened:
        yield opened


@pytest.fixture
async def cached() -> AsyncIterator[World]:
    """The short store is volatile: a cache."""
    async with World(short=VOLATILE) as opened:
        yield opened
