"""Drawn filters over drawn entries, on every topology: what each answers is what plain
Python says about the entries that were written.
"""

from __future__ import annotations

import asyncio
import operator
import random
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from memory import Entry, Filter, Memory
from memory.facade.transfer.lines import FORMAT
from tests.acceptance.support import HOUR, OTHER_USER, SESSION, START, USER, WORKSPACE, Clock
from tests.support.backends import marks_of, run_here
from tests.support.depth import FIRST_SEED, THOROUGH, drawn
from tests.support.placings import ORDINARY, Placing, forget

FILTERS = drawn(2_000, quick=60, proof=10_000)
"""On the first topology of each backend. Topologies of several have a tenth of them."""
AT_ONCE = 10
"""Filters that are asked at the same time."""
SCOPES = (SESSION, USER, WORKSPACE, OTHER_USER)
NUMBERS: list[Any] = [
    -1,
    -0.0,
    0,
    1,
    1.0,
    1.5,
    2,
    2.5e-9,
    2**53,
    2**53 + 1,
    float(2**53),
    1e300,
    2**63 - 1,
    -(2**63),
]
TEXTS = [
    "",
    "a",
    "A",
    "ä",
    "b",
    "10",
    "9",
    "z",
    "\uffff",
    "😀",
    "a'b",
    'a"b',
    "a\\b",
    "%",
    "_",
    "é",
    "e\u0301",
    "$x",
]
MOMENTS = [
    "2026-01-31",
    "2026-01-31T09:30:00Z",
    "2026-01-31T10:30:00+01:00",
    "2026-01-31T09:30:00.000001Z",
    "2026-02-01T00:00:00",
    "no moment",
]
SCALARS: list[Any] = [*NUMBERS, *TEXTS, *MOMENTS, True, False, None]
KEYS = ["n", "t", "m", "x", "a.b", "with space", 'qu"ote', "quo'te", "back\\slash", "$d", "é", "[0]", "0"]
NESTED = ["k", "deep"]
INDEXED = [
    "metadata.n",
    'metadata.qu"ote',
    "metadata.quo'te",
    "metadata.back\\slash",
    "metadata.o.k",
    "metadata.0",
    "data.n",
    "data.o.k",
]
TYPES, TAGS = ("user", "project", "context"), ("a", "A", "a b", "ä")
ORDERINGS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Drawn(NamedTuple):
    """A filter, its form as a dict (None if it has none), and what it means."""

    filter: Filter
    written: dict[str, Any] | None
    holds: Callable[[Entry], bool]


# -- plain Python ----------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A JSON value such that equal ones of one type are equal, and no others."""
    if isinstance(value, bool) or value is None:
        return ("constant", str(value))
    if isinstance(value, int | float):
        return ("number", Fraction(value))
    if isinstance(value, str):
        return ("text", tuple(map(ord, value)))
    if isinstance(value, list):
        return ("list", tuple(map(plain, value)))
    return ("object", frozenset((name, plain(one)) for name, one in value.items()))


def at(value: Any, path: tuple[str, ...]) -> list[Any]:
    """The value there, or nothing."""
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return []
        value = value[name]
    return [value]


def is_ordered(value: Any, sign: str, other: Any) -> bool:
    (kind, one), (other_kind, two) = plain(value), plain(other)
    return kind == other_kind and kind in ("number", "text") and bool(ORDERINGS[sign](one, two))


def moment_of(value: Any) -> datetime | None:
    try:
        at = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


# -- drawing ---------------------------------------------------------------------------


