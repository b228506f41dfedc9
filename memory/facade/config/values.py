"""Tables and values of a configuration: URLs that hide secrets, durations, numbers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import lru_cache
from importlib import metadata
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin
from urllib.parse import unquote

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticKnownError

from memory.domain import validation
from memory.domain.errors import InvalidInput
from memory.domain.time import LONGEST, parse_duration
from memory.ports.local_paths import LOCAL_SCHEMES

_SCHEME = re.compile(
    rf"([a-z][a-z0-9+.-]*)://|({'|'.join(map(re.escape, LOCAL_SCHEMES))}):(?=[^:])", re.IGNORECASE
)
_SHORT = re.compile(r"([a-z][a-z0-9+.-]+):(?=/?[^:/\\])", re.IGNORECASE)
"""A name, a colon and a path: `lmdb:folder`. Drives of Windows have one letter."""
_SECRET_NAME = re.compile(
    r"pass|pwd|token|secret|key|credential|mechanismproperties|^auth$|basic_?auth", re.IGNORECASE
)
_PARAMETER = re.compile(r"([?&])([^&]*)")
_COLON = re.compile(":|%3a", re.IGNORECASE)
_PATH = ("/", "./", "../", "~")

HIDDEN = "***"


ADAPTERS = "memory.adapters"
"""The entry-point group under which distributions register adapters, by scheme."""


@lru_cache(maxsize=1)
def installed_schemes() -> frozenset[str]:
    """Return the schemes for which an adapter is installed."""
    return frozenset(point.name for point in metadata.entry_points(group=ADAPTERS))


def scheme_of(text: str) -> str | None:
    """Return the scheme of a URL in lower case; None if the text is not a URL.

    A store on this machine may be written without slashes, as `file:folder`. So may a
    store of any installed adapter, such as `lmdb:folder`.
    """
    found = _SCHEME.match(text.strip())
    if found:
        return (found[1] or found[2]).lower()
    name = short_scheme(text)
    return name if name in installed_schemes() and not _holds_login(text) else None


def short_scheme(text: str) -> str | None:
    """Return the part before the colon in `lmdb:folder`, in lower case, or None.

    It need not be the scheme of an installed adapter.
    """
    found = _SHORT.match(text.strip())
    return found[1].lower() if found else None


def is_broken_url(text: str) -> bool:
    """Return whether a text looks like a URL with a login, but is not a valid one.

    Such a text may hold a password. So messages do not repeat it, and no file is named
    after it.
    """
    return scheme_of(text) is None and (_holds_login(text) or mask_url(text) != text)


def _holds_login(text: str) -> bool:
    """Return whether a user and a password precede an @, as in `ann:password@host/db`.

    Paths are recognised by their first characters.
    """
    before, at, _ = unquote(text.strip()).rpartition("@")
    is_path = before.startswith(_PATH) and not before.startswith("//")
    is_drive = os.name == "nt" and before[1:3] in (":\\", ":/")
    return bool(at) and (":" in before or "//" in before) and not is_path and not is_drive


def mask_url(text: str) -> str:
    """Mask the password of a URL, and its parameters that are named like secrets.

    It also masks text that may belong to a password: everything from the first colon of
    the user to the last @. Broken URLs are masked in the same way.
    """
    scheme = scheme_of(text)
    head, separator, rest = text.partition("://") if scheme else ("", "", text)
    is_path = rest.startswith("/") and scheme in LOCAL_SCHEMES
    if not is_path and _holds_login(rest if scheme is None else f"x{rest}"):
        end = rest.rfind("@") if "@" in rest else len(rest)  # it may be written as %40
        end = next(
            (
                part.end()
                for part in _PARAMETER.finditer(rest)
                if part.start() < end < part.end() and _is_secret(part[2])
            ),
            end,
        )
        rest = f"{_COLON.split(rest[:end], maxsplit=1)[0]}:{HIDDEN}{rest[end:]}"
    return _PARAMETER.sub(_mask_parameter, head + separator + rest)


def _mask_parameter(found: re.Match[str]) -> str:
    if not _is_secret(found[2]):
        return found[0]
    name, equals, _ = found[2].partition("=")
    return f"{found[1]}{name}={HIDDEN}" if equals else f"{found[1]}{HIDDEN}"


def _is_secret(parameter: str) -> bool:
    """Return whether a parameter of a URL is named like a secret, or holds a login.

    The name may be percent-encoded, once or twice.
    """
    name, _, value = unquote(unquote(parameter)).partition("=")
    return bool(_SECRET_NAME.search(name)) or _holds_login(value)


def mask_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Mask the values of options that are named like secrets, at every depth."""
    return {
        name: HIDDEN if _SECRET_NAME.search(str(name)) else _mask_value(value)
        for name, value in options.items()
    }


def _mask_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return mask_options(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [_mask_value(inner) for inner in value]
    return mask_url(value) if isinstance(value, str) else value


class SettingsTable(BaseModel):
    """A table of a configuration: frozen, with known settings and finite numbers only.

    A boolean is not a number. Texts such as "8080" are numbers, because environment
    variables are texts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _not_a_truth_value(cls, value: object, info: ValidationInfo) -> object:
        if isinstance(value, bool) and info.field_name is not None:
            types = set(_types_in(cls.model_fields[info.field_name].annotation))
            if bool not in types and types & {int, float}:
                raise PydanticKnownError("int_type" if int in types else "float_type")
        return value


def _types_in(annotation: Any) -> Iterator[Any]:
    """Yield an annotation, and the types in it that a value itself may have."""
    yield annotation
    if get_origin(annotation) in (Annotated, Union, UnionType):
        for part in get_args(annotation):
            yield from _types_in(part)


class StoreOptions(dict[str, Any]):
    """The options of a store. Their repr shows no secrets."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(mask_options(self))


class StoreUrl(str):
    """The unchanged URL of a store. Its repr shows no secrets."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(mask_url(self))


def _positive(value: object) -> object:
    parsed = parse_duration(value)
    if (isinstance(parsed, timedelta) and parsed <= timedelta()) or (
        isinstance(parsed, int | float) and parsed <= 0
    ):
        raise ValueError("should be longer than zero")
    return parsed


def _not_negative(value: object) -> object:
    parsed = parse_duration(value)
    if (isinstance(parsed, timedelta) and parsed < timedelta()) or (
        isinstance(parsed, int | float) and parsed < 0
    ):
        raise ValueError("should not be negative")
    return parsed


def _tellable(length: timedelta) -> timedelta:
    if length > LONGEST:
        raise ValueError("should be at most 100 years")
    return length


Duration = Annotated[timedelta, BeforeValidator(_positive), AfterValidator(_tellable)]
"""A positive length of time."""

Interval = Annotated[timedelta, BeforeValidator(_not_negative), AfterValidator(_tellable)]
"""A length of time; zero means never."""


def tenant_name(value: object) -> str:
    """Return the name of a tenant.

    Raises:
        InvalidInput: It is no text, empty, blank, too long or reserved.
    """
    named = validation.identifier("tenant", value)
    if not named.strip():
        raise InvalidInput("tenant", "must not be blank")
    if named == validation.SYSTEM_TENANT:
        raise InvalidInput("tenant", f"'{named}' is reserved for the library. Use another tenant name")
    return named
