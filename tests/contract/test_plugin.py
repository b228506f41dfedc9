"""The contract's own rules: nothing passes by not running, no capability goes unjudged, mistakes are named."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

import memory.ports.contract as contract
from memory.ports import capabilities
from memory.ports.contract import judges, suite

EXAMPLE = """
    from memory.adapters.in_memory import InMemoryStore
    from memory.ports.capabilities import Capabilities
    from memory.ports.contract.harness import Harness

    class Mine(Harness):
        name = "mine"
        claims = InMemoryStore.claims

        async def make(self):
            return InMemoryStore("mine")
"""
SUITE = """
    import pytest
    from memory.ports.contract.fixtures import harness, store
    from memory.ports.contract.judges import needs, refused, works
"""


@pytest.fixture
def outside(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder of someone else's, with a harness of theirs."""
    pytester.makepyfile(mine=EXAMPLE)
    pytester.makeini("[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n")
    return pytester


def _run(outside: pytest.Pytester, *args: str, harness: str = "mine:Mine") -> tuple[int, str]:
    result = outside.runpytest_subprocess("-p", "memory.ports.contract.plugin", "-p", "no:cacheprovider", "--memory-harness", harness, *args)
    return int(result.ret), result.stdout.str() + result.stderr.str()


def _with_test(outside: pytest.Pytester, body: str) -> tuple[int, str]:
    outside.makepyfile(test_own=SUITE + body)
    return _run(outside, "test_own.py")


# -- capabilities -----------------------------------------------------------------------------------------------------


def test_every_flag_and_limit_has_a_judge_for_both_answers() -> None:
    assert judges.unjudged() == []


@pytest.mark.parametrize("kind", ["FLAGS", "LIMITS"])
def test_a_capability_no_test_judges_is_named(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(capabilities, kind, (*getattr(capabilities, kind), "teleport"))
    missing = judges.unjudged()
    assert len(missing) == 2
    assert all("teleport" in hole for hole in missing)


def test_a_run_with_an_unjudged_capability_stops(outside: pytest.Pytester) -> None:
    outside.makeconftest("from memory.ports import capabilities\ncapabilities.FLAGS += ('teleport',)\n")
    code, said = _with_test(outside, "\n    def test_any(harness):\n        pass\n")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "the contract has holes: 'teleport' has no test that it works where claimed" in said


def test_a_test_that_names_an_unknown_capability_is_a_collection_error(outside: pytest.Pytester) -> None:
    code, said = _with_test(outside, "\n    @needs('teleport')\n    def test_any(harness):\n        pass\n")
    assert code == pytest.ExitCode.INTERRUPTED
    assert "no capability is called 'teleport'" in said


def test_a_harness_that_names_an_unknown_capability_is_refused(outside: pytest.Pytester) -> None:
    outside.makepyfile(wrong=EXAMPLE.replace("InMemoryStore.claims", "Capabilities(teleport=True)"))
    code, said = _run(outside, "--pyargs", "memory.ports.contract", harness="wrong:Mine")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "teleport" in said


@pytest.mark.parametrize(("line", "why"), [("remote = 1", "`remote` is a bool"), ("patience = 5", "`patience` a timedelta")])
def test_a_harness_that_says_it_wrong_whether_it_is_remote_is_refused(outside: pytest.Pytester, line: str, why: str) -> None:
    outside.makepyfile(wrong=EXAMPLE.replace('name = "mine"\n', f'name = "mine"\n        {line}\n'))
    code, said = _run(outside, "--pyargs", "memory.ports.contract.test_limits", harness="wrong:Mine")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert why in said


def test_tests_of_servers_run_for_remote_harnesses_alone_and_fail_without_their_hooks(outside: pytest.Pytester) -> None:
    code, said = _run(outside, "--pyargs", "memory.ports.contract.test_servers", harness="mine:Mine")
    assert code == pytest.ExitCode.NO_TESTS_COLLECTED
    outside.makepyfile(far=EXAMPLE.replace('name = "mine"\n', 'name = "mine"\n        remote = True\n'))
    code, said = _run(outside, "--pyargs", "memory.ports.contract.test_servers", harness="far:Mine")
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "must implement hurried()" in said


# -- nothing passes by not running ------------------------------------------------------------------------------------

EXCUSES = {
    "a skip": ("\n    def test_any(harness):\n        pytest.skip('no')\n", "was skipped"),
    "a skip mark": ("\n    @pytest.mark.skip\n    def test_any(harness):\n        pass\n", "was skipped"),
    "a skip in a fixture": (
        "\n    @pytest.fixture\n    def no():\n        pytest.skip('no')\n    def test_any(harness, no):\n        pass\n",
        "was skipped",
    ),
    "an expected failure": ("\n    @pytest.mark.xfail\n    def test_any(harness):\n        assert False\n", "was expected to fail"),
    "an unexpected success": ("\n    @pytest.mark.xfail\n    def test_any(harness):\n        pass\n", "was expected to fail"),
}


@pytest.mark.parametrize("excuse", EXCUSES)
def test_no_excuse_counts_as_a_pass(outside: pytest.Pytester, excuse: str) -> None:
    body, said_why = EXCUSES[excuse]
    code, said = _with_test(outside, body)
    assert code == pytest.ExitCode.TESTS_FAILED
    assert said_why in said
    assert not re.search(r"\d+ (passed|skipped|xfailed|xpassed)", said)


def test_without_a_harness_the_contract_is_an_error(outside: pytest.Pytester) -> None:
    result = outside.runpytest_subprocess("-p", "memory.ports.contract.plugin", "--pyargs", "memory.ports.contract.test_limits")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "no harness: name one with --memory-harness" in result.stdout.str()


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("mine", "takes package.module:Class"),
        ("absent:Mine", "No module named 'absent'"),
        ("mine:Absent", "has no attribute 'Absent'"),
        ("mine:InMemoryStore", "is not a subclass"),
        ("memory.ports.contract.harness:Harness", "must set `name` and `claims`"),
    ],
)
def test_a_harness_that_cannot_be_used_is_named(outside: pytest.Pytester, named: str, why: str) -> None:
    code, said = _run(outside, "--pyargs", "memory.ports.contract.test_limits", harness=named)
    assert code == pytest.ExitCode.USAGE_ERROR
    assert why in said


