"""What becomes of a table whose collection is declared in another way than it was made
for: decided without a database.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from memory.adapters.sql.declared import Comparison, compare_declarations, declaration, parse_declaration
from memory.domain.errors import ConfigError
from memory.ports.collections import Collection, Field, FieldType, TextPart
from memory.ports.contract.cells import cells
from memory.ports.contract.collections import DECLARED

WAS = Collection(
    "notes",
    (
        Field("kind", FieldType.TEXT, indexed=True),
        Field("size", FieldType.INTEGER),
        Field("place", FieldType.INTEGER, required=True),
    ),
    (TextPart("title", 2.0), TextPart("content", 1.0)),
    vector=True,
    indexes=(("kind", "place"),),
)
COLOUR, HUE = Field("colour", FieldType.TEXT, indexed=True), Field("hue", FieldType.REAL)


def _compared(asked: Collection, was: Collection = WAS) -> Comparison:
    return compare_declarations({was.name: declaration(was)}, "mid", (asked,), "file")


@pytest.mark.parametrize("collection", [WAS, *DECLARED], ids=lambda c: c.name)
def test_a_declaration_is_told_as_a_whole_but_for_weights(collection: Collection) -> None:
    told = parse_declaration(collection.name, declaration(collection))
    assert replace(told, texts=collection.texts) == collection
    assert _compared(collection, collection).is_ready


def test_fields_more_are_added_behind_those_that_are_there_whatever_their_place() -> None:
    (growth,) = _compared(replace(WAS, fields=(COLOUR, *WAS.fields[::-1], HUE))).grown
    assert [f.name for f in growth.collection.fields] == ["kind", "size", "place", "colour", "hue"]
    assert growth.fields == (COLOUR, HUE)
    again = compare_declarations(
        {"notes": declaration(growth.collection)},
        "mid",
        (replace(WAS, fields=(HUE, *WAS.fields, COLOUR)),),
        "file",
    )
    assert again.is_ready
    assert again.tables["notes"] == growth.collection, "in one order for every program"


def test_indexes_more_are_made() -> None:
    (growth,) = _compared(
        replace(
            WAS,
            indexes=(("size", "kind"),),
            fields=(WAS.fields[0], replace(WAS.fields[1], indexed=True), WAS.fields[2]),
        )
    ).grown
    assert growth.collection.indexes == (("kind", "place"), ("size", "kind"))
    assert growth.fields == ()


def test_orders_more_are_made_and_a_program_that_knows_none_leaves_them() -> None:
    assert '"orders"' not in declaration(WAS), "a table without any tells what it told before there were any"
    ordered = replace(WAS, orders=("updated_at",))
    (growth,) = _compared(ordered).grown
    assert (growth.collection.orders, growth.fields) == (("updated_at",), ())
    assert _compared(WAS, ordered).tables["notes"].orders == ("updated_at",)
    assert _compared(WAS, ordered).is_ready


def test_an_order_by_what_not_every_record_has_is_refused() -> None:
    for name in ("expires_at", "size", "place"):
        with pytest.raises(ConfigError, match=f"'{name}' is none of the moments that every record has"):
            replace(WAS, orders=(name,))


def test_fewer_fields_leave_the_table_as_it_is() -> None:
    earlier = _compared(replace(WAS, fields=WAS.fields[:1], indexes=()))
    assert earlier.is_ready
    assert earlier.tables["notes"] == WAS


REFUSED = {
    "another type": (
        replace(WAS, fields=(*WAS.fields[:1], Field("size", FieldType.REAL), WAS.fields[2])),
        "field 'size' is integer in the table and real in the declaration",
    ),
    "an index less": (
        replace(WAS, fields=(Field("kind", FieldType.TEXT), *WAS.fields[1:])),
        "field 'kind' is indexed in the table and not in the declaration",
    ),
    "required no more": (
        replace(WAS, fields=(*WAS.fields[:2], Field("place", FieldType.INTEGER))),
        "field 'place' is required only in the table",
    ),
    "a required one more": (
        replace(WAS, fields=(*WAS.fields, Field("must", FieldType.TEXT, required=True))),
        "field 'must' is required, and the",
    ),
    "another field": (
        replace(WAS, fields=(*WAS.fields[1:], COLOUR), indexes=()),
        "only the table has 'kind', and only the declaration has 'colour'",
    ),
    "a text more": (replace(WAS, texts=(*WAS.texts, TextPart("end", 1.0))), "its texts are"),
    "texts in another order": (replace(WAS, texts=WAS.texts[::-1]), "its texts are"),
    "no vector": (replace(WAS, vector=False), "only the table has vectors"),
}


@cells("what", REFUSED, shared=True)
def test_anything_else_is_refused_by_name_with_what_to_do(what: str) -> None:
    asked, problem = REFUSED[what]
    with pytest.raises(ConfigError, match=problem) as refused:
        _compared(asked)
    assert all(
        said in str(refused.value)
        for said in ("store 'mid'", "'notes'", "export its records", "another file")
    )


def test_what_is_told_and_cannot_be_read_is_refused() -> None:
    for told in ("{", "[]", "{}", declaration(WAS).replace("integer", "integre")):
        with pytest.raises(ConfigError, match="cannot be read"):
            compare_declarations({"notes": told}, "mid", (WAS,), "file")


def test_an_index_over_a_field_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="'colour'"):
        Collection("notes", (HUE,), indexes=(("hue", "colour"),))
