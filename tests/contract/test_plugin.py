"""The contract's own rules: nothing passes by not running, no capability goes unjudged,
mistakes are named.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import sys

import pytest

import memory.ports.contract as contract
from memory.ports import capabilities
from memory.ports.contract import capability_tests, suite
from memory.ports.contract.cells import cells

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
    from memory.ports.contract.capability_tests import needs, refuses, works
"""


@pytest.fixture
def outside(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder of someone else's, with a harness of theirs."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # half of a run imports them
    pytester.makepyfile(mine=EXAMPLE)
    pytester.makeini(
        "[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n"
        "addopts = -p pytest_asyncio.plugin\n"
    )
    return pytester


def _run(outside: pytest.Pytester, *args: str, harness: str = "mine:Mine") -> tuple[int, str]:
    result = outside.runpytest_subprocess(
        "-p", "memory.ports.contract.plugin", "-p", "no:cacheprovider", "--memory-harness", harness, *args
    )
    return int(result.ret), result.stdout.str() + result.stderr.str()


def _with_test(outside: pytest.Pytester, body: str) -> tuple[int, str]:
    outside.makepyfile(test_own=SUITE + body)
    return _run(outside, "test_own.py")


# -- capabilities ----------------------------------------------------------------------


def test_every_flag_and_limit_has_a_judge_for_both_answers() -> None:
    assert capability_tests.untested_capabilities() == []


@pytest.mark.parametrize("kind", ["FLAGS", "LIMITS"])
def test_a_capability_no_test_judges_is_named(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(capabilities, kind, (*getattr(capabilities, kind), "teleport"))
    missing = capability_tests.untested_capabilities()
    assert len(missing) == 2
    assert all("teleport" in hole for hole in missing)


@pytest.mark.thorough
def test_a_run_with_an_unjudged_capability_stops(outside: pytest.Pytester) -> None:
    outside.makeconftest("from memory.ports import capabilities\ncapabilities.FLAGS += ('teleport',)\n")
    code, said = _with_test(outside, "\n    def test_any(harness):\n        pass\n")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "the contract has holes: 'teleport' has no test that it works where claimed" in said


@pytest.mark.thorough
def test_a_test_that_names_an_unknown_capability_is_a_collection_error(outside: pytest.Pytester) -> None:
    code, said = _with_test(outside, "\n    @needs('teleport')\n    def test_any(harness):\n        pass\n")
    assert code == pytest.ExitCode.INTERRUPTED
    assert "no capability is called 'teleport'" in said


@pytest.mark.thorough
def test_tests_of_servers_run_for_remote_harnesses_alone_and_fail_without_their_hooks(
    outside: pytest.Pytester,
) -> None:
    code, said = _run(outside, "--pyargs", "memory.ports.contract.test_servers", harness="mine:Mine")
    assert code == pytest.ExitCode.NO_TESTS_COLLECTED
    outside.makepyfile(far=EXAMPLE.replace('name = "mine"\n', 'name = "mine"\n        remote = True\n'))
    code, said = _run(outside, "-x", "--pyargs", "memory.ports.contract.test_servers", harness="far:Mine")
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "must implement with_short_timeouts()" in said


@pytest.mark.thorough
def test_an_edition_can_be_pinned(outside: pytest.Pytester) -> None:
    body = """
    from memory.ports.contract.clauses import clause

    @clause("get.order")
    def test_of_the_first(harness):
        pass

    @clause("get.order", since=2)
    def test_of_the_second(harness):
        pass
    """
    outside.makepyfile(test_own=SUITE + body)
    code, said = _run(outside, "test_own.py", "--contract-edition", "1", "--contract-json", "told.json")
    assert code == 0, said
    assert "1 passed, 1 deselected" in said
    assert json.loads((outside.path / "told.json").read_text())["pinned"] == 1
    code, said = _run(outside, "test_own.py", "--contract-edition", "99")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "has the editions 1 to" in said


# -- nothing passes by not running -----------------------------------------------------

EXCUSES = {
    "a skip": ("\n    def test_any(harness):\n        pytest.skip('no')\n", "was skipped"),
    "a skip mark": ("\n    @pytest.mark.skip\n    def test_any(harness):\n        pass\n", "was skipped"),
    "a skip in a fixture": (
        (
            "\n    @pytest.fixture\n    def no():\n        pytest.skip('no')\n    def test_any(harness,"
            " no):\n        pass\n"
        ),
        "was skipped",
    ),
    "an expected failure": (
        "\n    @pytest.mark.xfail\n    def test_any(harness):\n        assert False\n",
        "was expected to fail",
    ),
    "an unexpected success": (
        "\n    @pytest.mark.xfail\n    def test_any(harness):\n        pass\n",
        "was expected to fail",
    ),
}


def test_no_excuse_counts_as_a_pass(outside: pytest.Pytester) -> None:
    bodies = "".join(body.replace("test_any", f"test_{n}") for n, (body, _) in enumerate(EXCUSES.values()))
    code, said = _with_test(outside, bodies)
    assert code == pytest.ExitCode.TESTS_FAILED
    for n, (excuse, (_, said_why)) in enumerate(EXCUSES.items()):
        assert re.search(rf"test_{n}\[mine\] {said_why}", said), excuse
    assert not re.search(r"\d+ (passed|skipped|xfailed|xpassed)", said)


# -- tables and depth ------------------------------------------------------------------


@pytest.mark.thorough
def test_every_cell_of_a_table_runs_on_a_store_as_new_and_all_that_failed_are_named(
    outside: pytest.Pytester,
) -> None:
    body = """
    from memory.ports.contract.cells import cells
    from memory.ports.contract.support import apply_all, fetch_stored, put, record

    @pytest.mark.asyncio
    @cells("one", ["a", "b"])
    @cells("two", [1, 2, 3], ids=["first", "second", "third"])
    async def test_table(store, one, two):
        assert await fetch_stored(store) is None, "left by another cell"
        await apply_all(store, put(record()))
        if two == 2:
            pytest.fail("the second")
        assert (one, two) != ("b", 3), "b and 3"

    @cells("number, square", [(2, 4), (3, 10)], ids=str, shared=True)
    def test_plain(harness, number, square):
        assert number**2 == square
    """
    code, said = _with_test(outside, body)
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "cells failed: second-a; second-b; third-b\n" in said
    assert "cells failed: (3, 10)\n" in said
    assert "in the cell 'third-b'" in said
    assert "b and 3" in said
    assert "left by another cell" not in said.replace('"left by another cell"', "")


def test_a_table_of_nothing_and_one_with_a_name_too_few_are_refused() -> None:
    with pytest.raises(ValueError, match="would prove nothing"):
        cells("one", [])
    with pytest.raises(ValueError, match="shorter"):
        cells("one", [1, 2], ids=["first"])


@pytest.mark.thorough
def test_a_store_that_can_be_cleared_is_lent_from_test_to_test_and_given_back(
    outside: pytest.Pytester,
) -> None:
    outside.makepyfile(
        lends=EXAMPLE
        + """
        made = given_back = 0

        async def clear(self, store, collections):
            store.state.__init__()
            return store

        async def make(self):
            type(self).made += 1
            return InMemoryStore("mine")

        async def dispose(self, store):
            type(self).given_back += 1
            await store.close()
            if type(self).given_back == type(self).made:
                print(f"made {type(self).made}, all given back")
    """
    )
    body = """
    from memory.ports.contract.support import apply_all, fetch_stored, put, record

    @pytest.mark.asyncio
    @pytest.mark.parametrize("number", range(4))
    async def test_lent(store, number):
        assert await fetch_stored(store) is None
        await apply_all(store, put(record()))

    @pytest.mark.asyncio
    async def test_own(harness, store):
        await apply_all(store, put(record()))
    """
    outside.makeconftest("from memory.ports.contract.fixtures import harness, store")
    outside.makepyfile(test_it=SUITE + body)
    code, said = _run(outside, "-s", "test_it.py", harness="lends:Mine")
    assert code == pytest.ExitCode.OK, said
    assert "made 2, all given back" in said


SEEDED = """
    SEEN = []

    @needs("filter")
    @pytest.mark.parametrize("seed", range(3))
    def test_seeded(harness, seed):
        SEEN.append((harness.name, harness.depth.examples))

    @needs("shared")
    @pytest.mark.parametrize("seed", range(3))
    def test_of_clients(harness, seed):
        SEEN.append((harness.name, harness.depth.examples))

    def test_drawn(harness):
        print("drawn", sorted(SEEN))
"""
VARIANT = """

    class Variant(Mine):
        name = "variant"
        primary = "mine"
        claims = Capabilities(shared=True, filter=True)
"""


@pytest.mark.thorough
def test_a_quick_run_asks_the_same_and_draws_less(outside: pytest.Pytester) -> None:
    outside.makepyfile(test_it=SUITE + SEEDED)
    code, said = _run(outside, "-s", "test_it.py")
    assert (code, "drawn [('mine', 100), ('mine', 100), ('mine', 100)]" in said) == (
        pytest.ExitCode.OK,
        True,
    ), said
    code, said = _run(outside, "-s", "test_it.py", "--contract-depth", "quick")
    assert (code, "drawn [('mine', 20)]" in said) == (pytest.ExitCode.OK, True), said


@pytest.mark.thorough
def test_a_variant_draws_less_of_what_its_primary_is_asked_too_and_in_full_what_it_alone_is(
    outside: pytest.Pytester,
) -> None:
    outside.makepyfile(mine=EXAMPLE + VARIANT, test_it=SUITE + SEEDED)
    code, said = _run(outside, "-s", "test_it.py", "--memory-harness", "mine:Variant")
    alone, both = [("variant", 100)] * 3, [("mine", 100)] * 3
    assert (code, f"drawn {sorted([*both, ('variant', 20), *alone])}" in said) == (
        pytest.ExitCode.OK,
        True,
    ), said
    code, said = _run(
        outside, "-s", "test_it.py", "--memory-harness", "mine:Variant", "--contract-depth", "full"
    )
    assert (code, f"drawn {sorted([*both, *alone, *alone])}" in said) == (pytest.ExitCode.OK, True), said
    code, said = _run(outside, "-s", "test_it.py", harness="mine:Variant")
    assert (code, f"drawn {alone * 2}" in said) == (pytest.ExitCode.OK, True), said


@pytest.mark.thorough
def test_without_a_harness_the_contract_is_an_error(outside: pytest.Pytester) -> None:
    result = outside.runpytest_subprocess(
        "-p", "memory.ports.contract.plugin", "--pyargs", "memory.ports.contract.test_limits"
    )
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "no harness: name one with --memory-harness" in result.stdout.str()


UNUSABLE = {
    "mine": "takes package.module:Class",
    "absent:Mine": "No module named 'absent'",
    "mine:Absent": "has no attribute 'Absent'",
    "mine:InMemoryStore": "is not a subclass",
    "memory.ports.contract.harness:Harness": "must set `name` and `claims`",
    "unknown:Mine": "teleport",
    "number:Mine": "`remote` is a bool",
    "seconds:Mine": "`patience` a timedelta",
    "skipping:Mine": "knows no skips",
}
"""Harnesses that are refused, and what is said of them."""
ONE_AFTER_THE_OTHER = """
import contextlib, io, json, sys, pytest
said = {}
for named in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        code = pytest.main([
            "-p", "memory.ports.contract.plugin", "-p", "no:cacheprovider", "--memory-harness", named,
            "--pyargs", "memory.ports.contract.test_limits",
        ])
    said[named] = int(code), out.getvalue()
print(json.dumps(said))
"""


@pytest.mark.thorough
def test_a_harness_that_cannot_be_used_is_named(outside: pytest.Pytester) -> None:
    def named_with(line: str) -> str:
        return EXAMPLE.replace('name = "mine"\n', f'name = "mine"\n        {line}\n')

    outside.makepyfile(
        unknown=EXAMPLE.replace("InMemoryStore.claims", "Capabilities(teleport=True)"),
        number=named_with("remote = 1"),
        seconds=named_with("patience = 5"),
        skipping="import pytest\npytest.importorskip('a_driver_that_is_absent')\n",
    )
    ran = outside.run(sys.executable, "-c", ONE_AFTER_THE_OTHER, *UNUSABLE)
    said = json.loads(ran.stdout.str().splitlines()[-1])
    for named, why in UNUSABLE.items():
        code, text = said[named]
        assert (code, why in text) == (pytest.ExitCode.USAGE_ERROR, True), (named, text)


# -- both ways of running it -----------------------------------------------------------


@pytest.mark.thorough
def test_a_suite_that_imports_the_contract_runs_it(outside: pytest.Pytester) -> None:
    outside.makeconftest("""
        from memory.ports.contract.fixtures import harness, store
        from memory.ports.contract.plugin import add_harnesses
        from mine import Mine

        def pytest_configure(config):
            add_harnesses(config, Mine)
        """)
    outside.makepyfile(test_it="from memory.ports.contract.suite import *")
    result = outside.runpytest_subprocess(
        "-p", "memory.ports.contract.plugin", "-q", "test_it.py", "-k", "together"
    )
    assert result.ret == pytest.ExitCode.OK
    assert result.parseoutcomes()["passed"] > 5


def test_the_suite_to_import_holds_every_test_of_the_package() -> None:
    written: set[str] = set()
    for module in pkgutil.iter_modules(contract.__path__):
        if module.name.startswith("test_"):
            tests = {
                name: test
                for name, test in vars(importlib.import_module(f"{contract.__name__}.{module.name}")).items()
                if name.startswith("test_")
            }
            assert not written & set(tests), "two tests of one name: one would hide the other"
            written |= set(tests)
    assert len(written) > 100
    assert written == {
        name for name in vars(suite) if name.startswith("test_") and callable(getattr(suite, name))
    }
