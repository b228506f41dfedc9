"""Marks of a text, as bits of one integer that is stored when it is written.

So ranking does not read texts.
"""

from __future__ import annotations

import re

ASKS, ENDS_ASKING, HAS_NUMBER, HAS_PICTURE, HAS_PLACE, HAS_TIME = 1, 2, 4, 8, 16, 32
"""The marks of a text.

In order: it has a question mark, ends with one, has a number, shows a picture, names a
place, tells a time. A place is a capitalised word after in, at, to, near or from.
"""

_WORD = re.compile(r"\w+")
_DIGIT = re.compile(r"\d")
_NUMBERS = frozenset(
    "one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred"
    " thousand once twice dozen couple few several".split()
)
_PICTURES = frozenset("photo photograph picture image pic painting drawing screenshot".split())
_PLACE = re.compile(r"\b(?:in|at|to|near|from) (?:the )?[A-Z]\w")
_DAYS = (
    "today yesterday tomorrow tonight morning afternoon evening night week weekend month year day ago since"
    " last next recently summer winter spring autumn monday tuesday wednesday thursday friday saturday sunday"
    " january february march april june july august september october november december"
).split()
_TIMES = frozenset(_DAYS) | frozenset(f"{word}s" for word in _DAYS)
_MAY_OR_YEAR = re.compile(r"\bMay\b|\b(?:19|20)\d\d\b")


LOOKED_AT = 2_000
"""The characters of a text that are searched for marks other than questions.

A longer text either has them all, or is about something else.
"""


def marks_of(text: str) -> int:
    """Return the marks of a text.

    Words are English. In other languages only punctuation and digits count.
    """
    shown = ASKS if "?" in text or "？" in text else 0
    shown |= ENDS_ASKING if text.rstrip(" \"'”’)").endswith(("?", "？")) else 0
    begins = text[:LOOKED_AT]
    words = frozenset(_WORD.findall(begins.lower()))
    shown |= HAS_NUMBER if _DIGIT.search(begins) or not _NUMBERS.isdisjoint(words) else 0
    shown |= HAS_PICTURE if not _PICTURES.isdisjoint(words) else 0
    shown |= HAS_PLACE if _PLACE.search(begins) else 0
    shown |= HAS_TIME if not _TIMES.isdisjoint(words) or _MAY_OR_YEAR.search(begins) else 0
    return shown
