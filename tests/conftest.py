"""Fixtures and reports of the whole test suite."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import quick_folders
from tests.support.backends import BACKENDS, Backend, every_backend
from tests.support.depth import THOROUGH, drawn, has_its_turn, turn_of
from tests.support.reporting import BackendReport

LONGEST_FIRST = (
    "simulation",
    "sessions",
    "month",
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

if not THOROUGH:  # before any test says how much it draws
    unhurried = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}  # as in CI: a busy machine is no failure
    settings.register_profile("quick", settings(), max_examples=drawn(settings().max_examples), **unhurried)
    settings.load_profile("quick")

pytest_plugins = ["pytester", "memory.ports.contract.plugin", "tests.support.installed"]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(BackendReport(config), "memory-backends")
    if config.option.contract_depth is None and not THOROUGH:
        config.option.contract_depth = "quick"
    if not THOROUGH and quick_folders.programs_run_there():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(quick_folders.IN_MEMORY))  # where `tmp_path` is; CI has it on the disk


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: Python does not look through it for garbage again and again, now or in a test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before the plugin that hands the tests out looks at the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The files that take longest come first: workers take them in this order, and none is left alone with a long one at the end."""
    left_out = {item for item in items if (not THOROUGH and _takes_long(item)) or _is_for_another_day(config, item)}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
    places = {folder: place for place, folder in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path.parent.name, len(places)))
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_share(item)))
        if sys.gettrace() is not None and item.get_closest_marker("processor") is not None:
            item.add_marker(pytest.mark.skip(reason="coverage measures along: run without it"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    turn = turn_of(config)
    if turn and THOROUGH:
        terminalreporter.write_line(
            f"Of what is broken on purpose, of variants of stores and of other topologies part {turn} ran (MEMORY_TURN); make prove runs all."
        )
    elif turn:
        terminalreporter.write_line(
            f"Of what is broken on purpose, and of the contract on other stores than SQLite, part {turn} ran, another each day (MEMORY_TURN)."
        )
    if not THOROUGH:
        terminalreporter.write_line("Drawn with one seed and 20 examples each. Not run, and run by CI:")
        terminalreporter.write_line("  the contract on variants of a store beside their primary, acceptance on other topologies than the default,")
        terminalreporter.write_line(
            "  lying stores, most mutants and slips, most processes that die, snippets of the documents after the first, the suite's tools."
        )
        terminalreporter.write_line("MEMORY_THOROUGH=1 make test runs all, and draws as much as CI does.")


def _takes_long(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) is not None for name in ("thorough", "processor"))


def _is_for_another_day(config: pytest.Config, item: pytest.Item) -> bool:
    """Whether others have their turn: slips, other topologies than the default and the mixed one, and what a variant of a store is asked as its
    primary is."""
    if not (turn := turn_of(config)):
        return False
    from memory.ports.contract.plugin import asked_of_primary  # a plugin: pytest imports it itself first

    harness = getattr(getattr(item, "callspec", None), "params", {}).get("contract_harness")
    as_its_primary = harness is not None and asked_of_primary(config, item, harness)
    return (as_its_primary or item.get_closest_marker("turn") is not None) and not has_its_turn(item.nodeid, turn)


def _share(item: pytest.Item) -> str:
    """What one worker takes as a whole, its fixtures and servers made once: the contract of one harness, what needs the wheel, tests on
    the same servers, or a file."""
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
