"""Define the options that several commands take."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import IO, Annotated, Any

import typer

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Numbers of the errors for a file that cannot grow. They do not name the file."""

ScopeOption = Annotated[
    str,
    typer.Option(
        "--scope",
        "-s",
        metavar="SCOPE",
        help="The scope: session:ID, user:ID, workspace:ID, org:ID, object:TYPE:ID or path:LABEL/LABEL/.",
    ),
]
OptionalScope = Annotated[
    str | None,
    typer.Option("--scope", "-s", metavar="SCOPE", help="Only entries of this scope, such as user:ada."),
]
TagsOption = Annotated[
    list[str] | None,
    typer.Option("--tag", "-t", metavar="TAG", help="A tag. Repeat the option for more tags."),
]
MetadataOption = Annotated[
    str | None, typer.Option("--metadata", metavar="JSON", help="Metadata, as a JSON object.")
]
DataOption = Annotated[
    str | None,
    typer.Option("--data", metavar="JSON", help="Structured content beside the text: an object or a list."),
]
VectorOption = Annotated[
    str | None,
    typer.Option("--vector", metavar="JSON", help="A vector of your own, as a JSON list of numbers."),
]
AsOfOption = Annotated[
    str | None,
    typer.Option("--as-of", metavar="TIME", help="Show what was true at this time (ISO 8601 with a zone)."),
]
KnownAtOption = Annotated[
    str | None,
    typer.Option(
        "--known-at", metavar="TIME", help="Show what was stored at this time (ISO 8601 with a zone)."
    ),
]

LimitOption = Annotated[int, typer.Option("--limit", "-n", help="The largest number of results.")]
ExpiresOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME|LENGTH", help="Hide the entry from this time on, or after a length of time: 30d, 1h30m."
    ),
]
OnlyTypesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--type", metavar="TYPE", help="Only entries of this type. Repeat the option to allow more types."
    ),
]
OnlyTagsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        "-t",
        metavar="TAG",
        help="Only entries with this tag. Repeat the option to require more tags.",
    ),
]
SinceOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only entries created at or after this time.")
]
EntryId = Annotated[
    str, typer.Argument(metavar="ID", help="The id of the entry, or its short id: #42 or 42.")
]
EntryIds = Annotated[
    list[str], typer.Argument(metavar="ID...", help="The ids of entries, or their short ids: #42 or 42.")
]
SkipBadOption = Annotated[
    bool, typer.Option("--skip-bad", help="Skip bad lines and name them, instead of importing nothing.")
]
JsonLinesFile = Annotated[
    str,
    typer.Argument(metavar="FILE", help="A file with JSON Lines or one JSON array; - reads standard input."),
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to this new file instead of standard output."),
]


@contextmanager
def open_output(output: Path | None) -> Iterator[IO[str]]:
    """Open the new file that `OutputOption` names, or standard output.

    The file gets its name once it is complete. A command that ends early leaves none.
    """
    if output is None:
        yield sys.stdout
        return
    from memory.domain.errors import InvalidInput

    if not output.parent.is_dir():
        raise InvalidInput("--output", f"there is no folder {str(output.parent)!r}. Create it first")
    if output.exists():
        raise InvalidInput("--output", f"{str(output)!r} exists. Name a new file, or delete this one first")
    with write_whole(output) as stream:
        yield stream


@contextmanager
def write_whole(path: Path, *, binary: bool = False) -> Iterator[IO[Any]]:
    """Write a file that gets its name once it is complete.

    If anything fails, no part of it is left. Another file of that name is replaced.
    """
    partial = path.with_name(f".{path.name[:200]}.{os.getpid()}.part")
    try:
        with partial.open("xb" if binary else "x", encoding=None if binary else "utf-8") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    except OSError as exc:
        if exc.filename is None and exc.errno in NO_ROOM:
            raise OSError(exc.errno, exc.strerror, str(path)) from exc
        raise
    finally:
        partial.unlink(missing_ok=True)


def name_of(file: str) -> PurePath:
    """Return the name of a file whose text may be stored and printed.

    Bytes that are no text are escaped. `-`, standard input, is called stdin.
    """
    return PurePath(
        "stdin" if file == "-" else os.fsencode(Path(file).name).decode(errors="backslashreplace")
    )


def read_text(text: str) -> str:
    """Return the text of an argument: for `-`, what standard input holds.

    Raises:
        InvalidInput: Standard input is no text of its encoding.
    """
    if text != "-":
        return text
    from memory.domain.errors import InvalidInput

    try:
        return sys.stdin.read()
    except UnicodeDecodeError as exc:
        raise InvalidInput(
            "-",
            f"standard input is not {exc.encoding} (byte {exc.start}). Convert it first, or set PYTHONUTF8=1",
        ) from None


CursorOption = Annotated[
    str | None,
    typer.Option(metavar="CURSOR", help="Continue after an earlier page, with the cursor that it printed."),
]


def moment(field: str, text: str | None) -> Any:
    """Parse the time that an option gives."""
    from memory.domain import validation

    return None if text is None else validation.time(field, text)


def expiry(field: str, text: str | None) -> Any:
    """Parse a time, or a length of time from now, such as 30d."""
    from memory.domain.errors import InvalidInput
    from memory.domain.time import parse_duration

    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError:
        try:
            return moment(field, text)
        except InvalidInput as exc:
            raise InvalidInput(
                field,
                f"{text[:40]!r} is neither a length of time such as 30d or 1h30m, nor a time such as"
                " 2026-01-31T09:30:00Z",
            ) from exc


def json_object(field: str, text: str | None) -> dict[str, Any] | None:
    """Parse the JSON object that an option gives."""
    from memory.domain import validation

    return (
        None if text is None else validation.json_object(field, json_value(field, text, kind="a JSON object"))
    )


def json_value(
    field: str, text: str | None, example: str = '{"confidence": 0.9}', *, kind: str = "JSON"
) -> Any:
    """Parse the JSON that an option gives; None if it is not given."""
    import json

    from memory.domain.errors import InvalidInput
    from memory.domain.json_values import RepeatedKey, distinct_keys

    if text is None:
        return None
    try:
        return json.loads(text, object_pairs_hook=distinct_keys)
    except (json.JSONDecodeError, RepeatedKey, RecursionError) as exc:
        raise InvalidInput(field, f"is not {kind} such as '{example}' ({exc})") from None


def drop_none(**options: Any) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}
