"""What a collection's tables were made for: told beside them, so that another declaration is noticed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from memory.domain.errors import ConfigError
from memory.ports.collections import Collection


def declaration(collection: Collection) -> str:
    """What of a collection decides the form of its tables. The order of text parts counts: the packed counts of words go by it."""
    return json.dumps(
        {
            "fields": [[f.name, f.type.value, f.indexed] for f in collection.fields],
            "texts": [p.name for p in collection.texts],
            "vector": collection.vector,
        },
        separators=(",", ":"),
    )


def undeclared(declared: Mapping[str, str], store: str, collections: Sequence[Collection], elsewhere: str) -> list[Collection]:
    """The collections that have no table yet. One whose table was made for another declaration is refused; `elsewhere` is where there is room."""
    for collection in collections:
        if declared.get(collection.name, declaration(collection)) != declaration(collection):
            raise ConfigError(
                f"store '{store}': the table '{collection.name}' was made for another declaration of that collection; "
                f"migrate it, or choose another {elsewhere} and import an export into it"
            )
    return [c for c in collections if c.name not in declared]
