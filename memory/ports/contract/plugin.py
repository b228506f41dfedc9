"""The pytest plugin: takes harnesses and runs each contract test for those it fits.

No test passes by not running. Every pytest run with the library installed loads this
plugin. So it imports nothing of the library until the contract is asked for.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Generator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from memory.ports.contract.depth import Depth
    from memory.ports.contract.harness import Harness

FIXTURE = "contract_harness"
"""The fixture that every contract test depends on, through `harness`."""
HARNESSES: pytest.StashKey[list[type[Harness]]] = pytest.StashKey()
ASKED: pytest.StashKey[Callable[[Sequence[pytest.Mark], type[Harness]], bool]] = pytest.StashKey()
"""Decides from a test's marks and a harness whether this run includes the test.

Without it, all tests are included.
"""
_verdicts: list[pytest.TestReport] = []
_NO_HARNESS = "no harness: name one with --memory-harness package.module:Class (several are allowed)"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("memory contract")
    group.addoption(
        "--memory-harness",
        action="append",
        default=[],
        metavar="MODULE:CLASS",
        help="run the contract of memory.ports against this harness; may be given several times",
    )

    depth = (
        "how much is drawn: quick takes one seed and 20 examples where full takes more; default: full except"
        " for variants; the tests are the same"
    )
    group.addoption("--contract-depth", choices=("full", "quick"), help=depth)
    length = (
        "play histories of this many writes from fresh seeds (also MEMORY_HISTORY); default: a short one that"
        " is always the same"
    )
    group.addoption(
        "--contract-history",
        type=int,
        default=os.environ.get("MEMORY_HISTORY") or None,
        metavar="WRITES",
        help=length,
    )
    group.addoption(
        "--contract-seed",
        type=int,
        default=os.environ.get("MEMORY_HISTORY_SEED") or None,
        help="play only the history of this seed",
    )
    told = (
        "list at the end, by capability, the clauses that passed and those not judged, and the tiers that the"
        " store fits"
    )
    group.addoption("--contract-report", action="store_true", help=told)
    group.addoption("--contract-json", metavar="FILE", help="write that report to a file, as JSON")
    pinned = (
        "run only the contract of this edition, and leave out all clauses and tests that were added later"
    )
    group.addoption("--contract-edition", type=int, metavar="NUMBER", help=pinned)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "memory_contract(claimed, unclaimed, remote, built, cramped, tiny, derived, files, address): "
        "runs for harnesses that claim these or not, or have these hooks",
    )
    config.addinivalue_line(
        "markers",
        "memory_clause(*ids, since): the clauses of the contract that this test proves; see"
        " memory.ports.contract.clauses",
    )
    config.addinivalue_line("markers", "memory_unasked: no harness of this run is concerned")
    config.stash.setdefault(HARNESSES, [])
    add_harnesses(config, *(_load_harness(named) for named in config.getoption("memory_harness", default=[])))


def add_harnesses(config: pytest.Config, *harnesses: type[Harness]) -> None:
    """Register harnesses from a conftest, as the command-line option does."""
    known = config.stash.setdefault(HARNESSES, [])
    for harness in harnesses:
        if harness in known:
            continue
        _check_harness(harness)
        if any(harness.name == other.name for other in known):
            raise pytest.UsageError(f"two harnesses are called '{harness.name}': rename one")
        known.append(harness)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if FIXTURE not in metafunc.fixturenames:
        return
    from memory.ports.contract.capability_tests import MARK, fits

    harnesses = metafunc.config.stash[HARNESSES]
    if not harnesses:
        raise pytest.Collector.CollectError(_NO_HARNESS)
    marks = list(metafunc.definition.iter_markers(MARK))
    asked = metafunc.config.stash.get(ASKED, lambda _marks, _harness: True)
    concerned = [h for h in harnesses if all(fits(mark, h) for mark in marks) and asked(marks, h)]
    nobody = pytest.param(None, id="nobody", marks=pytest.mark.memory_unasked)
    metafunc.parametrize(FIXTURE, [pytest.param(h, id=h.name) for h in concerned] or [nobody])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not any(map(_of_contract, items)):
        return
    from memory.ports.contract.capability_tests import untested_capabilities

    if missing := [*untested_capabilities(), *_citation_problems(items)]:
        raise pytest.UsageError("the contract has holes: " + "; ".join(missing))
    edition = _edition(config)
    unasked = {
        item
        for item in items
        if item.get_closest_marker("memory_unasked")
        or _beyond_its_depth(config, item)
        or _is_newer(item, edition)
    }
    if unasked:
        config.hook.pytest_deselected(items=list(unasked))
        items[:] = [item for item in items if item not in unasked]


def depth_of(config: pytest.Config, item: pytest.Item, harness: type[Harness]) -> Depth:
    """Return how much this test draws for this harness.

    It is less in a quick run, and if the harness's primary runs the same test in full.
    """
    from memory.ports.contract.depth import DEPTHS, FULL, QUICK

    if chosen := config.getoption("contract_depth"):
        return DEPTHS[chosen]
    return QUICK if asked_of_primary(config, item, harness) else FULL


def asked_of_primary(config: pytest.Config, item: pytest.Item, harness: type[Harness]) -> bool:
    """Return whether this run includes the same test for the harness's primary."""
    from memory.ports.contract.capability_tests import MARK, fits

    primary = next((one for one in config.stash[HARNESSES] if one.name == harness.primary), None)
    return primary is not None and all(fits(mark, primary) for mark in item.iter_markers(MARK))


