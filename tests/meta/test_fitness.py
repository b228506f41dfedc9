"""The table of the frameworks' tests counts each outcome once, and hides no failure."""

from __future__ import annotations

from pathlib import Path

from tools import fitness

REPORT = """<testsuites><testsuite>
  <testcase name="a"/>
  <testcase name="b"/>
  <testcase name="c"><failure message="no"/></testcase>
  <testcase name="d"/><testcase name="e"><error message="no server"/></testcase>
  <testcase name="f"><skipped type="pytest.xfail" message="one vector"/></testcase>
  <testcase name="g"><skipped type="pytest.skip" message="no image"/></testcase>
</testsuite></testsuites>"""


def test_each_outcome_is_counted_once(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    outcome = fitness.read_outcome(report)
    assert outcome.row("name") == "| name | 3 | 2 | 1: one vector; 1 not run: no image |"
    assert not outcome.is_good


def test_a_run_without_a_report_or_without_tests_is_not_good(tmp_path: Path) -> None:
    assert not fitness.read_outcome(tmp_path / "missing.xml").is_good
    good = tmp_path / "good.xml"
    good.write_text('<testsuites><testcase name="a"/></testsuites>')
    assert fitness.read_outcome(good).is_good
    assert not fitness.read_outcome(good, status=1).is_good, "a required backend may not have run"
    empty = tmp_path / "empty.xml"
    empty.write_text("<testsuites/>")
    assert not fitness.read_outcome(empty).is_good


def test_ci_runs_frameworks_that_exist() -> None:
    assert set(fitness.CI) <= set(fitness.list_frameworks())


OTHERS = ("test_", "conftest", "suites", "measure", "upstream_plugin")
"""How modules beside those of an adapter begin."""


def test_a_module_of_an_adapter_has_at_most_250_lines() -> None:
    """If one needs more, the memory lacks a call that it needs."""
    modules = [one for one in fitness.FITNESS.glob("*/*.py") if not one.name.startswith(OTHERS)]
    lines = {f"{one.parent.name}/{one.name}": len(one.read_text().splitlines()) for one in modules}
    assert {name: count for name, count in lines.items() if count > 250} == {}
    assert len(lines) > 11