class Draw:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"filters {seed}")  # noqa: S311
        self.entries: list[Entry] = []

    def json_object(self) -> dict[str, Any]:
        draw = self.random
        given = {key: self.value() for key in draw.sample(KEYS, draw.randrange(0, 6))}
        if draw.random() < 0.6:
            given["o"] = draw.choice(
                [{name: self.value() for name in NESTED}, {"k": {"deep": self.value()}}, [{"k": 1}], 1]
            )
        return given

    def value(self) -> Any:
        draw = self.random
        chance = draw.random()
        if chance < 0.1:
            return [draw.choice(SCALARS) for _ in range(draw.randrange(3))]
        if chance < 0.15:
            return {"k": draw.choice(SCALARS)}
        return draw.choice(draw.choice([NUMBERS[:6], TEXTS[:6], SCALARS]))

    def filter(self, depth: int = 3) -> Drawn:
        draw = self.random
        if depth and draw.random() < 0.45:
            return self.combined([self.filter(depth - 1) for _ in range(draw.randrange(2, 4))])
        if depth and draw.random() < 0.2:
            inner = self.filter(depth - 1)
            written = None if inner.written is None else {"$not": inner.written}
            return Drawn(~inner.filter, written, lambda entry: not inner.holds(entry))
        return self.on_field() if draw.random() < 0.35 else self.on_json()

    def combined(self, parts: list[Drawn]) -> Drawn:
        both = self.random.random() < 0.5
        joined = parts[0].filter
        for part in parts[1:]:
            joined = joined & part.filter if both else joined | part.filter
        written = [part.written for part in parts if part.written is not None]
        whole = {"$and" if both else "$or": written} if len(written) == len(parts) else None
        truth = all if both else any
        return Drawn(joined, whole, lambda entry: truth(part.holds(entry) for part in parts))

    def on_json(self) -> Drawn:
        draw = self.random
        root = draw.choice(["metadata", "data"])
        path = draw.choice([(key,) for key in KEYS] + [("o", name) for name in NESTED] + [("o", "k", "deep")])
        into = Filter.metadata if root == "metadata" else Filter.data
        here, dotted = into(*path), ".".join((root, *path))
        clean = all("." not in name for name in path)

        def written(comparison: Any) -> dict[str, Any] | None:
            return {dotted: comparison} if clean else None

        def holds(test: Callable[[Any], bool]) -> Callable[[Entry], bool]:
            return lambda entry: any(test(value) for value in at(getattr(entry, root), path))

        kind = draw.randrange(8)
        if kind == 0:
            return Drawn(here.exists(), written({"$exists": True}), holds(lambda value: True))
        if kind == 1:
            among = [self.value() for _ in range(draw.randrange(4))]
            wanted = [plain(one) for one in among]
            return Drawn(
                here.in_(among), written({"$in": among}), holds(lambda value: plain(value) in wanted)
            )
        if kind == 2:
            one = self.value()
            return Drawn(
                here.contains(one),
                written({"$contains": one}),
                holds(lambda value: isinstance(value, list) and plain(one) in map(plain, value)),
            )
        if kind == 3:
            said = draw.choice(MOMENTS[1:4])
            moment, then = Filter.moment(said), moment_of(said)
            name = draw.choice(list(ORDERINGS))
            return Drawn(
                ORDERINGS[name](here, moment),
                None,
                holds(lambda value: (is_at := moment_of(value)) is not None and ORDERINGS[name](is_at, then)),
            )
        if kind == 4:
            one = self.value()
            is_equal = holds(lambda value: plain(value) == plain(one))
            return Drawn(here != one, written({"$ne": one}), lambda entry: not is_equal(entry))
        if kind == 5:
            one = self.value()
            return Drawn(here == one, written({"$eq": one}), holds(lambda value: plain(value) == plain(one)))
        one, name = draw.choice([*NUMBERS, *TEXTS, *MOMENTS]), draw.choice(list(ORDERINGS))
        word = {"<": "$lt", "<=": "$lte", ">": "$gt", ">=": "$gte"}[name]
        return Drawn(
            ORDERINGS[name](here, one),
            written({word: one}),
            holds(lambda value: is_ordered(value, name, one)),
        )

    def on_field(self) -> Drawn:
        draw = self.random
        field = Filter.field
        some = draw.choice(self.entries)
        tag, types = draw.choice(TAGS), draw.sample(TYPES, draw.randrange(1, 3))
        text = draw.choice([*TEXTS[1:], some.content])
        name = draw.choice(list(ORDERINGS))
        compare, word = ORDERINGS[name], {"<": "$lt", "<=": "$lte", ">": "$gt", ">=": "$gte"}[name]
        number = draw.choice([0, 1, 2.5, 3, 1e300])
        scope = draw.choice(SCOPES)
        return draw.choice(
            [
                Drawn(field("tags").contains(tag), {"tags": [tag]}, lambda e: tag in e.tags),
                Drawn(field("key") == "k1", {"key": "k1"}, lambda e: e.key == "k1"),
                Drawn(field("key") != "k1", {"key": {"$ne": "k1"}}, lambda e: e.key != "k1"),
                Drawn(field("key").exists(), {"key": {"$exists": True}}, lambda e: e.key is not None),
                Drawn(field("tags").exists(), {"tags": {"$exists": True}}, lambda e: bool(e.tags)),
                Drawn(field("type").in_(types), {"types": types}, lambda e: e.type in types),
                Drawn(field("content") == text, {"content": text}, lambda e: e.content == text),
                Drawn(
                    field("title") != text,
                    {"title": {"$ne": text}},
                    lambda e: e.title != text,
                ),
                Drawn(
                    compare(field("source"), text),
                    {"source": {word: text}},
                    lambda e: e.source is not None and is_ordered(e.source, name, text),
                ),
                Drawn(
                    compare(field("created_at"), some.created_at),
                    {"created_at": {word: some.created_at}},
                    lambda e: compare(e.created_at, some.created_at),
                ),
                Drawn(
                    compare(field("confidence"), number),
                    {"confidence": {word: number}},
                    lambda e: e.confidence is not None and compare(e.confidence, number),
                ),
                Drawn(
                    compare(field("number_in_conversation"), number),
                    {"number_in_conversation": {word: number}},
                    lambda e: (
                        e.number_in_conversation is not None and compare(e.number_in_conversation, number)
                    ),
                ),
                Drawn(field("scope") == scope, {"scope": scope.text}, lambda e: e.scope == scope),
                Drawn(
                    field("id").in_([some.id, "x"]),
                    {"id": {"$in": [some.id, "x"]}},
                    lambda e: e.id == some.id,
                ),
                Drawn(
                    field("speaker").exists(), {"speaker": {"$exists": True}}, lambda e: e.speaker is not None
                ),
            ]
        )

    async def write(self, memory: Memory, clock: Clock, count: int) -> None:
        draw = self.random
        for number in range(count):
            clock.advance(HOUR * draw.choice([0, 1]))
            entry = await memory.write(
                f"tea {number}",
                scope=draw.choice(SCOPES),
                type=draw.choice(TYPES),
                key=f"k{number}" if number % 3 == 1 else None,
                title=draw.choice([None, *TEXTS[1:4]]),
                source=draw.choice([None, *TEXTS[1:]]),
                tags=draw.sample(TAGS, draw.randrange(3)),
                metadata=self.json_object() | draw.choice([{}, {"confidence": draw.choice([0, 0.5, 1])}]),
                data=draw.choice([None, [1], self.json_object(), self.json_object()]),
                created_at=draw.choice([None, START]),
                conversation_id="c",
                number_in_conversation=draw.choice([None, 1, 2, 3]),
                speaker="ada",
            )
            if draw.random() < 0.2:
                await memory.admin.move([entry.id], "long")
            if draw.random() < 0.2:
                await memory.update(entry.id, metadata=self.json_object(), data=self.json_object())
        self.entries = [entry async for entry in memory.entries.iterate()]


