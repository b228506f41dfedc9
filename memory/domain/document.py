"""Documents as callers see them: JSON or bytes under a key of a scope.

All objects are copies. To change them changes no store.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from memory.domain import validation
from memory.domain.corrections import explain_arguments
from memory.domain.errors import InvalidInput
from memory.domain.results import Page, ResultMixin
from memory.domain.scope import Scope
from memory.domain.versions import ExpectedVersion, check_expected

Value: TypeAlias = Any
"""JSON or bytes.

JSON is None, bool, 64-bit int, finite float, str, list, or dict with text keys.
"""

Form: TypeAlias = Literal["json", "bytes"]
IfDocumentExists: TypeAlias = Literal["replace", "keep", "error"]
IF_EXISTS: tuple[IfDocumentExists, ...] = ("replace", "keep", "error")
DocumentOrder: TypeAlias = Literal["key", "updated"]
DOCUMENT_ORDERS: tuple[DocumentOrder, ...] = ("key", "updated")

INLINE_BYTES = 256 * 1024
"""The largest value that is stored in one record."""
MAX_BYTES = 32 * 2**20
"""The largest value."""
MAX_GROUP = 100
"""The most changes of one `apply`."""


@dataclass(frozen=True, slots=True, repr=False)
class DocumentInfo(ResultMixin):
    """A document without its value and metadata.

    `form` is `"json"` or `"bytes"`. `size` is the size of the value in bytes; for JSON,
    of its text. `version` is an opaque text that changes with every put.
    """

    scope: str
    key: str
    version: str
    form: Form
    size: int
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None
    """After this moment the document is hidden. A sweep deletes it later."""
    lifetime: timedelta | None = None
    """The time from a read to the expiry, if it was put with `refresh_on_read`."""


@dataclass(frozen=True, slots=True, repr=False)
class Document(DocumentInfo):
    """A document with its value and metadata."""

    value: Value = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, repr=False)
class DocumentPage(Page[DocumentInfo]):
    """A page of documents in the order of their keys.

    Pass `cursor` to `list` for the next page. It is None on the last page.

    `damaged` counts the documents of this page that cannot be read. `degraded` says if
    the page ended early, because few of many documents pass the filter.
    """

    documents: list[DocumentInfo]
    cursor: str | None = None
    damaged: int = 0
    degraded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckedValue:
    """A validated copy of a value, its form and its size in bytes."""

    value: Value
    form: Form
    size: int
    has_nul: bool = False
    """Whether a text in JSON may have a NUL."""

    @property
    def data(self) -> bytes:
        """The value as bytes: JSON as UTF-8."""
        return self.value if self.form == "bytes" else _json_text(self.value).encode()


@explain_arguments
@dataclass(frozen=True, slots=True)
class DocumentPut:
    """One put, for `Documents.apply` and `put_many`; see `Documents.put`."""

    scope: Scope | str
    key: str
    value: Value
    metadata: Mapping[str, Any] | None = None
    expires_in: timedelta | float | str | None = None
    refresh_on_read: bool = False
    expected_version: ExpectedVersion | None = None
    if_exists: IfDocumentExists = "replace"


@explain_arguments
@dataclass(frozen=True, slots=True)
class DocumentDelete:
    """One deletion of a group, for `Documents.apply`; see `Documents.delete`."""

    scope: Scope | str
    key: str
    expected_version: ExpectedVersion | None = None


DocumentChange: TypeAlias = DocumentPut | DocumentDelete


def check_key(value: object, name: str = "key") -> str:
    """Validate the key of a document: 1 to 512 bytes of any text but NUL.

    Raises:
        InvalidInput: It is no such text.
    """
    if isinstance(value, str) and len(value) > validation.MAX_ID_BYTES:
        raise InvalidInput(
            name, f"has more than {validation.MAX_ID_BYTES} bytes. Hash longer keys, for example with SHA-256"
        )
    return validation.identifier(name, value)


class LongValue(Exception):
    """A value is too long to be checked between two turns of an event loop."""


def check_value(value: object, *, at_once: int | None = None) -> CheckedValue:
    """Validate and copy the value of a document.

    Args:
        at_once: The most characters of JSON to check.

    Raises:
        InvalidInput: It is neither JSON nor bytes, or too large. The error names the
            path of the part that is wrong.
        LongValue: It has more than `at_once`.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        copied = bytes(value)
        return CheckedValue(copied, "bytes", _check_size(len(copied)))
    exact = _exact_json(value, "value", 1, _Room(MAX_BYTES, at_once))
    text = _json_text(exact)
    size = _check_size(len(text) if text.isascii() else len(text.encode()))
    return CheckedValue(exact, "json", size, "\\u0000" in text)


