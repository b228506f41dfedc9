"""The README's fenced blocks, for the tests that run them."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", README.read_text(encoding="utf-8")) if README.exists() else []


def commands() -> list[str]:
    """The lines of the shell blocks."""
    return [line.strip() for block in blocks("sh") for line in block.splitlines() if line.strip()]
