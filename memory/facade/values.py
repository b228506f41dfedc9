"""The values a configuration is made of: store URLs that hide their secrets, durations as people write them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator

from memory.ports.local import LOCAL_SCHEMES

_SCHEME = re.compile(rf"([a-z][a-z0-9+.-]*)://|({'|'.join(map(re.escape, LOCAL_SCHEMES))}):(?=[^:])", re.IGNORECASE)
_BROKEN = re.compile(r"[a-z][a-z0-9+.-]+(?::/?|//).*@", re.IGNORECASE | re.DOTALL)
_SECRET_NAME = r"(?:pass|pwd|token|secret|key|credential|mechanismproperties)"  # noqa: S105 - part of a pattern
_SECRET_PARAMETER = re.compile(rf"([?&][^=&#]*{_SECRET_NAME}[^=&#]*=)[^&#]*", re.IGNORECASE)
_SECRET_OPTION = re.compile(_SECRET_NAME, re.IGNORECASE)
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d|w)\s*")

HIDDEN = "***"


def scheme_of(text: str) -> str | None:
    """The scheme of a URL in lower case; None for what is not a URL. What is on this machine may be written `file:folder`, without slashes."""
    found = _SCHEME.match(text)
    return (found[1] or found[2]).lower() if found else None


def is_broken_url(text: str) -> bool:
    """Whether it reads like a URL with a user in it whose `//` is missing: it may hold a password, so no message repeats it."""
    return scheme_of(text) is None and _BROKEN.match(text) is not None


def masked(url: str) -> str:
    """The URL without its password and without parameters named like a secret."""
    head, separator, rest = url.partition("://")
    if separator and not rest.startswith("/"):
        userinfo, at, host = rest.rpartition("@")
        user, colon, _ = userinfo.partition(":")
        rest = f"{user}{colon}{HIDDEN if colon else ''}{at}{host}"
    return _SECRET_PARAMETER.sub(rf"\g<1>{HIDDEN}", head + separator + rest)


def masked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the values of those named like a secret hidden, at every depth."""
    return {name: HIDDEN if _SECRET_OPTION.search(name) else _masked_value(value) for name, value in options.items()}


def _masked_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return masked_options(value)
    if isinstance(value, list | tuple):
        return [_masked_value(inner) for inner in value]
    return masked(value) if isinstance(value, str) and scheme_of(value) else value


class StoreUrl(str):
    """A store's URL, to the letter. Its repr, and so every repr that holds it, shows no secret."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(masked(self))


def parse_duration(value: object) -> object:
    """A timedelta of '30d', '1h 30m', '500ms' or a number of seconds; what is none of these is left for pydantic to judge."""
    if isinstance(value, bool):
        raise ValueError("should be a duration such as '30d', '5m' or '1h30m', not a truth value")
    if isinstance(value, str):
        text = value.strip().lower()
        parts = _PART.findall(text)
        if parts and not _PART.sub("", text):
            return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts))
        if not text.startswith("p"):  # an ISO 8601 duration such as PT5M is pydantic's to read
            raise ValueError("should be a duration such as '30d', '5m' or '1h30m'")
    return value


def _positive(value: object) -> object:
    parsed = parse_duration(value)
    if (isinstance(parsed, timedelta) and parsed <= timedelta()) or (isinstance(parsed, int | float) and parsed <= 0):
        raise ValueError("should be longer than nothing")
    return parsed


def _not_negative(value: object) -> object:
    parsed = parse_duration(value)
    if (isinstance(parsed, timedelta) and parsed < timedelta()) or (isinstance(parsed, int | float) and parsed < 0):
        raise ValueError("should not be negative")
    return parsed


Duration = Annotated[timedelta, BeforeValidator(_positive)]
"""A length of time of more than nothing."""

Interval = Annotated[timedelta, BeforeValidator(_not_negative)]
"""A length of time; zero means never."""


def show_duration(length: timedelta) -> str:
    """The shortest of the forms that `parse_duration` reads."""
    left = round(length.total_seconds() * 1_000_000)
    parts = []
    for unit in ("d", "h", "m", "s", "ms", "us"):
        size = round(_UNITS[unit] * 1_000_000)
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
