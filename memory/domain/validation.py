"""The input check: every value of a caller is checked here before a store is used.

Each function returns the value as it will be stored, or raises `InvalidInput` with the
name of the field.
"""

from __future__ import annotations

import builtins
import math
import re
import struct
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from itertools import islice
from typing import Any, TypeVar
from uuid import UUID

from pydantic import BaseModel, ValidationError

from memory.domain.corrections import unknown_arguments, value_hint
from memory.domain.errors import InvalidInput
from memory.domain.model_errors import explain_error, path_text
from memory.domain.time import EPOCH, micros, moment

Choice = TypeVar("Choice", bound=str)

SYSTEM_TENANT = "~memory"
"""Tenant of the library's own records. No caller's tenant may have this name."""
MAX_ID_BYTES = 512
MAX_CONTENT_BYTES = 64 * 1024
MAX_TITLE_CHARS = 200
MAX_SOURCE_CHARS = 200
MAX_NAME_CHARS = 200
MAX_TAGS, MAX_TAG_CHARS = 32, 64
_MAX_TAGS_GIVEN = 1_000  # including duplicates, which are dropped
MAX_METADATA_BYTES = 64 * 1024
MAX_DATA_BYTES = 64 * 1024
MAX_MESSAGE_BYTES = 32 * 1024 * 1024
MAX_ROW_BYTES = 1024 * 1024  # of a message, without its large texts
LARGE_TEXT_BYTES = 64 * 1024  # larger texts of a message are stored separately
MAX_DEPTH = 32
MAX_LIMIT = 1_000
MAX_SCOPES = 1_000
INT64 = 2**63
MOMENT_FIELDS = ("at", "time", "timestamp", "created_at", "createdAt", "create_time", "ts", "date")
"""Names under which a message has its time, in sessions, imports and exports.

If several are given, the first one listed counts.
"""
_EARLIEST_EXPIRY = 10**8
"""March 1973, in seconds. A smaller number as an expiry is probably a duration."""
_NUMBER = re.compile(r"\d{9,}(\.\d+)?")
"""A text that is a number of seconds or milliseconds, and no date."""
LONGEST = timedelta(days=366_000)
_MILLISECONDS_FROM = 10**12  # larger numbers are milliseconds
_LATEST = datetime(9999, 12, 31, tzinfo=UTC)


def text(
    field: str,
    value: object,
    *,
    max_chars: int | None = None,
    max_bytes: int | None = None,
    min_chars: int = 0,
    advice: str = "",
) -> str:
    """Validate text: no NUL, no lone surrogates, within its limits.

    Args:
        advice: What to do with a text of too many bytes, for the error.
    """
    advice = f". {advice}" if advice else ""
    if not isinstance(value, str):
        raise InvalidInput(field, f"must be text, not {type(value).__name__}")
    if "\x00" in value:
        raise InvalidInput(field, "must not hold a NUL character")
    if max_bytes is not None and len(value) > max_bytes:  # avoid encoding a very large text to count it
        raise InvalidInput(
            field, f"exceeds {max_bytes} bytes ({len(value)}{'' if value.isascii() else ' or more'}){advice}"
        )
    if max_chars is not None and not min_chars <= len(value) <= max_chars:
        raise InvalidInput(field, f"length must be {min_chars}..{max_chars} chars, not {len(value)}")
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError as exc:
        raise InvalidInput(field, "must not hold a lone surrogate") from exc
    if max_bytes is not None and size > max_bytes:
        raise InvalidInput(field, f"exceeds {max_bytes} bytes ({size}){advice}")
    return str.__str__(value)  # a plain text of a subclass, such as an enum or NumPy's


def record_id(field: str, value: object) -> str:
    """Validate an id. The error for an object in its place says to pass its id."""
    if not isinstance(value, str) and isinstance(getattr(value, "id", None), str):
        kind = type(value).__name__
        raise InvalidInput(field, f"must be text, not {kind}; pass its id, such as {kind.lower()}.id")
    return text(field, value, max_bytes=MAX_ID_BYTES)


def identifier(field: str, value: object) -> str:
    """Validate the name of a tenant, a scope or a key: 1 to 512 bytes of any text."""
    checked = record_id(field, value)
    if not checked:
        raise InvalidInput(field, "must not be empty")
    return checked


