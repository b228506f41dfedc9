"""The tests of langgraph-checkpoint-postgres for its blocking store, over entries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.fitness.langgraph_store import suites
from tests.fitness.langgraph_store.adapter import EntryStore

NOT_APPLICABLE: dict[str, str] = {}

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
