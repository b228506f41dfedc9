"""Values as PostgreSQL can hold them, and back: text without NUL, JSON that jsonb returns unchanged.

PostgreSQL refuses NUL in text and in jsonb. It is written as two characters, which keeps equality, order and ranges by code point as they
are and can be undone. jsonb keeps numbers as decimals: without a sign of nought, and large reals come back as integers. It orders the keys
of objects in its own way: they come back in another order than they were given in.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from functools import lru_cache
from typing import Any

from memory.ports.record import JsonValue
from memory.ports.storable import HALF_A_CHARACTER, Unstorable

_ESCAPED = str.maketrans({"\x00": "\x01\x01", "\x01": "\x01\x02"})
_UNESCAPE = re.compile("\x01([\x01\x02])")
_PLAIN = {"\x01": "\x00", "\x02": "\x01"}

_SHORT = 1024
LARGEST_JSON = 200 * 2**20
"""Bytes of one JSON value: jsonb holds at most 256 MiB of one kind."""


def escape(text: str) -> str:
    return text.translate(_ESCAPED) if "\x00" in text or "\x01" in text else text


def unescape(text: str) -> str:
    return _UNESCAPE.sub(lambda found: _PLAIN[found[1]], text) if "\x01" in text else text


def checked(text: str) -> str:
    """Text as a parameter takes it. Raises `Unstorable` for half of a surrogate pair."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Unstorable(HALF_A_CHARACTER) from None
    return escape(text)


# -- JSON -------------------------------------------------------------------------------------------------------------

_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True).encode
_from_json = json.JSONDecoder().decode
_DELICATE = re.compile(r"\\u000[01]|-0\.0|\de[+-]?\d")
"""What may not survive jsonb: NUL and the escape's own character, a negative nought, reals with an exponent."""
_NOUGHT = "\x01"
"""The only key of an object that stands for the real number -0.0: no escaped key is alike."""


def canonical(name: str, value: JsonValue) -> str:
    """A JSON value as text, the same for equal values: what checksums are made over. Raises `Unstorable`."""
    try:
        text = _to_json(value)
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:
        raise Unstorable(HALF_A_CHARACTER) from None
    except (ValueError, TypeError, RecursionError) as exc:
        raise Unstorable(f"{name}: {exc}") from exc
    if len(text) > LARGEST_JSON // 4 and len(text.encode()) > LARGEST_JSON:
        raise Unstorable(f"{name}: takes at most {LARGEST_JSON} bytes as JSON")
    return text


def for_jsonb(text: str) -> str:
    """A canonical text as jsonb is given it."""
    return _delicately(_from_json(text)) if _DELICATE.search(text) else text


def from_jsonb(text: str) -> tuple[Any, str]:
    """What jsonb holds, and its canonical text."""
    value = _from_json(text)
    if "\\u0001" in text:
        value = _restored(value)
    return value, _canonical_of(text) if len(text) <= _SHORT else _to_json(value)


@lru_cache(maxsize=4096)
def _canonical_of(text: str) -> str:
    """Of what jsonb holds. Remembered while it is short: the newest records are read over and over."""
    value = _from_json(text)
    return _to_json(_restored(value) if "\\u0001" in text else value)


def _delicately(value: Any) -> str:
    """JSON that means the same after jsonb had it."""
    kind = type(value)  # what a decoder makes has no type of its own
    if kind is float:
        return _real(value)
    if kind is str:
        return _to_json(escape(value))
    if kind is dict:
        return "{" + ",".join([f"{_to_json(escape(k))}:{_delicately(v)}" for k, v in value.items()]) + "}"
    if kind is list:
        return "[" + ",".join([_delicately(v) for v in value]) + "]"
    return _to_json(value)


def _real(value: float) -> str:
    """Without an exponent and with a point, so that it stays a real number."""
    text = repr(value)
    if text == "-0.0":
        return '{"\\u0001":"-0.0"}'
    if "e" not in text:
        return text
    text = format(Decimal(text), "f")
    return text if "." in text else text + ".0"


def _restored(value: Any) -> Any:
    match value:
        case str():
            return unescape(value)
        case dict():
            if value.keys() == {_NOUGHT}:
                return -0.0
            return {unescape(k): _restored(v) for k, v in value.items()}
        case list():
            return [_restored(v) for v in value]
        case _:
            return value
