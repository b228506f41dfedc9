"""Says last which backends ran and which did not and why, and fails the run where
MEMORY_REQUIRE names one that did not.

A backend ran when at least one test marked with it was executed and passed, and none
failed. Skipped, not collected and never reached are not "ran".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from tests.support.backends import BACKENDS, Backend
from tools import catalogue

PROPERTY = "backend"
NAMED = 40
"""How many failed tests the last lines name."""


@dataclass
class Tally:
    """What became of one backend's tests."""

    passed: int = 0
    failed: int = 0
    reasons: list[str] = field(default_factory=list)

    @property
    def ran(self) -> bool:
        return self.passed > 0 and self.failed == 0

    def sentence(self, backend: Backend) -> str:
        if self.failed:
            return f"{backend.name}: {self.failed} of its tests failed, {self.passed} passed"
        if self.passed:
            return f"{backend.name}: ran, {self.passed} tests passed" + (
                f" ({len(self.reasons)} skipped)" if self.reasons else ""
            )
        reason = backend.missing() or next(iter(dict.fromkeys(self.reasons)), "no test of it was selected")
        return f"{backend.name}: did not run: {reason}"


def required(environment: Mapping[str, str], backends: Iterable[str]) -> tuple[str, ...]:
    """The names in MEMORY_REQUIRE; an unknown one is an error, so that a typo cannot
    pass for a backend that ran.
    """
    names = tuple(
        dict.fromkeys(n.strip() for n in environment.get("MEMORY_REQUIRE", "").split(",") if n.strip())
    )
    known = tuple(backends)
    if unknown := [n for n in names if n not in known]:
        raise pytest.UsageError(f"MEMORY_REQUIRE names {', '.join(unknown)}; there are {', '.join(known)}")
    return names


class BackendReport:
    """The pytest plugin; on a worker it only labels reports, the process that started
    the workers counts them.
    """

    def __init__(
        self,
        config: pytest.Config,
        environment: Mapping[str, str] = os.environ,
        backends: Mapping[str, Backend] = BACKENDS,
    ) -> None:
        self.config = config
        self.backends = backends
        self.required = required(environment, backends)
        self.tallies = {name: Tally() for name in backends}
        self.on_worker = hasattr(config, "workerinput")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for number in (n for mark in item.iter_markers("behaviour") for n in mark.args):
                if problem := catalogue.problem(number):
                    raise pytest.UsageError(f"{item.nodeid}: {problem}")
            marked = dict.fromkeys(n for mark in item.iter_markers("backend") for n in mark.args)
            if unknown := [n for n in marked if n not in self.backends]:
                raise pytest.UsageError(
                    f"{item.nodeid}: there is no backend {unknown[0]!r}; there are {', '.join(self.backends)}"
                )
            for name in marked | dict.fromkeys(n for n in _harness(item) if n in self.backends):
                item.user_properties.append((PROPERTY, name))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for key, name in report.user_properties:
            if key != PROPERTY:
                continue
            tally = self.tallies[str(name)]
            if report.failed:
                tally.failed += 1
            elif report.skipped:
                tally.reasons.append(_reason(report))
            elif report.when == "call":
                tally.passed += 1

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        yield
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if self.on_worker or self.config.option.collectonly or terminal is None:
            return
        absent = [name for name in self.required if not self.tallies[name].ran]
        if absent and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self.required or any(t.passed or t.failed or t.reasons for t in self.tallies.values()):
            terminal.ensure_newline()
            terminal.write_line("Backends:")
            for name, tally in self.tallies.items():
                terminal.write_line(
                    f"  {tally.sentence(self.backends[name])}", red=bool(tally.failed) or name in absent
                )
        if absent:
            terminal.write_line(
                f"FAILED: MEMORY_REQUIRE names {', '.join(absent)}, which did not run and pass.", red=True
            )
        elif session.exitstatus == pytest.ExitCode.OK:
            terminal.write_line("Every selected test that this machine can run passed.")
        else:
            terminal.write_line("The tests did NOT all pass.")
            failed = [
                report.nodeid for outcome in ("failed", "error") for report in terminal.getreports(outcome)
            ]
            for one in failed[:NAMED]:  # last, once more: of a long run's output only the end may be kept
                terminal.write_line(f"  {one}", red=True)
            if len(failed) > NAMED:
                terminal.write_line(f"  and {len(failed) - NAMED} more", red=True)


def send_what_is_news(config: pytest.Config) -> None:
    """Have a worker send of each test its outcome, and a set-up or clean-up that did not
    pass. The rest is half of all messages, and shows with `-v` and `--durations` only.
    """
    if config.option.verbose > 0 or config.option.durations is not None:
        return
    for plugin in config.pluginmanager.get_plugins():
        if hasattr(plugin, "sendevent"):
            plugin.sendevent = partial(_send_news, plugin.sendevent)


def _send_news(send: Callable[..., None], name: str, **told: Any) -> None:
    report = told.get("data", {})
    passed_around_the_test = report.get("outcome") == "passed" and report.get("when") != "call"
    if name != "logstart" and not (name == "testreport" and passed_around_the_test):
        send(name, **told)


def _harness(item: pytest.Item) -> tuple[str, ...]:
    """The name of the harness that a contract test runs on."""
    parameters: Mapping[str, object] = getattr(getattr(item, "callspec", None), "params", {})
    name = getattr(parameters.get("contract_harness"), "name", None)
    return (name,) if isinstance(name, str) else ()


def _reason(report: pytest.TestReport) -> str:
    """Why it was skipped, without pytest's prefix."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")
