"""The fixtures of the contract. Whoever imports its tests into a suite of their own imports these into the conftest beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from memory.ports.contract.collections import DECLARED
from memory.ports.contract.harness import Harness
from memory.ports.store import Store


@pytest.fixture
def harness(contract_harness: type[Harness], tmp_path: Path) -> Harness:
    return contract_harness(tmp_path)


@pytest_asyncio.fixture
async def store(harness: Harness) -> AsyncIterator[Store]:
    """A fresh store, open with every collection."""
    made = await harness.make()
    try:
        await made.open(DECLARED)
        yield made
    finally:
        await harness.dispose(made)
