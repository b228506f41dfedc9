"""Fixtures and reports of the whole test suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.backends import Backend, every_backend
from tests.support.reporting import BackendReport

pytest_plugins = ["pytester", "memory.ports.contract.plugin"]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(BackendReport(config), "memory-backends")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a fixture of their module stay on one worker, which makes it once."""
    for item in items:
        fixtures = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
        if any(definition.scope == "module" for definitions in fixtures for definition in definitions):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(params=every_backend())
def backend(request: pytest.FixtureRequest) -> Backend:
    """Every backend in turn; a test that takes it counts for that backend."""
    chosen: Backend = request.param
    return chosen


@pytest.fixture
def url(backend: Backend, tmp_path: Path) -> str:
    """A store of the test's own, on every backend in turn."""
    return backend.url(tmp_path)
