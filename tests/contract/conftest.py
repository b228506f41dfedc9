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
    """A contract test on a backend that needs a server is marked so, as other tests of that backend are; also where something is around its store."""
    for item in items:
        chosen = getattr(getattr(item, "callspec", None), "params", {}).get("contract_harness")
        name = next((c.name for c in getattr(chosen, "__mro__", ()) if getattr(c, "name", "") in BACKENDS), None)
        if name is not None and BACKENDS[name].needs_server:
            item.add_marker(pytest.mark.server)
