"""Escape text so that it cannot be taken for a command or a frame. Pure.

Lines end where `str.splitlines` ends them, here and where commands are read. A reader
that knows fewer line ends sees no line that is not checked here.
"""

from __future__ import annotations

import re

_UNSEEN = (
    "\\s\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Characters that may precede or interrupt a frame or command and leave it readable."""


def _word_pattern(word: str) -> str:
    """Return a pattern of the word with invisible characters between its letters.

    Whitespace between letters does not match.
    """
    return rf"(?:(?!\s)[{_UNSEEN}])*".join(word)


_MEM, _ENDMEM, _END, _MEMORY = (_word_pattern(word) for word in ("/mem", "/endmem", "end", "memory"))
_LOOKS_LIKE_ONE = (
    rf"{_MEM}(?!\w)|{_ENDMEM}(?!\w)|\[[{_UNSEEN}]*{_MEM}(?!\w)|\[[{_UNSEEN}]*{_END}[{_UNSEEN}]+{_MEMORY}"
)
_TO_ESCAPE = re.compile(rf"([{_UNSEEN}]*)(?=\\*(?:{_LOOKS_LIKE_ONE}))", re.IGNORECASE)
_ESCAPED = re.compile(rf"([{_UNSEEN}]*)\\(?=\\*(?:{_LOOKS_LIKE_ONE}))", re.IGNORECASE)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_CUT = "…"


def escape_text(text: str) -> str:
    """Put a backslash before each line that begins like a frame or a command.

    `unescape_text` restores the exact text.
    """
    return "".join(
        _TO_ESCAPE.sub(r"\1\\", line, count=1) if _TO_ESCAPE.match(line) else line
        for line in text.splitlines(keepends=True)
    )


def unescape_text(text: str) -> str:
    """Remove the backslashes that `escape_text` adds."""
    return "".join(
        _ESCAPED.sub(r"\1", line, count=1) if _ESCAPED.match(line) else line
        for line in text.splitlines(keepends=True)
    )


def one_line(text: str) -> str:
    """Return the text as one line.

    Whitespace and line ends become single blanks. Unprintable characters and those that
    cannot be encoded are replaced.
    """
    return _CONTROL.sub("\ufffd", " ".join(text.split()))


def excerpt_line(text: str, most: int) -> str:
    """Return the text as one line of at most `most` bytes, cut between characters."""
    flat = one_line(text[: 4 * most])  # some whitespace may be removed
    data = flat.encode()
    if len(data) <= most and len(text) <= 4 * most:
        return flat
    return data[: most - len(_CUT.encode())].decode(errors="ignore") + _CUT
