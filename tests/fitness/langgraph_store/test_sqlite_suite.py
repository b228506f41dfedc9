"""The tests of langgraph-checkpoint-sqlite for its blocking store, over entries."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fitness.langgraph_store import suites

NOT_APPLICABLE = {
    "test_embed_with_path": suites.ONE_VECTOR,
    "test_embed_with_path_operation_config": suites.ONE_VECTOR,
    "test_vector_store_initialization": suites.INNER,
    "test_nonnull_migrations": suites.INNER,
    "test_sql_injection_vulnerability": "it asks for an error; every key of a filter is data here",
    "test_sql_injection_filter_values": "a text with NUL is refused, also in a filter",
    "test_numeric_filter_safety": "infinity and NaN are refused: they are no JSON",
    "test_filter_keys_with_hyphens_and_digits": "a dot in a key is data, as in the in-memory store",
}

_suite = suites.load("langgraph_checkpoint_sqlite", "test_store.py")
globals().update(suites.tests_of(_suite, nightly=()))


@pytest.fixture(autouse=True)
def _stores(place: suites.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = suites.class_over(lambda: place)
    monkeypatch.setattr(_suite, "SqliteStore", store)