def _beyond_its_depth(config: pytest.Config, item: pytest.Item) -> bool:
    """Return whether the test's seed is beyond the depth of its harness."""
    called = getattr(item, "callspec", None)
    if called is None or "seed" not in called.params or called.params.get(FIXTURE) is None:
        return False
    seeds = next(
        (
            list(mark.args[1])
            for mark in item.iter_markers("parametrize")
            if mark.args and mark.args[0] == "seed"
        ),
        [],
    )
    return called.params["seed"] in seeds[depth_of(config, item, called.params[FIXTURE]).seeds :]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report skips, expected failures and unexpected passes as failures.

    This holds inside the contract.
    """
    report = yield
    if not _of_contract(item):
        return report
    _say_what_it_proves(item, report)
    excused = (
        "was expected to fail" if hasattr(report, "wasxfail") else "was skipped" if report.skipped else ""
    )
    if excused:
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} {excused}. Nothing in the contract may be: a store that cannot do this must not"
            " claim it."
        )
        report.__dict__.pop("wasxfail", None)
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.user_properties:
        from memory.ports.contract.report import PROPERTY

        if any(name == PROPERTY for name, _ in report.user_properties):
            _verdicts.append(report)


def pytest_sessionfinish() -> None:
    if (lending := sys.modules.get("memory.ports.contract.store_reuse")) is not None:
        lending.give_back()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not _verdicts:
        return
    from memory.ports.contract.report import Verdicts

    verdicts = Verdicts(
        {harness.name: harness for harness in config.stash[HARNESSES]}, edition=_edition(config)
    )
    for report in _verdicts:
        verdicts.take(report)
    _verdicts.clear()
    terminalreporter.section("contract")
    for line in verdicts.lines(whole=config.getoption("contract_report")):
        terminalreporter.write_line(line)
    if place := config.getoption("contract_json"):
        Path(place).write_text(verdicts.as_json() + "\n", encoding="utf-8")


def _edition(config: pytest.Config) -> int:
    from memory.ports.contract.clauses import EDITION

    pinned = config.getoption("contract_edition")
    if pinned is not None and not 1 <= pinned <= EDITION:
        raise pytest.UsageError(f"--contract-edition {pinned}: the contract has the editions 1 to {EDITION}")
    return int(pinned or EDITION)


def _is_newer(item: pytest.Item, edition: int) -> bool:
    """Return whether the test or a clause that it cites is newer than this edition."""
    from memory.ports.contract.clauses import CLAUSES, MARK

    marks = list(item.iter_markers(MARK))
    return any(
        mark.kwargs.get("since", 1) > edition or any(CLAUSES[i].edition > edition for i in mark.args)
        for mark in marks
    )


def _say_what_it_proves(item: pytest.Item, report: pytest.TestReport) -> None:
    from memory.ports.contract.clauses import MARK
    from memory.ports.contract.report import PROPERTY

    harness = item.callspec.params.get(FIXTURE) if hasattr(item, "callspec") else None
    clauses = [clause for mark in item.iter_markers(MARK) for clause in mark.args]
    if harness is not None and clauses:
        report.user_properties = [*report.user_properties, (PROPERTY, [harness.name, *clauses])]


def _citation_problems(items: list[pytest.Item]) -> list[str]:
    """Return contract tests without a clause, and clauses without a test."""
    from memory.ports.contract.capability_tests import uncited_clauses
    from memory.ports.contract.clauses import MARK

    own = [
        item
        for item in items
        if getattr(getattr(item, "function", None), "__module__", "").startswith("memory.ports.contract.")
    ]
    idle = sorted({item.name.partition("[")[0] for item in own if item.get_closest_marker(MARK) is None})
    return [f"'{name}' cites no clause" for name in idle] + (
        [f"clause '{name}' has no test" for name in uncited_clauses()] if own else []
    )


def _of_contract(item: pytest.Item) -> bool:
    return FIXTURE in getattr(item, "fixturenames", ())


def _load_harness(named: str) -> type[Harness]:
    module_name, colon, class_name = named.partition(":")
    if not colon or not module_name or not class_name:
        raise pytest.UsageError(f"--memory-harness takes package.module:Class, not '{named}'")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)  # a bare `pytest` does not look in the current folder
    try:
        harness: type[Harness] = getattr(importlib.import_module(module_name), class_name)
    except pytest.skip.Exception as exc:
        raise pytest.UsageError(
            f"harness '{named}' skips itself ({exc}); the contract knows no skips"
        ) from exc
    except Exception as exc:
        raise pytest.UsageError(f"harness '{named}' cannot be loaded: {type(exc).__name__}: {exc}") from exc
    return harness


def _check_harness(harness: object) -> None:
    from memory.ports.capabilities import Capabilities
    from memory.ports.contract.harness import Harness

    if not (isinstance(harness, type) and issubclass(harness, Harness)):
        raise pytest.UsageError(f"{harness!r} is not a subclass of memory.ports.contract.harness.Harness")
    if not isinstance(getattr(harness, "name", None), str) or not isinstance(
        getattr(harness, "claims", None), Capabilities
    ):
        raise pytest.UsageError(f"harness {harness.__name__} must set `name` and `claims`")
    if not isinstance(harness.remote, bool) or not isinstance(harness.patience, timedelta):
        raise pytest.UsageError(f"harness {harness.__name__}: `remote` is a bool, `patience` a timedelta")
    if not 0.9 <= harness.recall <= 1.0:
        raise pytest.UsageError(
            f"harness {harness.__name__}: recall must lie between 0.9 and 1, not {harness.recall}"
        )
