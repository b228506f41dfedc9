"""The stores that LangGraph's tests ask for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fitness.langgraph_store import suites
from tests.fitness.langgraph_store.adapter import EntryStore


@pytest.fixture
def place(config: dict[str, Any]) -> Iterator[suites.Place]:
    """Return a place where stores are opened, on each topology in turn."""
    with suites.opened(config) as opened:
        yield opened


@pytest.fixture
def fake_embeddings() -> Any:
    return suites.CharacterEmbeddings(dims=500)


@pytest.fixture
def store(place: suites.Place) -> EntryStore:
    return place.make(ttl={"default_ttl": suites.TTL_MINUTES, "refresh_on_read": True})


@pytest.fixture
def vector_store(place: suites.Place, fake_embeddings: Any) -> EntryStore:
    return place.make(index={"dims": fake_embeddings.dims, "embed": fake_embeddings})


IN_CI = ("test_store", "test_base_suite", "test_sqlite_suite")
"""The files that CI runs on the default file, and the first one on servers too."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave what repeats other tests, and servers, to `make nightly`."""
    for item in items:
        on_servers = item.get_closest_marker("server") is not None
        if item.path.stem not in (IN_CI[:1] if on_servers else IN_CI):
            item.add_marker(pytest.mark.nightly)
