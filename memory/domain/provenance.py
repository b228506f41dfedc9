"""Provenance of memories: source, writing agent, run, and other origins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from memory.domain import validation
from memory.domain.corrections import explain_arguments
from memory.domain.errors import InvalidInput
from memory.domain.results import ResultMixin

OriginKind: TypeAlias = Literal["source", "agent", "run"]
ORIGIN_KINDS: tuple[OriginKind, ...] = get_args(OriginKind)
MOST_ORIGINS = 10_000
"""The largest number of origins of one entry."""
KEY_SOURCE, MCP_SOURCE = SERVER_SOURCES = ("key:", "mcp:")
"""Begins the sources that a server notes about its callers, such as `key:3kTMd9Xq`."""
WRITTEN_BY = "written_by"
"""The name under which a record other than an entry notes its writers.

They are callers of a server. In messages, documents, tasks and runs it is a name in the
metadata.
"""


@explain_arguments
@dataclass(frozen=True, slots=True, repr=False)
class Provenance(ResultMixin):
    """The provenance that a writer gives for a memory.

    `source` is any name that the caller chooses, such as "web:example.com", "user" or
    "tool:search". `origins` lists other origins, each with its kind first:
    `"source:web:example.com"`, `"agent:helper"`, `"run:r1"`. `session` is the session
    that it comes from (the entry's `conversation_id`).

    Raises:
        InvalidInput: a name or an origin is wrong.
    """

    source: str | None = None
    agent: str | None = None
    run: str | None = None
    origins: tuple[str, ...] = ()
    session: str | None = None

    def __post_init__(self) -> None:
        for kind in (*ORIGIN_KINDS, "session"):
            check_name(kind, getattr(self, kind))
        object.__setattr__(self, "origins", tuple(check_origins(self.origins)))

    def to_arguments(self) -> dict[str, Any]:
        """Return the fields that are set, as arguments of `write`."""
        said = {
            **{name: getattr(self, name) for name in (*ORIGIN_KINDS, "origins")},
            "conversation_id": self.session,
        }
        return {name: value for name, value in said.items() if value}

    def then(self, other: Provenance | None) -> Provenance:
        """Return this provenance refined by another one.

        Names that the other one replaces stay among the origins.
        """
        if other is None:
            return self
        said = {name: getattr(other, name) or getattr(self, name) for name in (*ORIGIN_KINDS, "session")}
        current = named_in(said)
        before = [
            one
            for one in named_in({kind: getattr(self, kind) for kind in ORIGIN_KINDS})
            if one not in current
        ]
        return Provenance(**said, origins=(*self.origins, *other.origins, *before))


def check_name(kind: str, value: object) -> str | None:
    """Check the name of a source, an agent, a run or a session."""
    if value is None:
        return None
    return (
        validation.text("source", value, max_chars=validation.MAX_SOURCE_CHARS)
        if kind == "source"
        else validation.identifier(kind, value)
    )


def check_origins(value: object) -> list[str]:
    """Check origins, and return each once, in the order given."""
    return list(
        dict.fromkeys(_origin(one) for one in validation.sequence("origins", value, at_most=MOST_ORIGINS))
    )


def origin(kind: str, name: str) -> str:
    """Return the text of an origin: a source, an agent or a run."""
    return f"{kind}:{name}"


def names_server_caller(one: str) -> bool:
    """Return whether an origin is a server's caller, such as `source:key:3kTMd9Xq`."""
    kind, name = parts_of(one)
    return kind == "source" and name.strip().startswith(SERVER_SOURCES)


def refuse_server_sources(source: object, origins: Iterable[str]) -> None:
    """Raise `InvalidInput` if a caller's provenance claims to come from a server."""
    for name, given in (("source", [origin("source", str(source))]), ("origins", origins)):
        for one in given:
            if names_server_caller(one):
                raise InvalidInput(
                    name,
                    f"{parts_of(one)[1][:80]!r} names a caller of a server, which only the server notes."
                    f" Use a source that does not begin with {' or '.join(SERVER_SOURCES)}",
                )


def mcp_source(source: str | None) -> str | None:
    """Return the source `mcp:ID` of a server's key `key:ID`, or None for others."""
    if source is None or not source.startswith(KEY_SOURCE):
        return None
    return f"{MCP_SOURCE}{source.removeprefix(KEY_SOURCE)}"


def signed_metadata(metadata: Mapping[str, Any] | None, writers: Iterable[str]) -> dict[str, Any]:
    """Return metadata with these writers. The caller cannot name other ones."""
    own = {name: value for name, value in (metadata or {}).items() if name != WRITTEN_BY}
    named = list(writers)
    return {**own, WRITTEN_BY: named} if named else own


def writers_in(metadata: Mapping[str, Any]) -> list[str]:
    """Return the callers of servers that metadata name as writers."""
    noted = metadata.get(WRITTEN_BY)
    if not isinstance(noted, list):
        return []
    return [one[: validation.MAX_SOURCE_CHARS] for one in noted if isinstance(one, str) and one.strip()]


def replaced_metadata(metadata: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata that replace stored ones.

    If they name a writer, it comes after the stored writers.
    """
    if not (noted := writers_in(metadata)):
        return dict(metadata)
    return signed_metadata(metadata, dict.fromkeys([*writers_in(stored), *noted]))


def parts_of(of: str) -> tuple[str, str]:
    """Return the kind and the name of an origin."""
    kind, _, name = of.partition(":")
    return kind, name


def named_in(fields: Mapping[str, Any]) -> list[str]:
    """Return the origins that the source, agent and run of these fields name."""
    return [origin(kind, str(name)) for kind in ORIGIN_KINDS if (name := fields.get(kind))]


def all_in(fields: Mapping[str, Any]) -> list[str]:
    """Return all origins of a record with these fields, each once."""
    return _once([*named_in(fields), *(fields.get("origins") or ())])


def _once(origins: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(origins))


def _origin(value: object) -> str:
    kind, name = parts_of(validation.text("origins", value))
    if kind not in ORIGIN_KINDS or not name:
        raise InvalidInput(
            "origins",
            "each is a kind and a name, such as 'source:web:example.com'; kinds are"
            f" {', '.join(ORIGIN_KINDS)}",
        )
    check_name(kind, name)
    return origin(kind, name)


UNSAID = Provenance()
