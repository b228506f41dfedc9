"""The index of the decisions names every page, with its title and its status, and every
number that is referred to.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "decisions"
PAGES = sorted(FOLDER.glob("[0-9]*.md"))
ROW = re.compile(
    r"(?m)^\| (?:\[(?P<linked>\d{3})\]\((?P<file>[^)]+)\)|(?P<gone>\d{3})) \| (?P<title>.+?) \|"
    r" ?(?P<status>.*?) ?\|$"
)
STATUS = re.compile(r"accepted(, .+)?|superseded by \d{3}")
REFERENCE = re.compile(r"docs/decisions/(\d{3})|(?<!/)decisions?[/ ](\d{3})\b")


def rows() -> dict[str, re.Match[str]]:
    return {row["linked"] or row["gone"]: row for row in ROW.finditer((FOLDER / "README.md").read_text())}


def unlinked(text: str) -> str:
    return re.sub(r"\[(\d{3})\]\([^)]+\)", r"\1", text)


def test_every_page_has_a_row_with_its_title_and_status() -> None:
    for page in PAGES:
        first, _, third, *_ = page.read_text().splitlines()
        number, title = first.removeprefix("# ").split(": ", 1)
        assert page.name.startswith(f"{number}-"), page.name
        row = rows()[number]
        assert (row["file"], row["title"]) == (page.name, title)
        assert third == f"Status: {unlinked(row['status'])}.", page.name
        assert STATUS.fullmatch(unlinked(row["status"])), page.name


def test_a_row_without_a_page_says_what_became_of_the_number() -> None:
    there = {page.name[:3] for page in PAGES}
    for number, row in rows().items():
        if number not in there:
            assert row["gone"], f"{number} has no page"
            by = re.search(r"superseded by \[(\d{3})\]", row["status"])
            assert (by and by[1] in there) or row["title"] == "(never used)", number


def test_every_decision_that_is_referred_to_is_in_the_index() -> None:
    files = [
        path
        for part in ("memory", "tests", "tools", "bench", "docs")
        for path in (ROOT / part).rglob("*")
        if path.suffix in (".py", ".md", ".toml", ".txt")
    ]
    files += [
        ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", ".ci/run", "pyproject.toml")
    ]
    named = {
        first or second: path
        for path in files
        for first, second in REFERENCE.findall(path.read_text(encoding="utf-8", errors="replace"))
    }
    assert len(named) > 20
    assert {number: path for number, path in named.items() if number not in rows()} == {}
