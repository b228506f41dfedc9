"""The tests of the async stores for SQLite and PostgreSQL, over entries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.fitness.langgraph_store import suites
from tests.fitness.langgraph_store.adapter import EntryStore

NOT_APPLICABLE: dict[str, str] = {}

_sqlite = suites.load("langgraph_checkpoint_sqlite", "test_async_store.py")
_postgres = suites.load("langgraph_checkpoint_postgres", "test_async_store.py")
for _name, _suite in (("sqlite", _sqlite), ("postgres", _postgres)):
    for _test, _function in suites.tests_of(_suite, nightly={"test_store_ttl"}).items():
        globals()[_test.replace("test_", f"test_{_name}_", 1)] = _function


@pytest.fixture
def conn_string() -> str:
    return "not used"


@pytest.fixture(autouse=True)
def _stores(place: suites.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def create(
        *given: Any, fake_embeddings: Any = None, text_fields: Any = None, **_: Any
    ) -> AsyncIterator[EntryStore]:
        embed = fake_embeddings or next(one for one in given if hasattr(one, "embed_query"))
        yield place.make(index={"dims": embed.dims, "embed": embed, "fields": text_fields})

    monkeypatch.setattr(_sqlite, "create_vector_store", create)
    monkeypatch.setattr(_postgres, "_create_vector_store", create)