# -- where it runs ---------------------------------------------------------------------


def _params() -> list[Any]:
    return [
        pytest.param(
            placing,
            id=placing.name,
            marks=[
                *marks_of(*placing.backends),
                *([] if placing.name in ("default", "in-memory") else [pytest.mark.thorough]),
            ],
        )
        for placing in ORDINARY
        if run_here(*placing.backends) and (THOROUGH or placing.name in ("default", "in-memory"))
    ]


@pytest.fixture(params=_params())
async def open_memory(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Memory]:
    placing: Placing = request.param
    async with Memory(
        placing.config(tmp_path), embedder="none", tenant="acme", clock=clock, indexes=INDEXED
    ) as memory:
        yield memory
    forget(tmp_path)


async def in_pages(memory: Memory, wanted: Any, limit: int, **more: Any) -> list[Entry]:
    found, cursor = list[Entry](), None
    while True:
        page = await memory.browse(filter=wanted, limit=limit, cursor=cursor, **more)
        assert len(page) <= limit
        found += page
        if (cursor := page.cursor) is None:
            return found


def _number_of_filters(placing: Placing) -> int:
    first = next(one for one in ORDINARY if one.backends == placing.backends)
    is_full = len(placing.backends) == 1 and placing is first
    return FILTERS if is_full else min(FILTERS, drawn(300, quick=60, proof=1_000))


async def test_drawn_filters_mean_what_plain_python_says(
    request: pytest.FixtureRequest, open_memory: Memory, clock: Clock
) -> None:
    memory, draw = open_memory, Draw(FIRST_SEED)
    count = _number_of_filters(request.node.callspec.params["open_memory"])
    await draw.write(memory, clock, 48)
    everything = [entry.id for entry in await in_pages(memory, None, 1_000)]
    assert len(everything) == len(draw.entries)
    by_id = {entry.id: entry for entry in draw.entries}
    empty = 0

    async def ask(number: int, asked: Drawn) -> None:
        nonlocal empty
        given = asked.filter if asked.written is None or number % 2 else asked.written
        wanted = [i for i in everything if asked.holds(by_id[i])]
        empty += not wanted
        found = [entry.id for entry in await in_pages(memory, given, 7 if number % 20 == 3 else 1_000)]
        assert found == wanted, asked.filter
        assert [i for i in everything if asked.filter.matches(by_id[i])] == wanted, asked.filter
        if number % 10 == 5:
            hits = await memory.search("tea", scope=list(SCOPES), filter=given, limit=1_000)
            assert {hit.id for hit in hits} == set(wanted), asked.filter
            scope = SCOPES[number // 10 % len(SCOPES)]
            listed = await memory.retrieve(scope, filter=given, limit=1_000)
            assert {e.id for e in listed} == {i for i in wanted if by_id[i].scope == scope}, asked.filter
        if number % 20 == 7:
            lines = [one async for one in memory.admin.export(filter=given)]
            assert {one["id"] for one in lines if one["format"] == FORMAT} == set(wanted), asked.filter

    for first in range(0, count, AT_ONCE):
        await asyncio.gather(*(ask(number, draw.filter()) for number in range(first, first + AT_ONCE)))
    assert empty < count * 0.7, "most drawn filters pass nothing"
