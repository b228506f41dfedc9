"""The tests of langgraph-checkpoint for its in-memory store, over entries."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fitness.langgraph_store import suites

NOT_APPLICABLE = {"test_embed_with_path": suites.ONE_VECTOR}

_suite = suites.load("langgraph_checkpoint", "test_store.py")
globals().update(suites.tests_of(_suite, nightly=()))


@pytest.fixture(autouse=True)
def _stores(place: suites.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = suites.class_over(lambda: place)
    monkeypatch.setattr(_suite, "InMemoryStore", store)