def name(field: str, value: object) -> str:
    """Validate a line for people, such as the name of a rule or the reason of a hold.

    It must not be blank, has no control characters, and at most 200 characters.
    """
    checked = text(field, value, max_chars=MAX_NAME_CHARS, min_chars=1)
    if not checked.strip():
        raise InvalidInput(field, "must not be blank")
    if any(unicodedata.category(char) == "Cc" for char in checked):
        raise InvalidInput(field, "must not hold control characters, such as line breaks")
    return checked


def tags(value: object, field: str = "tags") -> list[str]:
    """Validate tags, and remove duplicates in first-seen order."""
    if not isinstance(value, list | tuple):
        raise InvalidInput(field, f"must be a list of strings, not {type(value).__name__}")
    if len(value) > _MAX_TAGS_GIVEN:
        raise InvalidInput(field, f"at most {MAX_TAGS} entries, not {len(value)}")
    for tag in value:
        if not isinstance(tag, str):
            raise InvalidInput(field, f"entries must be strings, not {type(tag).__name__}")
        text(field, tag, max_chars=MAX_TAG_CHARS, min_chars=1)
    distinct = list(dict.fromkeys(value))
    if len(distinct) > MAX_TAGS:
        raise InvalidInput(field, f"at most {MAX_TAGS} entries, not {len(distinct)}")
    return distinct


def is_large(value: str) -> bool:
    """Return whether a text of a message is stored separately."""
    return (
        4 * len(value) > LARGE_TEXT_BYTES
        and len(value if value.isascii() else value.encode()) > LARGE_TEXT_BYTES
    )


PLACEHOLDER = "$unserializable"
"""The only key of the placeholder for a value that JSON cannot hold.

Its value names the type.
"""
_USE = "use JSON values, dates, UUIDs, decimals, enums, dataclasses or pydantic models"


def json_object(
    field: str,
    value: object,
    *,
    max_bytes: int = MAX_METADATA_BYTES,
    large_texts: int = 0,
    may_replace: Callable[[str], bool] | None = None,
) -> dict[str, Any]:
    """Return a deep copy of a JSON object.

    Keys are text, numbers are finite, integers have at most 64 bits, and there are at
    most 32 levels. Datetimes, dates, UUIDs, decimals, enums, dataclasses and pydantic
    models become JSON.

    Args:
        field: The name of the value in errors.
        value: A mapping, a dataclass or a pydantic model.
        max_bytes: The largest size, without large texts.
        large_texts: The largest total size of texts over 64 KiB; with 0 they count
            towards `max_bytes`.
        may_replace: Called with the path of a value that JSON cannot hold. If it
            returns True, a placeholder with the type's name is stored.

    Raises:
        InvalidInput: With the path of a value that cannot be stored.
    """
    if not is_object(value):
        raise InvalidInput(
            field, f"must be a dict, a dataclass or a pydantic model, not {type(value).__name__}"
        )
    copied = _Copy(field, max_bytes, large_texts, may_replace).of(value, 1)
    if not isinstance(copied, dict):  # a pydantic model of a single value
        raise InvalidInput(
            field, f"must be an object, and {type(value).__name__} is a {type(copied).__name__} in JSON"
        )
    return copied


def json_value(field: str, value: object, *, max_bytes: int = MAX_METADATA_BYTES, advice: str = "") -> Any:
    """Return a deep copy of any JSON value, with the rules of `json_object`.

    Args:
        advice: What to do with a value that is too large, for the error.

    Raises:
        InvalidInput: With the path of a value that cannot be stored.
    """
    return _Copy(field, max_bytes, 0, None, advice).of(value, 1)


def is_object(value: object) -> bool:
    """Return whether the value has named values, as a JSON object has."""
    return isinstance(value, Mapping | BaseModel) or (is_dataclass(value) and not isinstance(value, type))


def placeholders(field: str, value: object) -> list[str]:
    """Return the paths at which a copy by `json_object` has a placeholder."""
    if isinstance(value, dict):
        if value.keys() == {PLACEHOLDER}:
            return [field]
        return [
            path
            for name, inner in value.items()
            for path in placeholders(f"{field}.{name}" if field else name, inner)
        ]
    if isinstance(value, list):
        return [
            path for number, inner in enumerate(value) for path in placeholders(f"{field}[{number}]", inner)
        ]
    return []


def _to_json_value(value: object) -> Any:
    """Convert a value to JSON, without its parts.

    A value of an unknown type is returned unchanged.
    """
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID | Decimal):
        return str(value)
    if isinstance(value, BaseModel):
        try:
            return value.model_dump(mode="json")
        except Exception:  # noqa: BLE001 - not JSON, or a failing serializer: check each field
            return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return value


