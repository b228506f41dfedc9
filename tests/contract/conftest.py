"""Registers our adapters with the contract."""

from __future__ import annotations

import pytest

from memory.ports.contract.fixtures import harness, store
from memory.ports.contract.harness import Harness
from memory.ports.contract.judges import MARK, fits
from memory.ports.contract.plugin import add_harnesses
from tests.contract.every_harness import DEFAULT, HARNESSES, primary_of
from tests.contract.less_harnesses import WITHOUT, is_asked_of_another
from tests.support.backends import BACKENDS
from tests.support.depth import NIGHTLY, THOROUGH

__all__ = ["harness", "store"]


def pytest_configure(config: pytest.Config) -> None:
    add_harnesses(config, *HARNESSES)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A contract test on a backend that needs a server is marked so, as other tests of that backend are; also where something is around its store.
    A variant is asked only what its primary cannot be asked, except in `make nightly`. In everyone's run another store than the default is asked only
    what that cannot be asked."""
    covered = {item for item in items if (chosen := _harness(item)) is not None and is_asked_of_another(item, chosen)}
    config.hook.pytest_deselected(items=list(covered))
    items[:] = [item for item in items if item not in covered]
    if not NIGHTLY:
        repeated = {item for item in items if _repeats(item) or (not THOROUGH and _is_asked_of_the_default(item))}
        config.hook.pytest_deselected(items=list(repeated))
        items[:] = [item for item in items if item not in repeated]
    for item in items:
        chosen = getattr(getattr(item, "callspec", None), "params", {}).get("contract_harness")
        name = next((c.name for c in getattr(chosen, "__mro__", ()) if getattr(c, "name", "") in BACKENDS), None)
        if name is not None and BACKENDS[name].needs_server:
            item.add_marker(pytest.mark.server)


def _repeats(item: pytest.Item) -> bool:
    chosen = _harness(item)
    return not (THOROUGH and chosen in WITHOUT) and _concerns(item, chosen and primary_of(chosen))


def _is_asked_of_the_default(item: pytest.Item) -> bool:
    return _harness(item) not in (None, DEFAULT) and _concerns(item, DEFAULT)


def _harness(item: pytest.Item) -> type[Harness] | None:
    chosen: type[Harness] | None = getattr(getattr(item, "callspec", None), "params", {}).get("contract_harness")
    return chosen


def _concerns(item: pytest.Item, harness: type[Harness] | None) -> bool:
    return harness is not None and all(fits(mark, harness) for mark in item.iter_markers(MARK))
