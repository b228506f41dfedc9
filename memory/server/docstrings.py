"""Docstrings of the facade, as descriptions of routes and fields."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

_SECTION: Final = re.compile(r"^(Args|Returns|Raises|Yields):$", re.MULTILINE)
_ARGUMENT: Final = re.compile(r"^ {4}(\w+): ", re.MULTILINE)


@dataclass(frozen=True)
class Documentation:
    """The parts of a docstring in Google style."""

    summary: str
    text: str
    """The paragraphs before the sections, on one line each."""
    arguments: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, docstring: str) -> Documentation:
        """Return the parts of a docstring, as `inspect.getdoc` returns it."""
        head, *sections = _SECTION.split(docstring)
        summary, _, more = head.strip().partition("\n\n")
        named = dict(zip(sections[::2], sections[1::2], strict=True))
        parts = _ARGUMENT.split(named.get("Args", ""))
        arguments = {
            name: " ".join(text.split()) for name, text in zip(parts[1::2], parts[2::2], strict=True)
        }
        paragraphs = [one.strip() for one in more.split("\n\n") if not one.startswith("    ")]
        return cls(" ".join(summary.split()), "\n\n".join(paragraphs), arguments)
