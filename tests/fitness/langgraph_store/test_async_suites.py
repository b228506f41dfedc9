"""The tests of the async stores for SQLite and PostgreSQL, over entries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock

import pytest

from tests.fitness.langgraph_store import suites
from tests.fitness.langgraph_store.adapter import BatchedEntryStore

NO_LOOP = "batch() works in a thread that runs an event loop, too"
NOT_APPLICABLE = {
    "test_sqlite_no_running_loop": NO_LOOP,
    "test_postgres_no_running_loop": NO_LOOP,
    "test_sqlite_embed_with_path": suites.ONE_VECTOR,
    "test_postgres_embed_with_path": suites.ONE_VECTOR,
    "test_postgres_search_sorting": suites.FEWER,
    "test_postgres_abatch_uses_single_pool_checkout": suites.INNER,
    "test_postgres_omit_expired_filters_read_paths": suites.TABLES,
    "test_postgres_omit_expired_disabled_preserves_expired_rows": suites.TABLES,
    "test_postgres_omit_expired_refresh_ttl_only_refreshes_live_rows": suites.TABLES,
    "test_postgres_omit_expired_search_pagination": suites.TABLES,
}

_sqlite = suites.load("langgraph_checkpoint_sqlite", "test_async_store.py")
_postgres = suites.load("langgraph_checkpoint_postgres", "test_async_store.py")
for _name, _suite in (("sqlite", _sqlite), ("postgres", _postgres)):
    for _test, _function in suites.tests_of(
        _suite, nightly={"test_store_ttl", "test_large_batches", "test_large_batches_async"}
    ).items():
        globals()[_test.replace("test_", f"test_{_name}_", 1)] = _function


def batched(place: suites.Place, **options: Any) -> Any:
    store: Any = place.make(**options)
    merging: Any = BatchedEntryStore(store)
    merging.index_config = store.index_config
    merging.start_ttl_sweeper = merging.stop_ttl_sweeper = AsyncMock()
    return merging


@pytest.fixture
async def store(place: suites.Place) -> Any:
    return batched(place, ttl={"default_ttl": suites.TTL_MINUTES, "refresh_on_read": True})


@pytest.fixture
async def vector_store(place: suites.Place, fake_embeddings: Any) -> Any:
    return batched(place, index={"dims": fake_embeddings.dims, "embed": fake_embeddings})


@pytest.fixture
def conn_string() -> str:
    return "not used"


@pytest.fixture(autouse=True)
def _stores(place: suites.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def create(
        *given: Any, fake_embeddings: Any = None, text_fields: Any = None, **_: Any
    ) -> AsyncIterator[Any]:
        embed = fake_embeddings or next(one for one in given if hasattr(one, "embed_query"))
        yield batched(place, index={"dims": embed.dims, "embed": embed, "fields": text_fields})

    monkeypatch.setattr(_sqlite, "create_vector_store", create)
    monkeypatch.setattr(_postgres, "_create_vector_store", create)
