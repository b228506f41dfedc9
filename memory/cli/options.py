"""Options that several commands take."""

from __future__ import annotations

from typing import Annotated, Any

import typer

ScopeOption = Annotated[
    str,
    typer.Option(
        "--scope",
        "-s",
        metavar="SCOPE",
        help="Whose memory: session:ID, user:ID, workspace:ID, org:ID or object:TYPE:ID.",
    ),
]
OptionalScope = Annotated[
    str | None, typer.Option("--scope", "-s", metavar="SCOPE", help="Only this scope, such as user:ada.")
]
TagsOption = Annotated[
    list[str] | None, typer.Option("--tag", "-t", metavar="TAG", help="A tag; repeat it for more.")
]
MetadataOption = Annotated[str | None, typer.Option("--metadata", metavar="JSON", help="A JSON object.")]
AsOfOption = Annotated[
    str | None, typer.Option("--as-of", metavar="TIME", help="What was true then, in ISO 8601 with a zone.")
]
KnownAtOption = Annotated[
    str | None, typer.Option("--known-at", metavar="TIME", help="What was stored then.")
]


def moment(field: str, text: str | None) -> Any:
    """The moment an option names."""
    from memory.domain import validation

    return None if text is None else validation.time(field, text)


def expiry(field: str, text: str | None) -> Any:
    """The moment an option names, or the length of time from now on, such as 30d."""
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
                f"{text[:40]!r} is neither a length of time such as 30d or 1h30m, nor a moment such as 2026-01-31T09:30:00Z",
            ) from exc


def json_object(field: str, text: str | None) -> dict[str, Any] | None:
    """The JSON object an option holds."""
    import json

    from memory.domain import validation
    from memory.domain.errors import InvalidInput

    if text is None:
        return None
    try:
        return validation.json_object(field, json.loads(text))
    except (json.JSONDecodeError, RecursionError) as exc:
        raise InvalidInput(field, f"not a JSON object such as '{{\"confidence\": 0.9}}' ({exc})") from None


def drop_none(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}
