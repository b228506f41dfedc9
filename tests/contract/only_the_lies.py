"""A pytest plugin (`-p tests.contract.only_the_lies`): runs for each faulty adapter the test made
for its lie, for the honest store all of those.

Other tests are not even collected: for fifty stores, that would take longer than these
take to run.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from functools import lru_cache

import pytest


@lru_cache(maxsize=1)
def made_for() -> dict[str, str]:
    """The test for each faulty adapter's lie, by the faulty adapter's name. Read late: what pytest shall
    rewrite must not be imported yet when it loads plugins.
    """
    from tests.contract.faulty.every import FAULTY_ADAPTERS

    return {name: expected.partition("[")[0] for name, (_, expected) in FAULTY_ADAPTERS.items()}


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(name: str) -> list[pytest.Item] | None:
    """A test made for no lie is no item; None leaves everything else to pytest."""
    return [] if name.startswith("test_") and name not in made_for().values() else None


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None]:
    """Show the contract's plugin only the harnesses whose lie this test is for, and the
    honest one.
    """
    from memory.ports.contract.plugin import HARNESSES
    from tests.contract.faulty.every import HONEST

    stash, test = metafunc.config.stash, metafunc.definition.originalname
    every = stash[HARNESSES]
    stash[HARNESSES] = [
        harness for harness in every if harness in HONEST or made_for().get(harness.name) == test
    ]
    try:
        return (yield)
    finally:
        stash[HARNESSES] = every


def pytest_collection_finish() -> None:
    """Python looks for garbage before each honest store: not among all that was
    collected.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What faulty adapters left lying about is cleared away before an honest store is asked:
    Python tells of it when it collects garbage, and blames who runs then.
    """
    if _is_honest(item) and not _before.is_honest:
        told, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            gc.collect()
        finally:
            sys.unraisablehook = told
    _before.is_honest = _is_honest(item)


class _Before:
    """The test before."""

    is_honest = True


_before = _Before()


def _is_honest(item: pytest.Item) -> bool:
    from tests.contract.faulty.every import HONEST

    return getattr(getattr(item, "callspec", None), "params", {}).get("contract_harness") in HONEST