def value_from(data: bytes, form: str) -> Value:
    """Return the value that `CheckedValue.data` returned as bytes."""
    return data if form == "bytes" else json.loads(data)


def check_expectation(expected: object, if_exists: object) -> int | None:
    """Return the stored version that a put expects, 0 for an absent document.

    None stands for any state.
    """
    validation.one_of("if_exists", if_exists, IF_EXISTS)
    version = check_expected(expected)
    if if_exists == "error" and version:
        raise InvalidInput(
            "if_exists", "'error' contradicts the version of an existing document. Pass one of the two"
        )
    if if_exists == "keep" and version is not None:
        raise InvalidInput(
            "expected_version",
            "cannot be combined with if_exists='keep', which changes no document that exists",
        )
    return version


def _json_text(value: Value) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _check_size(size: int) -> int:
    if size > MAX_BYTES:
        raise InvalidInput(
            "value", f"has {size:,} bytes; a document has at most {MAX_BYTES:,}. Split it over several keys"
        )
    return size


class _Room:
    """Counts the characters of a value down."""

    def __init__(self, most: int, at_once: int | None) -> None:
        self._left, self._beyond = most, 0 if at_once is None else most - at_once

    def take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise InvalidInput(
                "value", f"has more than {MAX_BYTES:,} bytes of JSON. Split it over several keys"
            )
        if self._left < self._beyond:
            raise LongValue


def _exact_json(value: object, path: str, depth: int, room: _Room) -> Any:
    """Copy a value that JSON returns equal."""
    if isinstance(value, list | dict):
        if depth > validation.MAX_DEPTH:
            raise InvalidInput(path, f"nests deeper than {validation.MAX_DEPTH} levels")
        if isinstance(value, list):
            return [
                _exact_json(inner, f"{path}[{number}]", depth + 1, room) for number, inner in enumerate(value)
            ]
        return _exact_dict(value, path, depth, room)
    room.take(1)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        _check_text(value, path, room)
        return str.__str__(value)
    if isinstance(value, int | float):
        return _exact_number(value, path)
    raise InvalidInput(
        path,
        f"is a {type(value).__name__}, which JSON cannot store unchanged. Pass JSON (None, bool, int,"
        " float, str, list, dict) or bytes",
    )


def _exact_number(value: int | float, path: str) -> int | float:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput(path, f"is {value}, which JSON cannot hold. Pass a finite number, or None")
        return float(value)
    if not -validation.INT64 <= value < validation.INT64:
        raise InvalidInput(path, "is an integer outside 64 bits. Pass it as text")
    return int(value)


def _exact_dict(value: dict[Any, Any], path: str, depth: int, room: _Room) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for name, inner in value.items():
        if not isinstance(name, str):
            raise InvalidInput(path, f"has a key that is a {type(name).__name__}. Keys of JSON are text")
        _check_text(name, path, room)
        named[str.__str__(name)] = _exact_json(inner, f"{path}.{name[:80]}", depth + 1, room)
    return named


def _check_text(text: str, path: str, room: _Room) -> None:
    room.take(len(text))
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(path, "holds half of a surrogate pair, which is no character") from None
