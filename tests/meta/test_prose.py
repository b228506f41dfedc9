"""Docstrings, comments, error texts and documents follow the rules of prose."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.prose import EXCEPTIONS, MOST_WORDS, REPOSITORY, findings, pages


def test_prose_follows_the_rules() -> None:
    assert [str(finding) for path in pages() for finding in findings(path)] == []


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
