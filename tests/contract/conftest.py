"""Registers our adapters with the contract."""

from __future__ import annotations

import pytest

from memory.ports.contract.fixtures import harness, store
from memory.ports.contract.harness import Harness
from memory.ports.contract.judges import MARK, fits
from memory.ports.contract.plugin import add_harnesses
from tests.contract.every_harness import HARNESSES, primary_of
from tests.support.backends import BACKENDS
from tests.support.depth import THOROUGH

__all__ = ["harness", "store"]


def pytest_configure(config: pytest.Config) -> None:
    add_harnesses(config, *HARNESSES)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A contract test on a backend that needs a server is marked so, as other tests of that backend are; also where something is around its store.
    What its primary is asked, a variant is not asked too where the run is not thorough."""
    if not THOROUGH:
        repeated = {item for item in items if _repeats(item)}
        config.hook.pytest_deselected(items=list(repeated))
        items[:] = [item for item in items if item not in repeated]
    for item in items:
        chosen = getattr(getattr(item, "callspec", None), "params", {}).get("contract_harness")
        name = next((c.name for c in getattr(chosen, "__mro__", ()) if getattr(c, "name", "") in BACKENDS), None)
        if name is not None and BACKENDS[name].needs_server:
            item.add_marker(pytest.mark.server)


def _repeats(item: pytest.Item) -> bool:
    chosen: type[Harness] | None = getattr(getattr(item, "callspec", None), "params", {}).get("contract_harness")
    primary = chosen and primary_of(chosen)
    return primary is not None and all(fits(mark, primary) for mark in item.iter_markers(MARK))
