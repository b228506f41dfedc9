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
    return [text[start:end] for start, end in spans_of(text)]


def long_parts_of(text: str) -> list[str]:
    """The parts of a text that has several; of a shorter one none, which is a part as it is."""
    parts = parts_of(text) if len(text) > PART else []
    return parts if len(parts) > 1 else []


def spans_of(text: str) -> list[tuple[int, int]]:
    """Where the parts of a text begin and end."""
    spans, (start, end) = list[tuple[int, int]](), _stripped(text, 0, len(text))
    while end - start > PART:
        left = end - start
        aim = -(-left // -(-left // PART))
        cut = _end(_SENTENCE, text, start, aim) or _end(_GAP, text, start, aim) or start + aim
        spans.append(_stripped(text, start, cut))
        start, _ = _stripped(text, cut, end)
    return [*spans, (start, end)] if start < end else spans


def _end(gap: re.Pattern[str], text: str, start: int, aim: int) -> int:
    """Where the gap ends that leaves most nearly `aim` characters before it; 0 where none leaves about so many."""
    ends = [found.end() for found in gap.finditer(text, start + aim // 2, start + min(aim + aim // 2, PART))]
    return min(ends, key=lambda end: abs(end - start - aim), default=0)


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """The same without the white space at its ends."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end
