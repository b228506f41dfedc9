"""The numbers of the behaviour catalogue and of its acceptance cases: what a test may
claim to prove. Titles stay where the catalogue is.
"""

from __future__ import annotations

import re

ROWS = {"A": 130, "B": 88, "C": 55, "D": 133, "E": 95}
"""Rows per section, numbered from 1 without gaps."""

CONTEXT = {"A": (range(94, 111), range(128, 131))}
"""Rows that describe a vendor's product: no behaviour of ours. E88 to E94, which do so
too, are what our two stores on plain files do.
"""

CASES = {
    "A": (1, 3, 5, 7, 9, 11, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39, 41),
    "B": tuple(range(1, 44, 2)),
    "C": tuple(range(1, 32, 2)),
    "D": tuple(range(1, 50, 2)),
    "E": tuple(range(1, 46, 2)),
}
"""Acceptance cases per section."""

SECTIONS = {
    "A": "scoped memory store",
    "B": "session memory: contexts, histories, compactions",
    "C": "conversation memory providers",
    "D": "structured memory: a typed temporal graph",
    "E": "memory manager over named stores",
}


def rows(section: str) -> list[str]:
    """The section's rows in catalogue order, those that are context left out."""
    context = {n for numbers in CONTEXT.get(section, ()) for n in numbers}
    return [f"{section}{n}" for n in range(1, ROWS[section] + 1) if n not in context]


def cases(section: str) -> list[str]:
    return [f"AC-{section}{n:02}" for n in CASES[section]]


KNOWN = frozenset(number for section in ROWS for number in (*rows(section), *cases(section)))


def problem(number: object) -> str | None:
    """Why no test can prove this number, or None where one can."""
    if not isinstance(number, str):
        return f"{number!r} is not a string such as 'A33' or 'AC-A15'"
    if number in KNOWN:
        return None
    if re.fullmatch(r"[A-E]\d+", number) and int(number[1:]) in {
        n for r in CONTEXT.get(number[0], ()) for n in r
    }:
        return f"{number} is a context row: it describes a vendor's product, and nothing of ours can prove it"
    return f"the catalogue has no row or case {number!r}"
