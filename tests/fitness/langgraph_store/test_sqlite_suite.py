"""The tests of langgraph-checkpoint-sqlite for its blocking store, over entries."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fitness.langgraph_store import suites

NOT_APPLICABLE: dict[str, str] = {}

_suite = suites.load("langgraph_checkpoint_sqlite", "test_store.py")
globals().update(suites.tests_of(_suite))


@pytest.fixture(autouse=True)
def _stores(place: suites.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = suites.class_over(lambda: place)
    monkeypatch.setattr(_suite, "SqliteStore", store)
