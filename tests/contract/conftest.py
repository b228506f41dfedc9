"""Registers our adapters with the contract."""

from __future__ import annotations

import pytest

from memory.ports.contract.fixtures import harness, store
from memory.ports.contract.plugin import add_harnesses
from tests.contract.every_harness import HARNESSES
from tests.support.backends import BACKENDS

__all__ = ["harness", "store"]


def pytest_configure(config: pytest.Config) -> None:
    add_harnesses(config, *HARNESSES)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A contract test on a backend that needs a server is marked so, as other tests of that backend are."""
    for item in items:
        chosen = getattr(getattr(item, "callspec", None), "params", {}).get("contract_harness")
        backend = BACKENDS.get(getattr(chosen, "name", ""))
        if backend is not None and backend.needs_server:
            item.add_marker(pytest.mark.server)
