"""A pytest plugin (`-p tests.contract.only_the_lies`): runs for each faulty adapter the test made
for its lie, and the same test for the honest store that is most like the faulty ones.

Other tests are not even collected: for fifty stores, that would take longer than these
take to run. An adapter that failed its test is caught: further cases of the test are
not run for it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from functools import lru_cache
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from memory.ports.contract.harness import Harness


@lru_cache(maxsize=1)
def made_for() -> dict[str, str]:
    """The test for each faulty adapter's lie, by the faulty adapter's name. Read late: what pytest shall
    rewrite must not be imported yet when it loads plugins.
    """
    from tests.contract.faulty.every import FAULTY_ADAPTERS

    return {name: expected.partition("[")[0] for name, (_, expected) in FAULTY_ADAPTERS.items()}


@lru_cache
def _is_caught_in_one_case(name: str) -> bool:
    """Whether the adapter is registered with one case of a test, which must fail."""
    from tests.contract.faulty.every import FAULTY_ADAPTERS

    return "[" in FAULTY_ADAPTERS[name][1]


def honest_like(faulty: type[Harness]) -> type[Harness]:
    """The honest store that shares most with this faulty one: its own base, or one that
    claims the same.
    """
    from tests.contract.faulty.every import HONEST

    base = next((honest for honest in HONEST if issubclass(faulty, honest)), None)
    return base or next((honest for honest in HONEST if honest.claims == faulty.claims), HONEST[0])


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(name: str) -> list[pytest.Item] | None:
    """A test made for no lie is no item; None leaves everything else to pytest."""
    return [] if name.startswith("test_") and name not in made_for().values() else None


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None]:
    """Show the contract's plugin only the harnesses whose lie this test is for, and an
    honest one for each.
    """
    from memory.ports.contract.plugin import HARNESSES

    stash, test = metafunc.config.stash, metafunc.definition.originalname
    every = stash[HARNESSES]
    faulty = [harness for harness in every if made_for().get(harness.name) == test]
    honest = {honest_like(harness) for harness in faulty}
    stash[HARNESSES] = [harness for harness in every if harness in honest or harness in faulty]
    try:
        return (yield)
    finally:
        stash[HARNESSES] = every


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure is told in its last line: pytest took longer to look through where it
    came from than the test took.
    """
    if call.excinfo is not None:
        call.excinfo.traceback = call.excinfo.traceback[-1:]
    report = yield
    if report.failed:
        _failed.add((_harness_of(item), item.name.partition("[")[0]))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Leave out what cannot tell more. None leaves the test to pytest."""
    harness = _harness_of(pyfuncitem)
    if harness is None or _is_honest(pyfuncitem) or _is_caught_in_one_case(harness.name):
        return None
    return (harness, pyfuncitem.originalname) in _failed or None


_failed: set[tuple[type[Harness] | None, str]] = set()


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
            gc.freeze()  # what is still held is not looked through again
        finally:
            sys.unraisablehook = told
    _before.is_honest = _is_honest(item)


class _Before:
    """The test before."""

    is_honest = True


_before = _Before()


def _is_honest(item: pytest.Item) -> bool:
    from tests.contract.faulty.every import HONEST

    return _harness_of(item) in HONEST


def _harness_of(item: pytest.Item) -> type[Harness] | None:
    from memory.ports.contract.plugin import FIXTURE

    harness: type[Harness] | None = getattr(getattr(item, "callspec", None), "params", {}).get(FIXTURE)
    return harness
