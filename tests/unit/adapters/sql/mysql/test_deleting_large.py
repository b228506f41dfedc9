"""What a deletion holds of records that may be large."""

from __future__ import annotations

import pytest

from memory.adapters.sql import reading
from memory.ports.store import Store
from tests.unit.adapters.deleting_large import few_that_may_be_large_are_held_at_once
from tests.unit.adapters.sql.mysql.conftest import ON_SERVER

pytestmark = ON_SERVER


async def test_few_that_may_be_large_are_held_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await few_that_may_be_large_are_held_at_once(store, reading, monkeypatch)
