"""Versions of what is stored, as callers see them.

A version is an opaque text that changes with each change of the entry or document.
Compare it only for equality, or pass it back as `expected_version`.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, Literal, TypeAlias

from memory.domain.errors import InvalidInput, VersionConflict


class _Expectation(Enum):
    ABSENT = "ABSENT"

    def __repr__(self) -> str:
        return self.value


ABSENT: Final = _Expectation.ABSENT
"""As `expected_version`: change only if nothing exists yet under the key."""

ExpectedVersion: TypeAlias = str | Literal[_Expectation.ABSENT]
"""The `version` that you read last, or `ABSENT`."""

_VERSION = re.compile(r"[0-9a-f]{13,16}")


def version_text(version: int) -> str:
    """Return the text of a stored version. Later versions have greater texts."""
    return f"{version:013x}"


def stored_version(version: str) -> int:
    """Return the stored version of a text that `version_text` returned."""
    return int(version, 16)


def is_version(text: str) -> bool:
    """Return whether a text has the form of a version."""
    return bool(_VERSION.fullmatch(text)) and 1 <= int(text, 16) < 2**63


def check_version(field: str, value: object) -> int:
    """Convert the text of a version to the stored version.

    Raises:
        InvalidInput: The value is no text that this library returned as a version.
    """
    if not isinstance(value, str):
        raise InvalidInput(
            field, f"must be the version of an entry or document, a text, not {type(value).__name__}"
        )
    if not is_version(value):
        raise InvalidInput(
            field, f"{value[:40]!r} is no version. Pass the `version` of what you read, unchanged"
        )
    return int(value, 16)


def version_conflict(
    what: str, expected: int | None, stored: int | None, existing_id: str | None = None
) -> VersionConflict:
    """Return the error of a call that expected another version of `what`.

    0 as the expected version, and None as the stored one, mean that nothing exists.
    """
    return VersionConflict(
        what,
        version_text(expected) if expected else repr(ABSENT),
        None if stored is None else version_text(stored),
        existing_id,
    )


def check_expected(value: object) -> int | None:
    """Return the stored version that a call expects; 0 for `ABSENT`, None for any.

    Raises:
        InvalidInput: The value is neither a version nor `ABSENT`.
    """
    if value is None:
        return None
    return 0 if value is ABSENT else check_version("expected_version", value)
