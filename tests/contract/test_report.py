"""The report of a run tells what was not judged, lists nothing that does not apply, and
says which tiers a store is fit for.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from memory.ports.contract.clauses import CLAUSES
from memory.ports.contract.harness import Harness
from memory.ports.contract.report import PROPERTY, Verdict, Verdicts
from tests.contract.harnesses import InMemory, InMemoryPlain, Sqlite

pytestmark = pytest.mark.behaviour("B61")


def _verdicts(
    *harnesses: type[Harness], failed: tuple[str, ...] = (), left_out: tuple[str, ...] = ()
) -> Verdicts:
    """What comes of a run in which every clause was cited by a test that passed, but
    for these.
    """
    verdicts = Verdicts({harness.name: harness for harness in harnesses})
    for harness in harnesses:
        for clauses, passed in (
            ([i for i in CLAUSES if i not in (*failed, *left_out)], True),
            (list(failed), False),
        ):
            report = SimpleNamespace(
                user_properties=[(PROPERTY, [harness.name, *clauses])],
                when="call",
                passed=passed,
                failed=not passed,
            )
            verdicts.take(cast("pytest.TestReport", report))
    return verdicts


def test_what_lacks_a_hook_is_not_judged_and_the_hook_is_named() -> None:
    verdicts = _verdicts(InMemory, Sqlite)
    assert "full.said" in verdicts.by_verdict("in_memory")[Verdict.NO_HOOK]
    assert "build.no-io" in verdicts.by_verdict("in_memory")[Verdict.PASSED]
    told = "\n".join(verdicts.lines(whole=False))
    for hook in ("make_with_limited_space", "damage_derived", "tiny", "remote"):
        assert f"`{hook}`" in told
    assert "`urls`" not in told
    ours = "\n".join(_verdicts(Sqlite).lines(whole=False))
    assert "`tiny`" not in ours, "given"
    assert "`damage_derived`" not in ours, "given"


def test_no_clause_passes_that_does_not_apply() -> None:
    told = _verdicts(InMemoryPlain).by_verdict("in_memory_plain")
    assert {"lexical.words", "durable.survives", "write.table", "atomic.together"} <= set(
        told[Verdict.DOES_NOT_APPLY]
    )
    assert "query.all" in told[Verdict.PASSED]
    assert "put.whole" in told[Verdict.DOES_NOT_APPLY], "no test of it concerns a store that claims nothing"


def test_levels_follow_from_claims_and_verdicts() -> None:
    assert _verdicts(Sqlite).levels("sqlite") == {"short": "", "mid": "", "long": ""}
    assert _verdicts(InMemory).levels("in_memory") == {
        "short": "",
        "mid": "lacks durable",
        "long": "lacks durable",
    }
    assert "failed: query.order" in _verdicts(Sqlite, failed=("query.order",)).levels("sqlite")["mid"]
    assert _verdicts(Sqlite, left_out=("get.order",)).levels("sqlite")["short"] == "1 clauses were not run"


def test_the_report_is_there_for_programs_too() -> None:
    told: dict[str, Any] = json.loads(_verdicts(Sqlite, failed=("get.order",)).as_json())
    ours = told["harnesses"]["sqlite"]
    assert (ours["clauses"]["get.order"]["verdict"], ours["clauses"]["remote.kept"]["verdict"]) == (
        "failed",
        "not judged",
    )
    assert not ours["levels"]["long"]["fit"]
    assert ours["claims"]["durable"] is True
    assert ours["clauses"].keys() == CLAUSES.keys()
