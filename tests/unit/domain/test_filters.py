"""Filters: both forms, what they mean, and what is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from memory import EntryType, Filter, InvalidInput, Scope
from memory.domain.filter_parsing import parse_filter
from memory.domain.filters import MAX_DEPTH, MAX_PARTS
from memory.ports.contract.cells import cells

price, tags = Filter.metadata("price"), Filter.field("tags")
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)

SAME: list[tuple[Filter, dict[str, Any]]] = [
    (price > 3, {"metadata.price": {"$gt": 3}}),
    (price >= 3, {"metadata": {"price": {"$gte": 3}}}),
    (price == 3, {"metadata": {"price": 3}}),
    (price == None, {"metadata.price": None}),  # noqa: E711
    (price != 3, {"metadata.price": {"$ne": 3}}),
    (price != 3, {"metadata.price": {"$not": {"$eq": 3}}}),
    ((price > 3) & (price < 9), {"metadata.price": {"$gt": 3, "$lt": 9}}),
    (price.in_([1, 2]), {"metadata.price": {"$in": [1, 2]}}),
    (~price.in_([1, 2]), {"metadata.price": {"$nin": [1, 2]}}),
    (price.exists(), {"metadata.price": {"$exists": True}}),
    (~price.exists(), {"metadata.price": {"$exists": False}}),
    (price.contains("a"), {"metadata.price": {"$contains": "a"}}),
    (Filter.metadata("a", "b") == 1, {"metadata.a.b": 1}),
    (Filter.metadata("a", "b") == 1, {"metadata": {"a": {"b": 1}}}),
    (Filter.metadata("a.b") == 1, {"metadata": {"a.b": 1}}),
    (Filter.metadata("$gt") == 1, {"metadata.$gt": 1}),
    (Filter.metadata("a") == {}, {"metadata.a": {"$eq": {}}}),
    (Filter.metadata("at") > NOON, {"metadata.at": {"$gt": Filter.moment("2026-01-31T12:00:00Z")}}),
    (Filter.metadata("on") == date(2026, 1, 31), {"metadata.on": "2026-01-31"}),
    (Filter.metadata("id") == UUID(int=1), {"metadata.id": str(UUID(int=1))}),
    (Filter.metadata("sum") == Decimal("1.50"), {"metadata.sum": "1.50"}),
    (Filter.field("type") == EntryType.USER, {"type": "user"}),
    (Filter.field("type").in_(["user"]), {"types": ["user"]}),
    (Filter.field("scope") == Scope.user("ada"), {"scope": "user:ada"}),
    (Filter.field("created_at") >= NOON, {"since": "2026-01-31T12:00:00Z"}),
    (Filter.field("created_at") < NOON, {"created_at": {"$lt": NOON.timestamp()}}),
    (tags.contains("home"), {"tags": {"$contains": "home"}}),
    ((price > 3) | (price < 1), {"$or": [{"metadata.price": {"$gt": 3}}, price < 1]}),
    ((price > 3) & tags.contains("a") & (price < 1), {"$and": [price > 3, tags.contains("a"), price < 1]}),
    (~((price > 3) | (price < 1)), {"$nor": [price > 3, price < 1]}),
    (~(price > 3), {"$not": price > 3}),
]


@cells("built, written", SAME, ids=lambda one: repr(one)[:60], shared=True)
def test_both_forms_are_the_same_filter(built: Filter, written: dict[str, Any]) -> None:
    assert parse_filter(written) == built
    assert parse_filter(built) is built


def passes(asked: Filter, metadata: dict[str, Any], **fields: Any) -> bool:
    return asked.test(lambda name: metadata if name == "metadata" else fields.get(name))


def test_types_are_distinct_and_numbers_are_one_type() -> None:
    assert passes(price == 1, {"price": 1.0})
    assert passes(price == 1.0, {"price": 1})
    for value in (True, "1", None, [1], {"1": 1}):
        assert not passes(price == 1, {"price": value})
        assert passes(price != 1, {"price": value})
        assert not passes(price < 2, {"price": value})
        assert not passes(price >= 0, {"price": value})
    assert not passes(price == True, {"price": 1})  # noqa: E712
    assert passes(price == [1, {"a": True}], {"price": (1.0, {"a": True})})
    assert not passes(price == [1, {"a": True}], {"price": [1, {"a": 1}]})
    assert passes(price == 2**53 + 1, {"price": 2**53 + 1})
    assert not passes(price == 2**53 + 1, {"price": float(2**53)})


def test_a_missing_value_is_only_unequal() -> None:
    for asked in (price == None, price == 1, price < 1, price.in_([None]), price.contains(1), price.exists()):  # noqa: E711
        assert not passes(asked, {})
        assert passes(~asked, {})
    assert passes(price != 1, {})
    assert passes(price == None, {"price": None})  # noqa: E711
    assert passes(price.exists(), {"price": None})
    assert not passes(tags.exists(), {}, tags=())
    assert not passes(Filter.field("title") == "a", {}, title=None)


def test_a_path_enters_objects_and_no_lists() -> None:
    asked = Filter.metadata("a", "0").exists()
    assert passes(asked, {"a": {"0": 1}})
    for value in ([1], "text", None, {"b": 1}):
        assert not passes(asked, {"a": value})


def test_text_compares_by_code_point_and_moments_as_moments() -> None:
    at = Filter.metadata("at")
    assert passes(at > "Z", {"at": "a"})
    assert passes(at > "\uffff", {"at": "\U0001f600"})
    assert passes(at < "2026-01-31T12:00:00Z", {"at": "2026-01-31T11:30:00-01:00"})
    assert passes(at > NOON, {"at": "2026-01-31T11:30:00-01:00"})
    assert passes(at == NOON, {"at": "2026-01-31T13:00:00+01:00"})
    assert passes(at == NOON, {"at": "2026-01-31T12:00:00"})
    assert passes(at < NOON, {"at": "2026-01-31"})
    for value in ("soon", "", 1769860800, None, "2026-01-31T25:00:00Z", "0001-01-01T00:00:00+14:00x"):
        assert not passes(at < NOON, {"at": value})
        assert not passes(at >= NOON, {"at": value})
    for value in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"):
        assert passes(at < NOON, {"at": value}) != passes(at > NOON, {"at": value})


REFUSED: list[tuple[Any, str]] = [
    (3, r"filter: must be a Filter or a dict such as .*, not int"),
    ({"price": {"$gt": 3}}, r"filter\.price: is not a key.*write \{'metadata\.price': …\}"),
    ({"typ": "user"}, r"did you mean 'type'"),
    ({"user_id": "ada"}, r"metadata\.user_id"),
    ({"must": []}, r'did you mean \{"\$and"'),
    ({"$gt": 3}, r"Operators stand below a key"),
    ({1: 2}, r"key that is not text"),
    ({"$or": []}, r"takes a list of filters"),
    ({"$or": {"type": "user"}}, r"takes a list of filters"),
    ({"$not": [1]}, r"must be a Filter or a dict"),
    ({"metadata.price": {"$regex": "a"}}, r"is not an operator.*search"),
    ({"metadata.price": {"$ge": 1}}, r"Use \$gte"),
    ({"metadata.price": {"$greater": 1}}, r"is not an operator.*Operators: \$eq"),
    ({"metadata.price": {">": 1}}, r"Write \{'\$gt'"),
    ({"metadata.price": {"gt": 3}}, r"Write \{'\$gt': …\}.*metadata\.price\.gt"),
    ({"metadata.price": {}}, r"is empty"),
    ({"metadata.price": {"$gt": 3, "b": 1}}, r"is not an operator"),
    ({"metadata..a": 1}, r"empty key between dots"),
    ({"metadata.": 1}, r"empty key between dots"),
    ({"metadata": 3}, r"must be a dict such as.*Name the key: Filter\.metadata\('price'\)"),
    ({"metadata": {"$exists": True}}, r"filter\.metadata\.\$exists: .*Name the key: Filter\.metadata"),
    ({"data": {"$gt": 3}}, r"compares a key of the data.*\{'data\.\$gt': …\}"),
    ({"data": {"a": 1, "$not": {"b": 1}}}, r"compares a key of the data"),
    ({"value": {">": 3}}, r"filter\.value\.>: .*compares a key of the value"),
    ({"value": {"gt": 3}}, r"filter\.value\.gt: .*compares a key of the value"),
    ({"data": {"a": {5: 1}}}, r"filter\.data\.a: must be text"),
    ({"metadata.a": {"$exists": 1}}, r"must be True or False"),
    ({"metadata.a": {"$in": "text"}}, r"must be a list"),
    ({"metadata.a": {"$in": list(range(1_001))}}, r"at most 1000"),
    ({"metadata.a": {"$gt": None}}, r"null has no order"),
    ({"metadata.a": {"$gt": True}}, r"bool has no order"),
    ({"metadata.a": {"$gt": [1]}}, r"list has no order"),
    ({"metadata.a": {"$gt": Decimal(1)}}, r"decimals are stored as text"),
    ({"metadata.a": float("nan")}, r"finite"),
    ({"metadata.a": 2**63}, r"64 bits"),
    ({"metadata.a": len}, r"filter\.metadata\.a.*has the type builtin"),
    ({"metadata.a": "\x00"}, r"NUL"),
    ({"metadata.a\x00": 1}, r"NUL"),
    ({"tags": "home"}, r"filter\.tags: must be a list"),
    ({"tags": {"$eq": "home"}}, r"is a list: write"),
    ({"title": {"$contains": "a"}}, r"contains is for lists"),
    ({"title": None}, r"\$exists"),
    ({"title": {"$in": ["a", None]}}, r"\$exists"),
    ({"type": "usr"}, r"did you mean 'user'|choose from"),
    ({"types": ["usr"]}, r"choose from"),
    ({"scope": "ada"}, r"should look like user:ada"),
    ({"created_at": {"$gt": "2026-01-01"}}, r"no time zone"),
    ({"confidence": {"$gt": "high"}}, r"must be a number"),
    ({"type.x": 1}, r"is not a key"),
    ({"metadata.a": {"$gt": price}}, r"another field or filter"),
]


@cells("given, problem", REFUSED, ids=lambda one: repr(one)[:60], shared=True)
def test_what_is_refused_names_what_is_right(given: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        parse_filter(given)


@pytest.mark.parametrize("root", ["metadata", "data", "value"])
def test_a_root_is_no_field(root: str) -> None:
    with pytest.raises(InvalidInput, match=rf"filter\.{root}: .*Name the key: Filter\.{root}"):
        Filter.field(root)


def test_a_key_that_looks_like_an_operator_is_written_with_a_dot() -> None:
    assert parse_filter({"data.$gt": 3}) == (Filter.data("$gt") == 3)


def test_too_large_or_deep_filters_are_refused() -> None:
    deep = price > 1
    for _ in range(MAX_DEPTH):
        deep = ~deep
    with pytest.raises(InvalidInput, match="nests deeper"):
        parse_filter(deep)
    nested: dict[str, Any] = {"type": "user"}
    for _ in range(100):
        nested = {"$not": nested}
    with pytest.raises(InvalidInput, match="nests"):
        parse_filter(nested)
    with pytest.raises(InvalidInput, match="more than 256 comparisons"):
        parse_filter({"$or": [{"metadata.a": n} for n in range(MAX_PARTS + 1)]})
    parse_filter({"$or": [{"metadata.a": n} for n in range(MAX_PARTS)]})


def test_mistakes_in_python_say_what_to_write() -> None:
    for wrong, problem in (
        (lambda: bool(price > 3), "Combine filters with & | ~"),
        (lambda: 1 < price < 9, r"\(a > 1\) & \(a < 3\)"),
        (lambda: (price > 3) and (price < 9), "Combine filters with"),
        (lambda: bool(price), "a path is no filter yet"),
        (lambda: price > 3 & price, "in brackets"),
        (lambda: "a" in price, r"\.contains\(value\)"),
        (lambda: list(price), "no elements"),
        (lambda: (price > 3) & {"type": "user"}, "unsupported operand"),  # type: ignore[operator]
    ):
        with pytest.raises(TypeError, match=problem):
            wrong()
    with pytest.raises(AttributeError, match=r"\.in_\("):
        price.isin([1])  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="&"):
        (price > 3).and_(price < 9)  # type: ignore[attr-defined]
    with pytest.raises(InvalidInput, match=r"metadata\.price"):
        Filter.field("price")
    with pytest.raises(InvalidInput, match="is empty"):
        Filter.metadata()
