"""The fenced blocks of the README and of other pages for users, for the tests that run
them.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))
"""A page per task, and their index."""
FIGURES = ROOT / "docs" / "figures.md"
RULES = ROOT / "docs" / "guide" / "rules.md"
OPERATIONS = ROOT / "docs" / "operations.md"
CHAPTER = ROOT / "docs" / "a-fact-changes-its-mind.md"


def blocks(language: str, page: Path = README) -> list[str]:
    """The fenced blocks of a language, in order."""
    return (
        re.findall(rf"(?ms)^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"))
        if page.exists()
        else []
    )


def commands(page: Path = README) -> list[str]:
    """The lines of the shell blocks."""
    return [line.strip() for block in blocks("sh", page) for line in block.splitlines() if line.strip()]
