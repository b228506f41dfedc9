"""How a text is cut into the parts that are found by meaning each on its own. Pure: the
same text is always cut alike.
"""

from __future__ import annotations

import re

PART = 1_000
"""Characters of the longest part: a vector is the mean over its words, and of a longer
text means little.
"""
FINE = 250
"""Those of the longest part of a text that has a vector of the whole besides: some
sentences, so that one of them still tells.
"""
_SENTENCE = re.compile(r"[.!?…。！？]+[\"'”’)\]]*\s|\n")
_GAP = re.compile(r"\s")


def parts_of(text: str) -> list[str]:
    """The parts of a text, in order: about equal, none longer than `PART`, each ending
    with a sentence where there is one to end with, else with a word. A text of white
    space has none.
    """
    return [text[start:end] for start, end in _spans(text, PART)]


def fine_parts_of(text: str) -> list[str]:
    """The parts of a text that is longer than `PART`, none longer than `FINE`; of a
    shorter one none.
    """
    return [text[start:end] for start, end in fine_spans_of(text)]


def fine_spans_of(text: str) -> list[tuple[int, int]]:
    """Where these begin and end."""
    return _spans(text, FINE) if is_long(text) else []


def is_long(text: str) -> bool:
    """Whether there are any, which takes no cutting to tell."""
    return len(text) > PART and len(text.strip()) > PART


def _spans(text: str, most: int) -> list[tuple[int, int]]:
    spans, (start, end) = list[tuple[int, int]](), _strip_span(text, 0, len(text))
    while end - start > most:
        left = end - start
        aim = -(-left // -(-left // most))
        cut = _end(_SENTENCE, text, start, aim, most) or _end(_GAP, text, start, aim, most) or start + aim
        spans.append(_strip_span(text, start, cut))
        start, _ = _strip_span(text, cut, end)
    return [*spans, (start, end)] if start < end else spans


def _end(gap: re.Pattern[str], text: str, start: int, aim: int, most: int) -> int:
    """Where the gap ends that leaves most nearly `aim` characters before it; 0 where
    none leaves about so many.
    """
    ends = [found.end() for found in gap.finditer(text, start + aim // 2, start + min(aim + aim // 2, most))]
    return min(ends, key=lambda end: abs(end - start - aim), default=0)


def _strip_span(text: str, start: int, end: int) -> tuple[int, int]:
    """The same without the white space at its ends."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end
