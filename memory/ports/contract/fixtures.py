"""The fixtures of the contract.

A suite that imports the contract's tests imports these into the conftest beside them.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from memory.ports.contract import store_reuse
from memory.ports.contract.harness import Harness
from memory.ports.contract.plugin import depth_of
from memory.ports.store import Store


@pytest.fixture
def harness(request: pytest.FixtureRequest, contract_harness: type[Harness], tmp_path: Path) -> Harness:
    made = contract_harness(tmp_path)
    made.depth = depth_of(request.config, request.node, contract_harness)
    return made


@pytest_asyncio.fixture
async def store(request: pytest.FixtureRequest, harness: Harness) -> AsyncIterator[Store]:
    """Provide a fresh store, open with every collection."""
    async with store_reuse.store(
        harness, lent="harness" not in inspect.signature(request.function).parameters
    ) as made:
        yield made
