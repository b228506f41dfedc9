"""The secrets of API keys: `mt_`, an id, `_` and 43 characters with a checksum.

Nothing here uses a store. A mistyped key is refused by its checksum alone.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
import zlib
from datetime import timedelta
from typing import Final, NamedTuple

from memory.domain.errors import InvalidInput
from memory.domain.time import parse_duration

ALPHABET: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
ID_CHARS: Final = 10
_RANDOM_CHARS: Final = 37
_CHECKSUM_CHARS: Final = 6
_BEGIN: Final = re.compile(rf"(mt_[0-9A-Za-z]{{{ID_CHARS}}})_[0-9A-Za-z]*")
_FORM: Final = re.compile(rf"mt_([0-9A-Za-z]{{{ID_CHARS}}})_([0-9A-Za-z]{{37}})([0-9A-Za-z]{{6}})")


class KeyText(NamedTuple):
    """The text of an API key, which only its holder has, and the id in it."""

    key_id: str
    text: str

    @property
    def digest(self) -> str:
        """The SHA-256 of the secret, which is stored in its place."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def is_key_id(text: str) -> bool:
    """Return whether a text has the form of a key's id."""
    return len(text) == ID_CHARS and text.isalnum() and text.isascii()


def without_texts(line: str) -> str:
    """Return the line of a log, with the secret part of every key cut off."""
    return _BEGIN.sub(r"\1_…", line)


def new_key_id() -> str:
    """Return the id of a new key."""
    return _random_text(ID_CHARS)


def key_id_of_request(*named: str) -> str:
    """Return the id of the key that a request creates, the same for each repeat."""
    number = int.from_bytes(hashlib.sha256("\0".join(named).encode()).digest()[:16])
    return _base62(number, ID_CHARS)


def new_key_text(key_id: str) -> KeyText:
    """Return a new secret for the key with this id."""
    head = f"mt_{key_id}_{_random_text(_RANDOM_CHARS)}"
    return KeyText(key_id, head + _checksum(head))


def parse_key_text(text: str) -> KeyText | None:
    """Return a key by its text; None if the form or the checksum is wrong."""
    found = _FORM.fullmatch(text)
    if found is None or _checksum(text[:-_CHECKSUM_CHARS]) != found[3]:
        return None
    return KeyText(found[1], text)


def _random_text(length: int) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(length))


def _checksum(head: str) -> str:
    return _base62(zlib.crc32(head.encode()), _CHECKSUM_CHARS)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))


def length_of(field: str, text: str) -> timedelta:
    """Return the length of time that a text names, such as `90d`.

    Raises:
        InvalidInput: It names none.
    """
    try:
        found = parse_duration(text)
    except ValueError:
        found = None
    if not isinstance(found, timedelta):  # an ISO 8601 duration, which only settings may have
        raise InvalidInput(field, f"must be a length of time such as 90d or 12h, not {text[:40]!r}")
    return found
