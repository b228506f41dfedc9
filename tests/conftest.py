"""Fixtures and reports of the whole test suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.backends import Backend, every_backend
from tests.support.reporting import BackendReport

LONGEST_FIRST = ("simulation", "contract", "meta", "faults", "cli")

pytest_plugins = ["pytester", "memory.ports.contract.plugin", "tests.support.installed"]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(BackendReport(config), "memory-backends")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest come first: workers take them in this order, and none is left alone with a long one at the end."""
    places = {folder: place for place, folder in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path.parent.name, len(places)))
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_share(item)))


def _share(item: pytest.Item) -> str:
    """What one worker takes as a whole: a file, whose fixtures are then made once; of the contract the tests of one harness."""
    chosen = getattr(getattr(item, "callspec", None), "params", {}).get("contract_harness")
    return f"{item.path.parent.name}/{item.path.name} {getattr(chosen, 'name', '')}".rstrip()


@pytest.fixture(params=every_backend())
def backend(request: pytest.FixtureRequest) -> Backend:
    """Every backend in turn; a test that takes it counts for that backend."""
    chosen: Backend = request.param
    return chosen


@pytest.fixture
def url(backend: Backend, tmp_path: Path) -> str:
    """A store of the test's own, on every backend in turn."""
    assert backend.url is not None
    return backend.url(tmp_path)
