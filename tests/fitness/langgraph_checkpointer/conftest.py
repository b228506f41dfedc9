"""What CI runs of the checkpointer: its conformance, and all else on the default file."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the other tests on servers to `make nightly`."""
    for item in items:
        if item.path.stem != "test_conformance" and item.get_closest_marker("server"):
            item.add_marker(pytest.mark.nightly)
