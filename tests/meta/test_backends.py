"""The report on backends: what counts as "ran", and that a required one which did not
run fails the tests.
"""

from __future__ import annotations

import pytest

from tests.support.backends import BACKENDS, every_backend
from tests.support.reporting import required

CONFTEST = """
    from tests.support.backends import Backend
    from tests.support.reporting import BackendReport, send_what_is_news
    BACKENDS = {b.name: b for b in (Backend("near", str), Backend("far", str, missing=lambda: "no server answers"))}
    def pytest_configure(config):
        config.pluginmanager.register(BackendReport(config, backends=BACKENDS))
        send_what_is_news(config)
"""


def outcome(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tests: str, require: str = "", *options: str
) -> tuple[int, list[str]]:
    """The exit code and the last lines of a run of these tests with the report plugged
    in.
    """
    monkeypatch.setenv("MEMORY_REQUIRE", require)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(tests)
    pytester.makeini("[pytest]\nmarkers = backend\n    behaviour\n")
    result = pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:hypothesispytest", *options
    )
    return int(result.ret), result.outlines


NEAR = "import pytest\n@pytest.mark.backend('near')\ndef test_near(): {body}\n"
PASSES, FAILS, SKIPS = (
    NEAR.format(body=body) for body in ("pass", "assert False", "pytest.skip('the disk is full')")
)
UNMARKED = "def test_other(): pass\n"


def test_the_last_lines_say_which_ran_and_why_another_did_not(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, lines = outcome(pytester, monkeypatch, PASSES)
    assert code == 0
    assert lines[-4:] == [
        "Backends:",
        "  near: ran, 1 tests passed",
        "  far: did not run: no server answers",
        "Every selected test that this machine can run passed.",
    ]


@pytest.mark.parametrize(
    ("tests", "require", "says"),
    [
        (PASSES, "near,far", "FAILED: MEMORY_REQUIRE names far, which did not run and pass."),
        (SKIPS, "near", "FAILED: MEMORY_REQUIRE names near, which did not run and pass."),
        (UNMARKED, "near", "FAILED: MEMORY_REQUIRE names near, which did not run and pass."),
        (FAILS, "near", "FAILED: MEMORY_REQUIRE names near, which did not run and pass."),
        (FAILS, "", "The tests did NOT all pass."),
    ],
    ids=["no server", "skipped", "no test of it", "failed", "failed, not required"],
)
def test_a_required_backend_that_did_not_run_and_pass_fails_the_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tests: str, require: str, says: str
) -> None:
    code, lines = outcome(pytester, monkeypatch, tests, require)
    assert code == 1
    assert says in lines


def test_the_very_last_lines_name_what_failed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, lines = outcome(pytester, monkeypatch, FAILS)
    assert lines[-2:-1] == ["The tests did NOT all pass."]
    assert lines[-1].startswith("  test_the_very_last_lines_name_what_failed.py::test_")


def test_a_required_backend_fails_a_run_that_selects_none_of_its_tests(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, lines = outcome(pytester, monkeypatch, PASSES + UNMARKED, "near", "-k", "other")
    assert code == 1
    assert "  near: did not run: no test of it was selected" in lines


def test_a_skip_of_a_test_that_is_not_required_says_why(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, lines = outcome(pytester, monkeypatch, SKIPS)
    assert code == 0
    assert "  near: did not run: the disk is full" in lines


def test_a_run_spread_over_workers_counts_the_same(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    around = (
        "@pytest.fixture\ndef unclean():\n    yield\n    assert False, 'left behind'\ndef test_it(unclean):"
        " pass\n@pytest.mark.skip\ndef test_skipped(): pass\n"
    )
    code, lines = outcome(pytester, monkeypatch, PASSES + UNMARKED + around, "near", "-n", "2")
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "  near: ran, 1 tests passed" in lines
    assert any("3 passed, 1 skipped, 1 error" in line for line in lines)


def test_a_contract_test_counts_for_the_backend_its_harness_is_named_after(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = (
        "import pytest\nclass H: name = 'near'\n@pytest.mark.parametrize('contract_harness', [H])\ndef"
        " test_x(contract_harness): pass\n"
    )
    code, lines = outcome(pytester, monkeypatch, tests, "near")
    assert code == 0
    assert "  near: ran, 1 tests passed" in lines


def test_a_required_backend_that_does_not_exist_is_an_error_that_names_those_that_do() -> None:
    with pytest.raises(pytest.UsageError, match="names sqlight; there are in_memory, sqlite"):
        required({"MEMORY_REQUIRE": "sqlite,sqlight"}, ("in_memory", "sqlite"))


@pytest.mark.parametrize("marker", ["@pytest.mark.backend('nowhere')", "@pytest.mark.behaviour('A999')"])
def test_a_marker_that_names_nothing_stops_the_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, marker: str
) -> None:
    code, _ = outcome(pytester, monkeypatch, f"import pytest\n{marker}\ndef test_x(): pass\n")
    assert code == pytest.ExitCode.USAGE_ERROR


def test_every_backend_is_offered_to_tests_under_its_own_mark() -> None:
    offered = {
        mark.args[0] for parameter in every_backend() for mark in parameter.marks if mark.name == "backend"
    }
    assert offered == {backend.name for backend in BACKENDS.values() if backend.url is not None}
