"""What goes into a prompt to an advisor, and what of its answer is read. Pure.

What users said and what is stored is always quoted, and never a line of its own: it
cannot look like what the prompt itself says.
"""

from __future__ import annotations

import json
import re

QUESTION_BYTES = 2_000
"""Of a question, what an advisor is shown."""
REPLY_CHARS = 16_000
"""Of a reply, what is read."""
_ENDS_A_LINE = {ord(char): f"\\u{ord(char):04x}" for char in "\x7f\x85\u2028\u2029"}
"""What JSON may leave as it is, and some take for the end of a line."""
_ERROR = re.compile(r"\s*ERR(?::|\s*$)")


def quote_text(text: str, max_bytes: int) -> str:
    """The text, or as many whole characters of its beginning as are so many bytes, as
    one line of JSON.
    """
    begun = text[:max_bytes].encode()[:max_bytes].decode(errors="ignore")
    return json.dumps(begun, ensure_ascii=False).translate(_ENDS_A_LINE)


def in_one_line(text: str) -> str:
    return " ".join(text.split())


def read_reply(reply: object) -> str | None:
    """What is read of a reply; None for what is no text, and for `ERR` and `ERR: why`,
    by which some say that they failed.
    """
    return reply[:REPLY_CHARS] if isinstance(reply, str) and not _ERROR.match(reply) else None