def test_a_harness_module_that_skips_itself_is_refused(outside: pytest.Pytester) -> None:
    outside.makepyfile(skipping="import pytest\npytest.importorskip('a_driver_that_is_absent')\n")
    code, said = _run(outside, "--pyargs", "memory.ports.contract.test_limits", harness="skipping:Mine")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "knows no skips" in said


# -- both ways of running it ------------------------------------------------------------------------------------------


def test_a_suite_that_imports_the_contract_runs_it(outside: pytest.Pytester) -> None:
    outside.makeconftest(
        """
        from memory.ports.contract.fixtures import harness, store
        from memory.ports.contract.plugin import add_harnesses
        from mine import Mine

        def pytest_configure(config):
            add_harnesses(config, Mine)
        """
    )
    outside.makepyfile(test_it="from memory.ports.contract.suite import *")
    result = outside.runpytest_subprocess("-p", "memory.ports.contract.plugin", "-q", "test_it.py", "-k", "conditions or together or filter")
    assert result.ret == pytest.ExitCode.OK
    assert result.parseoutcomes()["passed"] > 10


def test_the_suite_to_import_holds_every_test_of_the_package() -> None:
    written: set[str] = set()
    for module in pkgutil.iter_modules(contract.__path__):
        if module.name.startswith("test_"):
            tests = {
                name: test for name, test in vars(importlib.import_module(f"{contract.__name__}.{module.name}")).items() if name.startswith("test_")
            }
            assert not written & set(tests), "two tests of one name: one would hide the other"
            written |= set(tests)
    assert len(written) > 100
    assert written == {name for name in vars(suite) if name.startswith("test_") and callable(getattr(suite, name))}
