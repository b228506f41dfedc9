"""Split texts into parts that are embedded separately. Pure and deterministic."""

from __future__ import annotations

import re

PART = 1_000
"""The maximum number of characters of a part.

A vector is the mean over its words, so the vector of a longer text means little.
"""
FINE = 250
"""The maximum number of characters of a fine part.

Texts with fine parts also have a vector of the whole. A fine part has some
sentences, so that a single one still counts.
"""
_SENTENCE = re.compile(r"[.!?…。！？]+[\"'”’)\]]*\s|\n")
_GAP = re.compile(r"\s")


def parts_of(text: str) -> list[str]:
    """Return the parts of a text, in order.

    They have similar lengths up to `PART`. Each ends with a sentence if possible, else
    with a word. A text of white space has none.
    """
    return [text[start:end] for start, end in _spans(text, PART)]


def fine_parts_of(text: str) -> list[str]:
    """Return fine parts, up to `FINE`, of a text longer than `PART`; else none."""
    return [text[start:end] for start, end in fine_spans_of(text)]


def fine_spans_of(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each fine part."""
    return _spans(text, FINE) if is_long(text) else []


def is_long(text: str) -> bool:
    """Return whether the text has fine parts, without splitting it."""
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
    """Return the end of the gap nearest to `aim` characters; 0 if none is near."""
    ends = [found.end() for found in gap.finditer(text, start + aim // 2, start + min(aim + aim // 2, most))]
    return min(ends, key=lambda end: abs(end - start - aim), default=0)


def _strip_span(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span without white space at its ends."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end
