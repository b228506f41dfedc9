"""The declaration that a collection's tables were made for, stored beside them.

It reveals a changed declaration. A collection may differ from its stored declaration in
these ways:

- *More fields or indexes*: `migrate` adds them to the tables. No record has a value in
  a new field yet, so none can be required.
- *Fewer fields*, as in an earlier release: the tables stay unchanged, and so do the
  values of the other fields.
- *Any other difference* is refused with an error that names it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from memory.domain.errors import ConfigError
from memory.ports.collections import Collection, Field, FieldType, TextPart


@lru_cache(maxsize=256)
def declaration(collection: Collection) -> str:
    """Return the parts of a collection that decide the form of its tables.

    The order of text parts counts: the packed counts of words depend on it.
    """
    return json.dumps(
        {
            "fields": [[f.name, f.type.value, f.indexed, f.required] for f in collection.fields],
            "texts": [p.name for p in collection.texts],
            "vector": collection.vector,
            "indexes": collection.indexes,
            **(
                {"orders": collection.orders} if collection.orders else {}
            ),  # a table without orders keeps the declaration it had without them
        },
        separators=(",", ":"),
    )


def parse_declaration(name: str, told: str) -> Collection:
    """Return the collection of a stored declaration, without text weights."""
    said = json.loads(told)
    fields = tuple(
        [
            Field(field, FieldType(kind), indexed, required)
            for field, kind, indexed, required in said["fields"]
        ]
    )
    texts = tuple([TextPart(part, 1.0) for part in said["texts"]])
    return Collection(
        name, fields, texts, said["vector"], tuple(map(tuple, said["indexes"])), tuple(said.get("orders", ()))
    )


@dataclass(frozen=True, slots=True)
class Growth:
    """A collection that exists (`was`) and its new declaration with more fields."""

    was: Collection
    collection: Collection

    @property
    def fields(self) -> Sequence[Field]:
        return self.collection.fields[len(self.was.fields) :]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The requested collections compared with the existing tables.

    `tables` are the requested collections as their tables are once `new` and `grown`
    are done.
    """

    tables: Mapping[str, Collection]
    new: Sequence[Collection]
    grown: Sequence[Growth]

    @property
    def is_ready(self) -> bool:
        return not self.new and not self.grown


def compare_declarations(
    told: Mapping[str, str], store: str, collections: Sequence[Collection], elsewhere: str
) -> Comparison:
    """Compare the declarations stored in the database with the requested ones.

    `elsewhere` names another place to import the records into, for the error.
    """
    tables: dict[str, Collection] = {}
    new, grown = [], []
    for asked in sorted(collections, key=lambda c: c.name):  # the order in which batches use tables
        tables[asked.name] = asked
        if asked.name not in told:
            new.append(asked)
            continue
        if told[asked.name] == declaration(asked):
            continue  # as at almost every opening
        try:
            was = parse_declaration(asked.name, told[asked.name])
            problems = list(_problems(was, asked))
        except (ValueError, TypeError, KeyError):
            was, problems = asked, ["its stored declaration cannot be read"]
        if problems:
            raise ConfigError(
                f"store '{store}': the table '{asked.name}' was made for another declaration of that"
                f" collection: {'; '.join(problems)}. Only optional fields and indexes can be added to a"
                " table; export its records with the program that wrote them, and import them into another"
                f" {elsewhere}"
            )
        table = tables[asked.name] = _together(was, asked)
        if declaration(table) != told[asked.name]:
            grown.append(Growth(was, table))
    return Comparison(tables, new, grown)


def _together(was: Collection, asked: Collection) -> Collection:
    """Return the collection for the grown table.

    It has the existing fields in their order, followed by the new ones.
    """
    kept = [asked.field(f.name) or f for f in was.fields]
    added = [f for f in asked.fields if was.field(f.name) is None]
    indexes = (*was.indexes, *[index for index in asked.indexes if index not in was.indexes])
    orders = (*was.orders, *[name for name in asked.orders if name not in was.orders])
    together = replace(asked, fields=(*kept, *added), indexes=indexes, orders=orders)
    return asked if together == asked else together


def _problems(was: Collection, asked: Collection) -> Iterator[str]:
    """Yield differences that no table can get, and no earlier program would request."""
    for field in asked.fields:
        there = was.field(field.name)
        if there is None:
            if field.required:
                yield f"field '{field.name}' is required, and the existing records have no value in it"
        elif field.type is not there.type:
            yield (
                f"field '{field.name}' is {there.type.value} in the table and {field.type.value} in the"
                " declaration"
            )
        elif field.required != there.required:
            yield (
                f"field '{field.name}' is required only in the {'table' if there.required else 'declaration'}"
            )
        elif there.indexed and not field.indexed:
            yield f"field '{field.name}' is indexed in the table and not in the declaration"
    for name in sorted(asked.ordered_texts - was.ordered_texts):
        if was.field(name) is not None:
            yield f"field '{name}' is ordered only in the declaration"
    missing = [f.name for f in was.fields if asked.field(f.name) is None]
    added = [f.name for f in asked.fields if was.field(f.name) is None]
    if missing and added:
        yield f"only the table has '{', '.join(missing)}', and only the declaration has '{', '.join(added)}'"
    if [p.name for p in was.texts] != [p.name for p in asked.texts]:
        yield (
            f"its texts are {[p.name for p in was.texts]} in the table and {[p.name for p in asked.texts]} in"
            " the declaration"
        )
    if was.vector != asked.vector:
        yield f"only the {'table' if was.vector else 'declaration'} has vectors"
