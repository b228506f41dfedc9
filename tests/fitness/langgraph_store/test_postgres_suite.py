"""The tests of langgraph-checkpoint-postgres for its blocking store, over entries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.fitness.langgraph_store import suites
from tests.fitness.langgraph_store.adapter import EntryStore

NOT_APPLICABLE = {
    "test_embed_with_path_sync": suites.ONE_VECTOR,
    "test_embed_with_path_operation_config": suites.ONE_VECTOR,
    "test_scores[*-l2]": suites.COSINE,
    "test_omit_expired_filters_read_paths": suites.TABLES,
    "test_omit_expired_disabled_preserves_expired_rows": suites.TABLES,
    "test_omit_expired_refresh_ttl_only_refreshes_live_rows": suites.TABLES,
    "test_omit_expired_search_pagination": suites.TABLES,
}

_suite = suites.load("langgraph_checkpoint_postgres", "test_store.py")
globals().update(suites.tests_of(_suite, nightly={"test_store_ttl"}))


@pytest.fixture(autouse=True)
def _stores(place: suites.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def create(
        _type: str, _distance: str, embed: Any, text_fields: Any = None, **_: Any
    ) -> Iterator[EntryStore]:
        yield place.make(index={"dims": embed.dims, "embed": embed, "fields": text_fields})

    monkeypatch.setattr(_suite, "_create_vector_store", create)
