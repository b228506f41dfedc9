"""Fixtures and reports of the whole test suite."""

from __future__ import annotations

import gc
import os
import sys
import unittest.mock
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests.support import quick_folders
from tests.support.backends import BACKENDS, Backend, every_backend
from tests.support.depth import (
    FIRST_SEED,
    LEFT_TO_NIGHTLY,
    NIGHTLY,
    SLOW,
    THOROUGH,
    drawn,
    is_asked_tonight,
)
from tests.support.reporting import BackendReport, send_what_is_news

IN_ORDER = (
    "mariadb",
    "postgresql",
    "mongo_replica_set",
    "simulation",
    "sessions",
    "postgresql and redis",
    "model",
    "sqlite",
    "redis",
    "in_memory",
    "file",
    "mongo",
    "qdrant_edge",
    "the wheel",
    "contract",
    "orchestrator",
    "conversations",
    "meta",
    "faults",
    "qdrant",
    "cli",
    "topologies",
    "facade",
)
"""What workers take first, by what they take as a whole or by folder: the longest, and
no more servers at once than leave one worker that keeps the processors busy. Those who
wait for four servers leave half of two processors idle.
"""

# Drawn examples are the same on every run, and as many as the run takes; a busy machine
# is no failure. `make nightly` draws fresh ones.
_EXAMPLES: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
    "derandomize": not NIGHTLY,
    "database": None,
}
settings.register_profile("memory", settings(), max_examples=drawn(settings().max_examples), **_EXAMPLES)
settings.load_profile("memory")

# Each framework's adapter needs an environment of its own: `python -m tools.fitness`.
collect_ignore = [] if os.environ.get("MEMORY_FITNESS") else ["fitness"]

pytest_plugins = ["pytester", "memory.ports.contract.plugin", "tests.support.installed"]


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault(
        "PYTHONHASHSEED", "0"
    )  # workers walk sets of strings in the same order on every run
    config.pluginmanager.register(BackendReport(config), "memory-backends")
    if hasattr(config, "workerinput"):
        send_what_is_news(config)
    if NIGHTLY:
        os.environ.setdefault("SIMULATION_FIRST", str(FIRST_SEED))  # workers draw alike
    else:
        _draw_the_same_in_every_run()
    if config.option.contract_depth is None and not NIGHTLY:
        config.option.contract_depth = "quick"
    if not NIGHTLY and quick_folders.programs_run_there():
        os.environ.setdefault(
            "PYTEST_DEBUG_TEMPROOT", str(quick_folders.IN_MEMORY)
        )  # where `tmp_path` is; `make nightly` has it on the disk


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: Python does not look through it for garbage
    again and again, now or in a test. What tests leave in cycles may wait longer than
    Python lets it: there is room, and looking for it takes a thirtieth of a run.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before the plugin that hands the tests out looks at the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes longest comes first: workers take it in this order, and none is left
    alone with a long one at the end.
    """
    asked = set()
    for item in items:
        test = item.nodeid.partition("[")[0]
        of_one_case = item.get_closest_marker("one_case") is not None
        if (of_one_case and test in asked) or not LEFT_TO_NIGHTLY.isdisjoint({item.nodeid, test}):
            item.add_marker(pytest.mark.nightly)
        if of_one_case:
            asked.add(test)
    left_out = {item for item in items if _is_left_out(config, item)}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
    places = {name: place for place, name in enumerate(IN_ORDER)}
    shares = {item: _share(item) for item in items}
    items.sort(key=lambda item: places.get(shares[item], places.get(item.path.parent.name, len(places))))
    for item in items:
        item.add_marker(pytest.mark.xdist_group(shares[item]))
        if sys.gettrace() is not None and item.get_closest_marker("processor") is not None:
            item.add_marker(pytest.mark.skip(reason="coverage measures along: run without it"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if THOROUGH:
        return
    terminalreporter.write_line(
        "This run draws 20 examples each, on the default store. Not run here, and run by CI:"
    )
    terminalreporter.write_line(
        "  the contract and acceptance on other stores where they are asked what SQLite is asked, faulty"
        " stores, most"
    )
    terminalreporter.write_line(
        "  mutants, snippets of the documents after the first, the suite's tools, and what tests/slow.txt"
        " names."
    )
    terminalreporter.write_line("MEMORY_THOROUGH=1 make test runs all that CI runs; make nightly runs more.")


def _draw_the_same_in_every_run() -> None:
    """Hypothesis mixes constants of the modules into what it draws: of those that happen
    to be imported, so that a test alone draws otherwise than among others. It has no
    setting for it. To find them, each worker would parse every module, for two seconds.
    """
    unittest.mock.patch.object(providers, "_get_local_constants", Constants).start()


def _is_left_out(config: pytest.Config, item: pytest.Item) -> bool:
    """Whether a longer run runs it: CI what is `thorough`, `make nightly` half of what
    is `nightly`, and any such test that is named. What measures the processor runs
    where `-m processor` chooses it.
    """
    if item.get_closest_marker("processor") is not None:
        return "processor" not in config.option.markexpr
    if item.get_closest_marker("nightly") is not None:
        is_of_the_contract = "contract_harness" in getattr(item, "fixturenames", ())  # it halves the stores
        named = is_of_the_contract or any("::" in chosen for chosen in config.args)
        return not NIGHTLY or not (named or is_asked_tonight(item.nodeid))
    return not THOROUGH and (
        item.get_closest_marker("thorough") is not None or item.nodeid.partition("[")[0] in SLOW
    )


def _share(item: pytest.Item) -> str:
    """What one worker takes as a whole, its fixtures and servers made once: the
    contract of one harness, what needs the wheel, tests on the same servers, or a file.
    """
    chosen = getattr(getattr(item, "callspec", None), "params", {}).get("contract_harness")
    if chosen is not None:
        return str(chosen.name)
    if not {"wheel", "programs"}.isdisjoint(getattr(item, "fixturenames", ())):
        return "the wheel"
    marked = {name for mark in item.iter_markers("backend") for name in mark.args}
    servers = sorted(name for name in marked if name in BACKENDS and BACKENDS[name].needs_server)
    return " and ".join(servers) or f"{item.path.parent.name}/{item.path.name}"


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
