"""Entities and relations of the graph as entries, and back.

The observations of an entity are the content of its entry, one after the other. So
searches of the memory find them. `data.lengths` says where each one ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from memory.domain import validation
from memory.domain.entry import Entry, EntryDraft
from memory.domain.errors import InvalidInput
from memory.domain.scope import Scope

ALL, ENTITIES, RELATIONS = "mcp-graph:", "mcp-graph:entity:", "mcp-graph:relation:"
"""The beginnings of the keys of the graph's entries."""


T = TypeVar("T", bound=type)
_ANY_SCOPE = Scope.user("any")


def forbid_others(kind: T) -> T:
    """Let pydantic refuse values of a dict that have other keys, or other types."""
    kind.__pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[attr-defined]
    return kind


@forbid_others
class Entity(TypedDict):
    """A node of the graph, as JSON of the reference server."""

    name: Annotated[str, Field(description="The name of the entity")]
    entityType: Annotated[str, Field(description="The type of the entity")]
    observations: Annotated[
        list[str], Field(description="An array of observation contents associated with the entity")
    ]


Relation = TypedDict(
    "Relation",
    {
        "from": Annotated[str, Field(description="The name of the entity where the relation starts")],
        "to": Annotated[str, Field(description="The name of the entity where the relation ends")],
        "relationType": Annotated[str, Field(description="The type of the relation")],
    },
)
"""An edge of the graph, as JSON of the reference server."""
forbid_others(Relation)


class Graph(TypedDict):
    """A graph, as JSON of the reference server."""

    entities: list[Entity]
    relations: list[Relation]


def parse_key(kind: str, entry: Entry) -> tuple[str, int]:
    """Return the identity and the number in the key of an entry of this kind."""
    name, _, number = str(entry.key).removeprefix(kind).rpartition(":")
    return name, int(number) if number.isdecimal() and number.isascii() and len(number) < 10 else 0


def is_entity(entry: Entry) -> bool:
    """Return whether an entry is an entity still: others may have replaced its data."""
    return isinstance(entry.data, dict) and isinstance(entry.data.get("name"), str)


def observations_of(entry: Entry) -> list[str]:
    """Return the observations of an entity.

    If others edited the text of the entry, each of its lines is an observation.
    """
    text, lengths, found, at = entry.content, entry.data.get("lengths"), list[str](), 0
    is_list = isinstance(lengths, list) and all(type(length) is int for length in lengths)
    for length in lengths if is_list else ():
        found.append(text[at : at + length])
        at += length + 1
    return found if "\n".join(found) == text else text.split("\n")


def identity(*names: str) -> str:
    """Return the hash that names an entity or a relation in keys and filters."""
    return sha256(json.dumps(names).encode()).hexdigest()


def entity_draft(entity: Entity) -> dict[str, Any]:
    """Return the arguments of `write` for an entity, but scope and key."""
    name, kind, observations = entity["name"], entity["entityType"], entity["observations"]
    title = " ".join(f"{name} ({kind})".split())
    return {
        "title": title
        if len(title) <= validation.MAX_TITLE_CHARS
        else title[: validation.MAX_TITLE_CHARS - 1] + "…",
        "content": "\n".join(observations),
        "data": {
            "id": identity(name),
            "name": name,
            "entityType": kind,
            "lengths": [len(text) for text in observations],
        },
    }


def relation_draft(relation: Relation) -> dict[str, Any]:
    """Return the arguments of `write` for a relation, but scope and key."""
    source, target, kind = relation["from"], relation["to"], relation["relationType"]
    return {
        "content": f"{source} {kind} {target}",
        "data": {"id": identity(source, target, kind), "from": source, "to": target, "relationType": kind},
    }


def check_draft(fields: Mapping[str, Any]) -> None:
    """Check the draft of an entity or a relation before anything is stored.

    Raises:
        InvalidInput: A value is wrong. The error names the field of the entity.
    """
    try:
        EntryDraft(scope=_ANY_SCOPE, **fields)
    except InvalidInput as error:
        is_entity = "lengths" in fields["data"]
        field = {"title": "name"}.get(error.field, error.field.removeprefix("data."))
        if error.field == "content":
            field = "observations" if is_entity else "from, to and relationType"
        raise InvalidInput(field, error.problem) from None


def add_entry(graph: Graph, entry: Entry) -> None:
    """Add what an entry holds. An entry whose data others replaced is passed over."""
    data = entry.data if isinstance(entry.data, dict) else {}
    match data:
        case {"from": str(source), "to": str(target), "relationType": str(kind)}:
            graph["relations"].append({"from": source, "to": target, "relationType": kind})
        case {"name": str(name), "entityType": str(kind)}:
            graph["entities"].append(
                {"name": name, "entityType": kind, "observations": observations_of(entry)}
            )


def around(graph: Graph, passes: Callable[[Entity], bool]) -> Graph:
    """Return the entities that pass, and the relations from and to them."""
    entities = [one for one in graph["entities"] if passes(one)]
    names = {one["name"] for one in entities}
    return Graph(
        entities=entities,
        relations=[one for one in graph["relations"] if one["from"] in names or one["to"] in names],
    )
