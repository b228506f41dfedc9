"""Registers our adapters with the contract."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from memory.ports.contract.capability_tests import MARK, fits
from memory.ports.contract.fixtures import harness, store
from memory.ports.contract.harness import Harness
from memory.ports.contract.plugin import ASKED, add_harnesses
from tests.contract.every_harness import DEFAULT, HARNESSES, TONIGHT, primary_of
from tests.contract.less_harnesses import WITHOUT, is_asked_of_another
from tests.support.backends import BACKENDS
from tests.support.depth import NIGHTLY, THOROUGH

__all__ = ["harness", "store"]


def pytest_configure(config: pytest.Config) -> None:
    add_harnesses(config, *HARNESSES)
    config.stash[ASKED] = _is_asked


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A contract test on a backend that needs a server is marked so, as other tests of
    that backend are; also where something is around its store. What CI does not ask a
    store is marked `nightly`, and stays for the night that has this store.
    """
    later = []
    for item in items:
        chosen = getattr(getattr(item, "callspec", None), "params", {}).get("contract_harness")
        name = next(
            (c.name for c in getattr(chosen, "__mro__", ()) if getattr(c, "name", "") in BACKENDS), None
        )
        if name is not None and BACKENDS[name].needs_server:
            item.add_marker(pytest.mark.server)
        if NIGHTLY and chosen is not None and not _is_asked_in_ci(list(item.iter_markers(MARK)), chosen):
            item.add_marker(pytest.mark.nightly)
        if NIGHTLY and chosen not in (None, *TONIGHT) and item.get_closest_marker("nightly") is not None:
            later.append(item)
    if later:
        config.hook.pytest_deselected(items=later)
        items[:] = [item for item in items if item not in set(later)]


def _is_asked(marks: Sequence[pytest.Mark], harness: type[Harness]) -> bool:
    """A variant is asked only what its primary cannot be asked, except in the nights of
    `make nightly` that have it. In everyone's run, another store than the default is
    asked only what that cannot be asked.
    """
    if is_asked_of_another(marks, harness):
        return False
    if NIGHTLY or THOROUGH:
        return _is_asked_in_ci(marks, harness) or (NIGHTLY and harness in TONIGHT)
    return not _concerns(marks, primary_of(harness)) and (harness is DEFAULT or not _concerns(marks, DEFAULT))


def _is_asked_in_ci(marks: Sequence[pytest.Mark], harness: type[Harness]) -> bool:
    return harness in WITHOUT or not _concerns(marks, primary_of(harness))


def _concerns(marks: Sequence[pytest.Mark], harness: type[Harness] | None) -> bool:
    return harness is not None and all(fits(mark, harness) for mark in marks)
