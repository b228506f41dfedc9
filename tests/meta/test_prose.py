"""Docstrings, comments, error texts and documents follow the rules of prose."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.prose import MOST_WORDS, files, findings

REPOSITORY = Path(__file__).resolve().parents[2]
CHECKED = ("memory", "README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/guide")
EXCEPTIONS = {
    "memory/adapters/file/library.py": "A table of files: its rows are no sentences.",
    "docs/behaviours.md": "Generated from the catalogue of behaviours, which is quoted.",
}
"""Files that may break a rule, and why."""


def pages() -> Iterator[Path]:
    yield from files([str(REPOSITORY / path) for path in CHECKED])
    yield from sorted((REPOSITORY / "docs").glob("*.md"))


def test_prose_follows_the_rules() -> None:
    broken = [
        str(finding)
        for path in pages()
        if str(path.relative_to(REPOSITORY)) not in EXCEPTIONS
        for finding in findings(path)
    ]
    assert broken == []


def test_every_exception_is_needed() -> None:
    assert [name for name in EXCEPTIONS if not findings(REPOSITORY / name)] == []


LONG = " ".join(["word"] * (MOST_WORDS + 1))


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (f'"""{LONG}."""', "a sentence of 26 words"),
        (f"# {LONG[:60]}\n# {LONG[60:]}.\n", "a sentence of 26 words"),
        (f'raise ValueError(f"{{x}} {LONG}")', "a sentence of 27 words"),
        ('"""The step is owed."""', "phrase 'is owed'"),
        ('"""What expired goes a day later."""', "phrase 'What expired"),
        ('def f():\n    """Return the name\n    of it.\n    """', "must be one line"),
        ('"""The default (D62)."""', "row code '(D62'"),
    ],
)
def test_what_breaks_a_rule_is_found(tmp_path: Path, source: str, problem: str) -> None:
    page = tmp_path / "page.py"
    page.write_text(source)
    (found,) = findings(page)
    assert problem in found.problem


@pytest.mark.parametrize(
    "source",
    [
        '"""Return the name.\n\n    x = memory.write("a", scope="user:ada", title="one two three four five six seven")\n"""',
        "# noqa: F403\n",
        '"""What is it? `is owed` in code."""',
        f'"""One idea each. {LONG[:100]}: {LONG[:20]}."""',
    ],
)
def test_code_questions_and_parts_of_sentences_pass(tmp_path: Path, source: str) -> None:
    page = tmp_path / "page.py"
    page.write_text(source)
    assert findings(page) == []
