"""What a deletion holds of records that may be large."""

from __future__ import annotations

import pytest

from memory.adapters.qdrant import matching
from memory.ports.store import Store
from tests.unit.adapters.deleting_large import few_that_may_be_large_are_held_at_once


async def test_few_that_may_be_large_are_held_at_once(either: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await few_that_may_be_large_are_held_at_once(either, matching, monkeypatch)
