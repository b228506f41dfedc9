"""How a text is cut into the parts that are found by meaning each on its own. Pure: the same text is always cut alike."""

from __future__ import annotations

import re

PART = 1_000
"""Characters of the longest part: a vector is the mean over its words, and of a longer text means little."""
_SENTENCE = re.compile(r"[.!?…。！？]+[\"'”’)\]]*\s|\n")
_GAP = re.compile(r"\s")


def parts_of(text: str) -> list[str]:
    """The parts of a text, in order: about equal, none longer than `PART`, each ending with a sentence where there is one to end with, else with a
    word. A text of white space has none."""
    parts, rest = list[str](), text.strip()
    while len(rest) > PART:
        aim = -(-len(rest) // -(-len(rest) // PART))
        end = _end(_SENTENCE, rest, aim) or _end(_GAP, rest, aim) or aim
        parts.append(rest[:end].strip())
        rest = rest[end:].strip()
    return [*parts, rest] if rest else parts


def _end(gap: re.Pattern[str], text: str, aim: int) -> int:
    """Where the gap ends that leaves most nearly `aim` characters before it; 0 where none leaves about so many."""
    ends = [found.end() for found in gap.finditer(text, aim // 2, min(aim + aim // 2, PART))]
    return min(ends, key=lambda end: abs(end - aim), default=0)
