"""What a text shows at a glance, as bits of one integer, made when it is written: so
that ranking reads no text.
"""

from __future__ import annotations

import re

ASKS, ENDS_ASKING, HAS_NUMBER, HAS_PICTURE, HAS_PLACE, HAS_TIME = 1, 2, 4, 8, 16, 32
"""It has a question mark; ends with one; has a number; shows a picture; names something
with a capital after in, at, to, near, from; tells a time.
"""

_WORD = re.compile(r"\w+")
_DIGIT = re.compile(r"\d")
_NUMBERS = frozenset(
    "one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred thousand once twice dozen couple few"
    " several".split()
)
_PICTURES = frozenset("photo photograph picture image pic painting drawing screenshot".split())
_PLACE = re.compile(r"\b(?:in|at|to|near|from) (?:the )?[A-Z]\w")
_DAYS = (
    "today yesterday tomorrow tonight morning afternoon evening night week weekend month year day ago since last next recently summer winter spring"
    " autumn monday tuesday wednesday thursday friday saturday sunday january february march april june july august september october november"
    " december"
).split()
_TIMES = frozenset(_DAYS) | frozenset(f"{word}s" for word in _DAYS)
_MAY_OR_YEAR = re.compile(r"\bMay\b|\b(?:19|20)\d\d\b")


LOOKED_AT = 2_000
"""Characters of a text that are searched for numbers, pictures, places and times: a
longer one has them all, or is about something else.
"""


def marks_of(text: str) -> int:
    """The bits of a text. English words; of other languages the signs and the figures
    alone.
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
