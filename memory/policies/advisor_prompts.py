"""Build prompts for an advisor, and read its replies. Pure.

Texts of users and stored texts are always quoted, and never form a line of their own.
So they cannot pass for instructions of the prompt.
"""

from __future__ import annotations

import json
import re

QUESTION_BYTES = 2_000
"""The maximum number of bytes of a question that an advisor is shown."""
REPLY_CHARS = 16_000
"""The maximum number of characters of a reply that are read."""
_ENDS_A_LINE = {ord(char): f"\\u{ord(char):04x}" for char in "\x7f\x85\u2028\u2029"}
"""Characters that JSON leaves unescaped, but some programs treat as line ends."""
_ERROR = re.compile(r"\s*ERR(?::|\s*$)")


def quote_text(text: str, max_bytes: int) -> str:
    """Return the text as a line of JSON, cut to whole characters in `max_bytes`."""
    begun = text[:max_bytes].encode()[:max_bytes].decode(errors="ignore")
    return json.dumps(begun, ensure_ascii=False).translate(_ENDS_A_LINE)


def in_one_line(text: str) -> str:
    return " ".join(text.split())


def read_reply(reply: object) -> str | None:
    """Return the readable part of a reply, or None.

    It is None for a value that is not text, and for `ERR` and `ERR: why`, by which some
    advisors report a failure.
    """
    return reply[:REPLY_CHARS] if isinstance(reply, str) and not _ERROR.match(reply) else None