def _type_name(value: object) -> str:
    """Return the name of a type; with its module if Python has a type of that name."""
    kind = type(value)
    is_pythons = kind.__module__ != "builtins" and hasattr(builtins, kind.__name__)
    return f"{kind.__module__}.{kind.__name__}" if is_pythons else kind.__name__


class _Copy:
    """Copies JSON until it exceeds its size limit.

    So an object that is much too large is not read to its end.
    """

    def __init__(
        self,
        field: str,
        max_bytes: int,
        large_texts: int,
        may_replace: Callable[[str], bool] | None,
        advice: str = "",
    ) -> None:
        self._field = field
        self._advice = f". {advice}" if advice else ""
        self._most = max_bytes
        self._room = max_bytes
        self._most_large = large_texts
        self._room_large = large_texts
        self._may_replace = may_replace
        self._path: list[str | int] = []
        self._inside: set[int] = set()

    def of(self, value: object, depth: int) -> Any:
        if value is None or isinstance(value, bool):
            self._take(5)
            return value
        if isinstance(value, Enum):
            return self.of(value.value, depth)
        if isinstance(value, str):
            return self._of_text(value)
        if isinstance(value, int):
            self._take(20)
            return (
                int(value)
                if -INT64 <= value < INT64
                else self._instead_of(value, "holds an integer outside 64 bits")
            )
        if isinstance(value, float):
            self._take(20)
            return (
                float(value) if math.isfinite(value) else self._instead_of(value, "must be a finite number")
            )
        if depth > MAX_DEPTH or id(value) in self._inside:
            return self._instead_of(value, f"nests deeper than {MAX_DEPTH} levels")
        self._inside.add(id(value))
        try:
            return self._of_several(value, depth)
        finally:
            self._inside.discard(id(value))

    def _of_several(self, value: object, depth: int) -> Any:
        if isinstance(value, Mapping):
            return self._of_mapping(value, depth)
        if isinstance(value, list | tuple):
            self._take(4)
            return [self._part(number, inner, depth) for number, inner in enumerate(value)]
        known = _to_json_value(value)
        if known is value:
            return self._instead_of(value, f"has the type {_type_name(value)}; {_USE}")
        return self.of(known, depth)

    def _of_mapping(self, value: Mapping[Any, Any], depth: int) -> Any:
        self._take(4)
        names: dict[str, Any] = {}
        for given, inner in value.items():
            name = given
            if not isinstance(name, str):
                key = _to_json_value(given)
                problem = f"has a key that is not text: {type(given).__name__}"
                if not (isinstance(key, str | int | float | None) and self._is_replaceable()):
                    return self._instead_of(value, problem)
                name = str(key)
            try:
                checked = text(self._field, name)
            except InvalidInput as exc:
                return self._instead_of(value, f"has a key that {exc.problem}")
            self._take(len(checked) if checked.isascii() else len(checked.encode()))
            names[checked] = self._part(checked, inner, depth)
        return names

    def _part(self, at: str | int, inner: object, depth: int) -> Any:
        self._path.append(at)
        copied = self.of(inner, depth + 1)
        self._path.pop()
        return copied

    def _where(self) -> str:
        return self._field + "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in self._path)

    def _is_replaceable(self) -> bool:
        return self._may_replace is not None and self._may_replace(self._where())

    def _instead_of(self, value: object, problem: str) -> Any:
        """Return the placeholder for a value that JSON cannot hold, if allowed."""
        if not self._is_replaceable():
            raise InvalidInput(self._where(), problem)
        said = f" {value}" if isinstance(value, float) else ""
        self._take(40)
        return {PLACEHOLDER: f"{type(value).__name__}{said}"[:MAX_NAME_CHARS]}

    def _of_text(self, value: str) -> Any:
        large = self._most_large and 4 * len(value) > LARGE_TEXT_BYTES
        if not large:
            self._take(len(value) + 3)  # its size as JSON, checked before it is encoded
        elif len(value) > self._room_large:
            raise InvalidInput(self._field, self._size_message())
        try:
            copied = text(self._field, value)
        except InvalidInput as exc:
            return self._instead_of(value, exc.problem)
        if large:
            return self._of_large_text(copied)
        self._take(0 if copied.isascii() else len(copied.encode()) - len(copied))
        return copied

    def _of_large_text(self, value: str) -> str:
        size = len(value if value.isascii() else value.encode())
        if size <= LARGE_TEXT_BYTES:
            self._take(size + 3)
            return value
        self._room_large -= size
        if self._room_large < 0:
            raise InvalidInput(self._field, self._size_message())
        return value

    def _take(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            apart = f", not counting texts of more than {LARGE_TEXT_BYTES} bytes" if self._most_large else ""
            raise InvalidInput(self._field, f"exceeds {self._most} bytes{apart}{self._advice}")

    def _size_message(self) -> str:
        return f"exceeds {self._most_large} bytes. Store larger data elsewhere, and its address here"


def sequence(field: str, value: object, *, at_most: int | None = None) -> list[Any]:
    """Validate a list. A text is refused, because it would be a list of its letters."""
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        raise InvalidInput(field, f"must be a list, not {type(value).__name__}")
    taken = list(value if at_most is None else islice(value, at_most + 1))
    if at_most is not None and len(taken) > at_most:
        raise InvalidInput(field, f"takes at most {at_most} items per call. Split the call")
    return taken


@contextmanager
def item(field: str, number: int) -> Iterator[None]:
    """Name the item of a list in the errors of its checks."""
    try:
        yield
    except InvalidInput as error:
        raise error.inside(f"{field}[{number}]") from None


def number(field: str, value: object) -> float:
    """Validate a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(field, f"must be a number, not {type(value).__name__}")
    if isinstance(value, int) and not -INT64 <= value < INT64:
        raise InvalidInput(field, "is an integer outside 64 bits")
    if not math.isfinite(value):
        raise InvalidInput(field, "must be a finite number")
    return value


_MOMENTS = (
    "write a datetime with a zone, ISO 8601 text such as 2026-01-31T09:30:00Z, or a number of seconds since"
    " 1970"
)


def time(field: str, value: object) -> datetime:
    """Convert to a moment in UTC.

    The value is an aware datetime, ISO 8601 text with a zone, or a number of seconds
    since 1970. Numbers above 10^12 are milliseconds. A number may be text of 9 digits
    or more. As an expiry, a number below 10^8 is refused, because it is probably a
    duration.
    """
    if isinstance(value, bool):
        raise InvalidInput(field, "must be a moment in time, not a boolean")
    if isinstance(value, timedelta):
        raise InvalidInput(
            field, "must be a moment in time, not a length of time: write datetime.now(UTC) + timedelta(...)"
        )
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(field, f"is {value}, which is not a moment in time: {_MOMENTS}")
    if isinstance(value, int | float):
        seconds = number(field, value)
        if seconds < 0 or (field == "expires_at" and seconds < _EARLIEST_EXPIRY):
            raise InvalidInput(field, _too_small(field, seconds))
        seconds = seconds / 1000 if seconds > _MILLISECONDS_FROM else seconds
        if seconds > (_LATEST - EPOCH).total_seconds():
            raise InvalidInput(field, "must be a number of seconds since 1970, not beyond the year 9999")
        return moment(round(seconds * 1_000_000))
    if isinstance(value, str):
        value = _parse_time(field, value)
    if not isinstance(value, datetime):
        is_placeholder = isinstance(value, dict) and value.keys() == {
            PLACEHOLDER
        }  # messages store this for a value that is not JSON
        kind = value[PLACEHOLDER] if is_placeholder else type(value).__name__  # type: ignore[index]
        raise InvalidInput(field, f"must be a moment in time, not {kind}: {_MOMENTS}")
    if value.utcoffset() is None:
        raise InvalidInput(field, "has no time zone. Add one, as in 2026-01-31T09:30:00Z")
    try:
        return moment(micros(value))  # a plain datetime of a subclass, such as pandas' Timestamp
    except OverflowError as exc:
        raise InvalidInput(field, "lies outside the years 1..9999 in UTC") from exc


def named_moment(fields: Mapping[str, Any]) -> str | None:
    """Return the first name in `MOMENT_FIELDS` that has a value; None if none has."""
    return next((name for name in MOMENT_FIELDS if fields.get(name) not in (None, "")), None)


def _too_small(field: str, seconds: float) -> str:
    """Return the error for a small number, which would be a moment long ago."""
    said = (
        f"a number is a moment in seconds since 1970, and {seconds:.6g} would be before"
        f" {1973 if seconds >= 0 else 1970}; "
    )
    if field == "expires_at":
        return (
            said
            + f"for that long from now write timedelta(seconds={seconds:.6g}), for a moment a datetime with a"
            " zone"
        )
    return said + "write a datetime with a zone, or ISO 8601 text such as 2026-01-31T09:30:00Z"


def length(value: timedelta, field: str = "expires_at") -> timedelta:
    """Validate the lifetime of an entry: above zero, and below a thousand years."""
    if not timedelta(0) < value <= LONGEST:
        kinds = "a moment, or a duration" if field == "expires_at" else "a duration"
        raise InvalidInput(field, f"must be {kinds} above zero and of at most {LONGEST.days} days")
    return timedelta(value.days, value.seconds, value.microseconds)


def _parse_time(field: str, value: str) -> datetime:
    try:
        return datetime.fromisoformat(text(field, value))  # it would ignore a NUL and the text after it
    except ValueError as exc:
        raise InvalidInput(
            field, f"{value[:40]!r} is not an ISO 8601 moment such as 2026-01-31T09:30:00Z"
        ) from exc


def whole_limit(value: object, *, default: int) -> int:
    """Validate a limit of 1 to 1,000; None means the default.

    A value out of range is an error, never clamped.
    """
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput("limit", f"must be a whole number, not {type(value).__name__}")
    if not 1 <= value <= MAX_LIMIT:
        raise InvalidInput("limit", f"must be 1..{MAX_LIMIT}, not {number('limit', value)}")
    return value


def whole(field: str, value: object, *, least: int = 0) -> int:
    """Validate a whole number that is not below `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInput(field, f"must be a whole number of at least {least}")
    return value


MAX_DIMENSIONS = 65_536


def vector(field: str, value: object) -> bytes:
    """Return a vector as packed float32 of length 1, little-endian.

    Args:
        field: The name of the value in errors.
        value: Numbers, also in an array, or packed float32 such as an embedder returns.

    Raises:
        InvalidInput: It holds no numbers, or one that is not finite, or only zeros.
    """
    numbers = _numbers(field, value)
    if len(numbers) > MAX_DIMENSIONS:
        raise InvalidInput(field, f"has more than {MAX_DIMENSIONS} numbers")
    if not all(map(math.isfinite, numbers)):
        raise InvalidInput(field, "holds a number that is not finite. Pass finite numbers")
    largest = max(map(abs, numbers), default=0.0)
    if not largest:
        raise InvalidInput(field, "is empty or all zero, which has no direction. Omit it for no vector")
    scaled = [number / largest for number in numbers]  # so that no square overflows or vanishes
    norm = math.sqrt(sum(number * number for number in scaled))
    return struct.pack(f"<{len(scaled)}f", *(number / norm for number in scaled))


def _numbers(field: str, value: object) -> Sequence[float]:
    if isinstance(value, bytes | bytearray | memoryview):
        packed = bytes(value)
        if len(packed) % 4:
            raise InvalidInput(field, "has a number of bytes that is no multiple of 4. Pass packed float32")
        return struct.unpack(f"<{len(packed) // 4}f", packed)
    given = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(given, list | tuple):
        raise InvalidInput(
            field, f"must be a list of numbers, an array, or packed float32, not {type(value).__name__}"
        )
    for position, number in enumerate(given):
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise InvalidInput(f"{field}[{position}]", f"must be a number, not {type(number).__name__}")
    try:
        return [float(number) for number in given]
    except OverflowError:
        raise InvalidInput(field, "holds a number that is not finite. Pass finite numbers") from None


def share(field: str, value: object) -> float:
    """Validate a share: above 0 and at most 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise InvalidInput(field, "must be a number above 0 and at most 1")
    return float(value)


def one_of(field: str, value: object, allowed: Iterable[Choice]) -> Choice:
    choices = tuple(allowed)
    if not isinstance(value, str) or value not in choices:
        shown = repr(value[:40]) if isinstance(value, str) else f"a {type(value).__name__}"
        hint = value_hint(field, value, choices)
        raise InvalidInput(field, f"invalid {field}: {shown}; choose from {', '.join(choices)}{hint}")
    return choices[choices.index(value)]


class ValidatedModel(BaseModel):
    """A model for values of callers.

    Any wrong value becomes one `InvalidInput` that names the field.
    """

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as exc:
            raise _to_invalid_input(type(self), exc) from None

    # In another model, and in `model_validate`, pydantic goes past this constructor.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


def _to_invalid_input(model: type[BaseModel], exc: ValidationError) -> InvalidInput:
    errors = exc.errors(include_url=False, include_input=False)
    unknown = [str(e["loc"][0]) for e in errors if e["type"] == "extra_forbidden" and len(e["loc"]) == 1]
    if unknown:
        return unknown_arguments(model.__name__, unknown, model.model_fields)
    first = errors[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InvalidInput):
        return cause
    return InvalidInput(path_text(first["loc"]) or model.__name__, explain_error(first))
