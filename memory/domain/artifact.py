"""Artifacts: the files of a session, each with its own path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from memory.domain import validation
from memory.domain.errors import InvalidInput
from memory.domain.results import Page, ResultMixin

MAX_PATH_BYTES = 1_024
MAX_MEDIA_TYPE_CHARS = 255
ANY_MEDIA_TYPE = "application/octet-stream"

_TOKEN = r"[A-Za-z0-9!#$&^_.+-]+"  # noqa: S105 - a word of RFC 6838
_MEDIA_TYPE = re.compile(rf"{_TOKEN}/{_TOKEN}(?:\s*;\s*{_TOKEN}=(?:{_TOKEN}|\"[^\"\\\r\n]*\"))*")


@dataclass(frozen=True, slots=True, repr=False)
class Artifact(ResultMixin):
    """The description of an artifact, without its bytes.

    `size` is in bytes, and `sha256` in hexadecimal digits. The id stays the same when
    its path is written again. It changes if the artifact was deleted in between.
    `written_by` is the caller of a server that stored it.
    """

    id: str
    session_id: str
    path: str
    media_type: str
    size: int
    sha256: str
    created_at: datetime
    updated_at: datetime
    written_by: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ArtifactPage(Page[Artifact]):
    """A page of a session's artifacts, oldest first.

    `cursor` gets the next page; None on the last one.
    """

    artifacts: list[Artifact]
    cursor: str | None = None


def check_path(value: object) -> str:
    """Check a relative path with `/` between its parts, of at most 1,024 bytes.

    No part may be empty, `.` or `..`.
    """
    path = validation.text("path", value, max_bytes=MAX_PATH_BYTES)
    if "\\" in path:
        raise InvalidInput("path", "must not hold a backslash; parts are divided by /")
    if path.startswith("/"):
        raise InvalidInput("path", "must be a relative path. Remove the / at its beginning")
    for part in path.split("/"):
        if part in ("", ".", ".."):
            raise InvalidInput("path", f"must not contain an empty part, '.' or '..', and {path[:60]!r} does")
    return path


def check_media_type(value: object) -> str:
    """Check a media type, such as `text/markdown; charset=utf-8`."""
    named = validation.text("media_type", value, max_chars=MAX_MEDIA_TYPE_CHARS)
    if not _MEDIA_TYPE.fullmatch(named):
        raise InvalidInput("media_type", f"{named[:60]!r} is not a media type. Write one such as text/plain")
    return named
