"""docs/behaviours.md says what the markers say, and a marker that says nothing is an
error.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.ports.contract.cells import cells
from tools import behaviours, catalogue
from tools.behaviours import Proof, WrongMarker, claims

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "spec"


def found(source: str) -> list[tuple[str, str]]:
    return [(number, proof.name) for number, proof in claims(source, "tests/test_x.py")]


def test_a_marker_on_a_function_names_the_function() -> None:
    assert found('@pytest.mark.behaviour("A33", "AC-A15")\nasync def test_x(): ...') == [
        ("A33", "test_x"),
        ("AC-A15", "test_x"),
    ]


def test_a_marker_on_a_class_a_parameter_or_a_file_counts_too() -> None:
    source = (
        'pytestmark = pytest.mark.behaviour("B1")\n'
        '@pytest.mark.behaviour("B2")\nclass TestX:\n'
        '    @pytest.mark.parametrize("v", [pytest.param(1, marks=pytest.mark.behaviour("B3"))])\n'
        "    def test_y(self, v): ...\n"
    )
    assert set(found(source)) == {("B1", ""), ("B2", "TestX"), ("B3", "TestX.test_y")}


@cells(
    "wrong",
    [
        '"A999"',
        '"A0"',
        '"a33"',
        '"A033"',
        '"AC-A2"',
        '"AC-A13"',
        '"F1"',
        '"A33 "',
        "33",
        "row",
        '"A100"',
        "",
        '*["A33"]',
    ],
    shared=True,
)
def test_a_marker_that_names_no_row_is_an_error_that_says_where(wrong: str) -> None:
    with pytest.raises(WrongMarker, match=r"tests/test_x.py:2"):
        found(f"\n@pytest.mark.behaviour({wrong})\ndef test_x(): ...")


def test_rows_stand_in_the_order_of_the_catalogue() -> None:
    proofs = {n: [Proof("tests/test_x.py", "test_x")] for n in ("A10", "AC-A03", "A9", "B2")}
    text = behaviours.document(proofs)
    places = [text.index(f"| {n} |") for n in ("A9", "A10", "AC-A03", "B2")]
    assert places == sorted(places)
    assert "| A: scoped memory store | 2 of 110 | 1 of 20 |" in text
    assert "Rows without a test: A1–A8, A11–A93, A111–A127." in text


def test_the_written_document_is_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    assert behaviours.main(["--check"]) == 0, capsys.readouterr().err


@pytest.mark.thorough
def test_a_stale_document_fails_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = tmp_path / "behaviours.md"
    stale.write_text("# Behaviours\n")
    monkeypatch.setattr(behaviours, "DOCUMENT", stale)
    assert behaviours.main(["--check"]) == 1
    assert behaviours.main([]) == 0
    assert behaviours.main(["--check"]) == 0


@pytest.mark.skipif(not SHARED.exists(), reason="the catalogue itself is not beside this clone")
def test_the_known_numbers_are_those_of_the_catalogue() -> None:
    import re

    listed = (SHARED / "behaviours.md").read_text().split("\n# A ", 1)[1]
    described = {f"{s}{n}" for s, n in re.findall(r"(?m)^- ([A-E])(\d+)\b", listed)}
    worked = set(re.findall(r"(?m)^- \*\*(AC-[A-E]\d+)\*\*", (SHARED / "acceptance.md").read_text()))
    context = {f"{s}{n}" for s, ranges in catalogue.CONTEXT.items() for r in ranges for n in r}
    assert (described - context) | worked == catalogue.KNOWN
