"""What a text shows at a glance, as bits of one integer, made when it is written: so that ranking reads no text."""

from __future__ import annotations

import re

ASKS, ENDS_ASKING, HAS_NUMBER, HAS_PICTURE, HAS_PLACE, HAS_TIME = 1, 2, 4, 8, 16, 32
"""It has a question mark; ends with one; has a number; shows a picture; names something with a capital after in, at, to, near, from; tells a time."""

_NUMBER = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|hundred|thousand|once|twice|dozen|couple|few|several)\b",
    re.IGNORECASE,
)
_PICTURE = re.compile(r"\b(?:photo|photograph|picture|image|pic|painting|drawing|screenshot)\b", re.IGNORECASE)
_PLACE = re.compile(r"\b(?:in|at|to|near|from) (?:the )?[A-Z]\w")
_TIME = re.compile(
    r"(?i:\b(?:today|yesterday|tomorrow|tonight|morning|afternoon|evening|night|week|weekend|month|year|day|ago|since|last|next|recently|summer|winter|spring"
    r"|autumn|monday|tuesday|wednesday|thursday|friday|saturday|sunday|january|february|march|april|june|july|august|september|october|november"
    r"|december)s?\b)|\bMay\b|\b(?:19|20)\d\d\b",
)


def marks_of(text: str) -> int:
    """The bits of a text. English words; of other languages the signs and the figures alone."""
    shown = ASKS if "?" in text or "？" in text else 0
    shown |= ENDS_ASKING if text.rstrip(" \"'”’)").endswith(("?", "？")) else 0
    for bit, sign in ((HAS_NUMBER, _NUMBER), (HAS_PICTURE, _PICTURE), (HAS_PLACE, _PLACE), (HAS_TIME, _TIME)):
        shown |= bit if sign.search(text) else 0
    return shown
