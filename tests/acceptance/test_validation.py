"""The one input check: on every path hostile input is refused by name before any store
is touched, and nothing is stored.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Awaitable, Callable
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest

from memory import Entry, EntryDraft, Forbidden, InvalidInput, MemoryTiersError, Scope
from memory.facade.memory import Memory
from memory.ports.contract.cells import cells
from tests.acceptance.support import SESSION, USER, everything_stored, watching

Path = Callable[[Memory, Entry, Any], Awaitable[Any]]

NESTED_33: Any = "leaf"
for _ in range(33):
    NESTED_33 = {"k": NESTED_33}
LISTS_33: Any = []
for _ in range(32):
    LISTS_33 = [LISTS_33]
LOOP: dict[str, Any] = {}
LOOP["loop"] = LOOP


class Nowhere(tzinfo):
    """A zone that does not know its offset."""

    def utcoffset(self, when: datetime | None) -> timedelta | None:
        return None

    def dst(self, when: datetime | None) -> timedelta | None:
        return None

    def tzname(self, when: datetime | None) -> str | None:
        return None


HOSTILE_TEXT = {
    "NUL": "a\x00b",
    "a lone surrogate": "a\ud800b",
    "half a pair": "\udc00",
    "a number": 5,
    "bytes": b"text",
    "a list": ["text"],
}
HOSTILE_JSON = {
    "NaN": {"a": float("nan")},
    "infinity": {"a": [1, {"b": float("inf")}]},
    "minus infinity": {"a": float("-inf")},
    "2^63": {"a": 2**63},
    "below -2^63": {"a": [-(2**63) - 1]},
    "a huge integer": {"a": 10**5000},
    "NUL in a value": {"a": {"b": "\x00"}},
    "NUL in a key": {"a": {"\x00": 1}},
    "a surrogate in a value": {"a": ["\ud800"]},
    "a surrogate in a key": {"\ud800": 1},
    "depth 33": NESTED_33,
    "lists 33 deep": {"a": LISTS_33},
    "a loop": LOOP,
    "a key that is no text": {1: "a"},
    "a set": {"a": {1, 2}},
    "bytes": {"a": b"x"},
    "an object": {"a": object()},
    "a complex number": {"a": 1j},
    "no object": ["a"],
    "a text": "a",
}
HOSTILE_TIME = {
    "a naive datetime": datetime(2126, 1, 1),
    "naive text": "2126-01-01T00:00:00",
    "a zone without offset": datetime(2126, 1, 1, tzinfo=Nowhere()),
    "a date": date(2126, 1, 1),
    "a word": "tomorrow",
    "nothing": "",
    "NUL": "2126-01-01T00:00:00Z\x00",
    "a surrogate": "\ud800",
    "a 13th month": "2126-13-01T00:00:00Z",
    "before the first year": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
    "after the last year": datetime(9999, 12, 31, 23, 59, tzinfo=timezone(timedelta(hours=-12))),
    "NaN": float("nan"),
    "infinity": float("inf"),
    "minus infinity": float("-inf"),
    "negative": -1,
    "past the year 9999 in milliseconds": 10**15,
    "an integer outside int64": 2**63,
    "a huge integer": 10**5000,
    "a truth value": True,
    "a list": [2126, 1, 1],
}


def _cases(values: dict[str, Any]) -> Any:
    return [pytest.param(value, id=name) for name, value in values.items()]


async def _refused(memory: Memory, path: Path, value: Any, field: str) -> None:
    entry = await memory.write("standing", scope=USER, key="standing")
    before = await everything_stored(memory)
    with watching(memory) as calls, pytest.raises(InvalidInput) as caught:
        await path(memory, entry, value)
    named = re.sub(r"^drafts\[\d+\]\.", "", caught.value.field)
    assert named.split(".")[0].startswith(field)
    assert calls == []
    assert await everything_stored(memory) == before


TEXT_PATHS: list[Any] = [
    pytest.param("content", lambda m, e, v: m.write(v, scope=USER), id="write content"),
    pytest.param("title", lambda m, e, v: m.write("x", scope=USER, title=v), id="write title"),
    pytest.param("source", lambda m, e, v: m.write("x", scope=USER, source=v), id="write source"),
    pytest.param("tags", lambda m, e, v: m.write("x", scope=USER, tags=[v]), id="write tags"),
    pytest.param("key", lambda m, e, v: m.write("x", scope=USER, key=v), id="write key"),
    pytest.param("key", lambda m, e, v: m.documents.put(USER, v, 1), id="document put"),
    pytest.param("key", lambda m, e, v: m.documents.get(USER, v), id="document get"),
    pytest.param("key", lambda m, e, v: m.documents.delete(USER, v), id="document delete"),
    pytest.param("prefix", lambda m, e, v: m.documents.list(USER, prefix=v), id="document list"),
    pytest.param(
        "conversation_id",
        lambda m, e, v: m.write("x", scope=USER, conversation_id=v),
        id="write conversation",
    ),
    pytest.param("speaker", lambda m, e, v: m.scoped(USER).write("x", speaker=v), id="write speaker"),
    pytest.param("type", lambda m, e, v: m.write("x", scope=USER, type=v), id="write type"),
    pytest.param(
        "content",
        lambda m, e, v: m.write_many([{"content": "x", "scope": USER}, {"content": v, "scope": USER}]),
        id="write_many",
    ),
    pytest.param("content", lambda m, e, v: m.scoped(USER).write(v), id="a view's write"),
    pytest.param("content", lambda m, e, v: m.update(e.id, content=v), id="update content"),
    pytest.param("title", lambda m, e, v: m.update(e.id, title=v), id="update title"),
    pytest.param("source", lambda m, e, v: m.update(e.id, source=v), id="update source"),
    pytest.param("tags", lambda m, e, v: m.update(e.id, tags=[v]), id="update tags"),
    pytest.param("query", lambda m, e, v: m.search(v, scope=USER), id="search query"),
    pytest.param(
        "boost", lambda m, e, v: m.search("x", scope=USER, boost={"tags": [v]}), id="search boost tags"
    ),
    pytest.param(
        "boost", lambda m, e, v: m.search("x", scope=USER, boost={"types": [v]}), id="search boost types"
    ),
    pytest.param(
        "filter", lambda m, e, v: m.search("x", scope=USER, filter={"tags": [v]}), id="search filter tags"
    ),
    pytest.param(
        "filter", lambda m, e, v: m.search("x", scope=USER, filter={"types": [v]}), id="search filter types"
    ),
    pytest.param("mode", lambda m, e, v: m.search("x", scope=USER, mode=v), id="search mode"),
    pytest.param(
        "boost",
        lambda m, e, v: m.search("x", scope=USER, boost={"conversation_id": v}),
        id="search boost conversation_id",
    ),
    pytest.param("tags", lambda m, e, v: m.retrieve(USER, tags=[v]), id="retrieve tags"),
    pytest.param("types", lambda m, e, v: m.retrieve(USER, types=[v]), id="retrieve types"),
    pytest.param("order", lambda m, e, v: m.retrieve(USER, order=v), id="retrieve order"),
    pytest.param("content", lambda m, e, v: m.promote(e.id, to="org:o", content=v), id="promote content"),
    pytest.param("tags", lambda m, e, v: m.promote(e.id, to="org:o", tags=[v]), id="promote tags"),
    pytest.param("tags", lambda m, e, v: m.compact([e.id], lambda entries: "x", tags=[v]), id="compact tags"),
    pytest.param("to", lambda m, e, v: m.admin.move([e.id], v), id="move tier"),
    pytest.param("relation", lambda m, e, v: m.relations.relate(e.id, v, "other"), id="relate label"),
    pytest.param("entry_id", lambda m, e, v: m.get(v), id="get"),
    pytest.param("entry_id", lambda m, e, v: m.update(v, content="x"), id="update id"),
    pytest.param("entry_id", lambda m, e, v: m.delete(v), id="delete"),
    pytest.param("entry_id", lambda m, e, v: m.entries.invalidate(v), id="invalidate"),
    pytest.param("entry_id", lambda m, e, v: m.entries.history(v), id="history"),
    pytest.param("entry_id", lambda m, e, v: m.admin.where(v), id="where"),
    pytest.param("entry_id", lambda m, e, v: m.promote(v, to="org:o"), id="promote id"),
    pytest.param("entry_ids[1]", lambda m, e, v: m.compact([e.id, v], lambda entries: "x"), id="compact ids"),
    pytest.param("entry_ids[0]", lambda m, e, v: m.admin.move([v], "long"), id="move ids"),
    pytest.param("source_id", lambda m, e, v: m.relations.relate(v, "supports", e.id), id="relate source"),
    pytest.param("target_id", lambda m, e, v: m.relations.relate(e.id, "supports", v), id="relate target"),
    pytest.param("relation_id", lambda m, e, v: m.relations.unrelate(v), id="unrelate"),
    pytest.param("artifact", lambda m, e, v: m.artifacts.delete(v), id="delete artifact"),
    pytest.param("entry_ids[1]", lambda m, e, v: m.get_many([e.id, v]), id="get_many"),
    pytest.param("ids[0]", lambda m, e, v: m.short_ids.of([v]), id="short ids"),
]
SCOPE_PATHS: list[Any] = [
    pytest.param(lambda m, e, v: m.write("x", scope=v), id="write"),
    pytest.param(lambda m, e, v: m.write_many([{"content": "x", "scope": v}]), id="write_many"),
    pytest.param(lambda m, e, v: m.retrieve(v), id="retrieve"),
    pytest.param(lambda m, e, v: m.search("x", scope=v), id="search"),
    pytest.param(lambda m, e, v: m.search("x", scope=[USER, v]), id="search several"),
    pytest.param(lambda m, e, v: m.admin.erase(v), id="erase"),
    pytest.param(lambda m, e, v: m.promote(e.id, to=v), id="promote"),
    pytest.param(lambda m, e, v: m.compact([e.id], lambda entries: "x", target_scope=v), id="compact"),
]
TIME_PATHS: list[Any] = [
    pytest.param("created_at", lambda m, e, v: m.write("x", scope=USER, created_at=v), id="write created_at"),
    pytest.param("expires_at", lambda m, e, v: m.write("x", scope=USER, expires_at=v), id="write expires_at"),
    pytest.param("expires_at", lambda m, e, v: m.update(e.id, expires_at=v), id="update expires_at"),
    pytest.param("when", lambda m, e, v: m.entries.invalidate(e.id, v), id="invalidate when"),
    pytest.param("since", lambda m, e, v: m.retrieve(USER, since=v), id="retrieve since"),
    pytest.param("before", lambda m, e, v: m.scoped(USER).retrieve(before=v), id="retrieve before"),
    pytest.param("as_of", lambda m, e, v: m.retrieve(USER, as_of=v), id="retrieve as_of"),
    pytest.param("known_at", lambda m, e, v: m.search("x", scope=USER, known_at=v), id="search known_at"),
    pytest.param(
        "filter", lambda m, e, v: m.search("x", scope=USER, filter={"since": v}), id="search filter since"
    ),
    pytest.param("as_of", lambda m, e, v: m.get(e.id, as_of=v), id="get as_of"),
    pytest.param("known_at", lambda m, e, v: m.get(e.id, known_at=v), id="get known_at"),
]
JSON_PATHS: list[Any] = [
    pytest.param(lambda m, e, v: m.write("x", scope=USER, metadata=v), id="write"),
    pytest.param(
        lambda m, e, v: m.write_many([{"content": "x", "scope": USER, "metadata": v}]), id="write_many"
    ),
    pytest.param(lambda m, e, v: m.update(e.id, metadata=v), id="update"),
    pytest.param(lambda m, e, v: m.promote(e.id, to="org:o", metadata=v), id="promote"),
    pytest.param(lambda m, e, v: m.compact([e.id], lambda entries: "x", metadata=v), id="compact"),
]


@pytest.mark.behaviour("D11")
@cells("value", _cases(HOSTILE_TEXT), shared=True)
@cells("field, path", TEXT_PATHS, shared=True)
async def test_hostile_text_is_refused(plain: Memory, field: str, path: Path, value: Any) -> None:
    await _refused(plain, path, value, field)


@pytest.mark.behaviour("A1", "D11")
@cells(
    "value",
    _cases(
        HOSTILE_TEXT | {"no kind": "ada", "unknown kind": "team:a", "no id": "user:", "no object": "object:t"}
    ),
    shared=True,
)
@cells("path", SCOPE_PATHS, shared=True)
async def test_a_hostile_scope_is_refused(plain: Memory, path: Path, value: Any) -> None:
    await _refused(plain, path, value, "")


@pytest.mark.behaviour("A35", "D9", "D11")
@cells("value", _cases(HOSTILE_TIME), shared=True)
@cells("field, path", TIME_PATHS, shared=True)
async def test_what_is_no_moment_is_refused(plain: Memory, field: str, path: Path, value: Any) -> None:
    await _refused(plain, path, value, field)


@pytest.mark.behaviour("D11")
@cells("value", _cases(HOSTILE_JSON), shared=True)
@cells("path", JSON_PATHS, shared=True)
async def test_metadata_that_is_no_json_object_is_refused(plain: Memory, path: Path, value: Any) -> None:
    await _refused(plain, path, value, "metadata")


@pytest.mark.behaviour("A9")
async def test_metadata_may_nest_thirty_two_deep(memory: Memory) -> None:
    objects: Any = "leaf"
    for _ in range(32):
        objects = {"k": objects}
    lists: Any = []
    for _ in range(30):
        lists = [lists]
    for metadata in (objects, {"k": lists}):
        entry = await memory.write("deep", scope=USER, metadata=metadata)
        read = await memory.get(entry.id)
        assert read is not None
        assert read.metadata == metadata


@pytest.mark.behaviour("D11")
@cells(
    "drafts",
    [
        None,
        5,
        "text",
        [5],
        ["text"],
        [{}],
        [{"content": "x"}],
        [{1: "x"}],
        [{"model": 1, "scope": "user:a"}],
        [None],
    ],
    ids=repr,
    shared=True,
)
async def test_drafts_that_are_none_are_refused(plain: Memory, drafts: Any) -> None:
    await _refused(plain, lambda m, e, v: m.write_many(v), drafts, "")


BAD_DRAFTS: dict[str, tuple[dict[str, Any] | str, str]] = {
    "a text": ("text", r"drafts\[1\]: must be an EntryDraft"),
    "no scope": ({"content": "x"}, r"drafts\[1\]\.scope: is missing"),
    "a number": ({"content": 5, "scope": USER}, r"drafts\[1\]\.content: must be text"),
    "unknown": ({"content": "x", "scope": USER, "foo": 1}, r"drafts\[1\]\.foo: is not an argument"),
    "a mode": ({"content": "x", "scope": USER, "if_exists": "keep"}, r"drafts\[1\]\.if_exists: 'keep' needs"),
    "inside": (
        {"content": "x", "scope": USER, "metadata": {"a": len}},
        r"drafts\[1\]\.metadata\.a: has the type",
    ),
}


@cells("name", BAD_DRAFTS, shared=True)
async def test_a_bad_draft_is_named_by_its_position(plain: Memory, name: str) -> None:
    draft, problem = BAD_DRAFTS[name]
    with watching(plain) as calls, pytest.raises(InvalidInput, match=f"^{problem}") as caught:
        await plain.write_many([{"content": "good", "scope": USER}, draft])  # type: ignore[list-item]
    assert caught.value.field.startswith("drafts[1]")
    assert calls == []


async def test_a_bad_option_of_the_whole_call_names_no_draft(plain: Memory) -> None:
    with pytest.raises(InvalidInput, match=r"^if_exists: invalid"):
        await plain.write_many([{"content": "x"}], if_exists="both")  # type: ignore[arg-type]


@pytest.mark.behaviour("D11")
@cells("field", ["tags", "types"], shared=True)
@cells("value", [5, "text", b"text", {"a": 1}, [None], [["a"]]], ids=repr, shared=True)
async def test_filters_that_are_no_lists_are_refused(plain: Memory, field: str, value: Any) -> None:
    await _refused(plain, lambda m, e, v: m.retrieve(USER, **{field: v}), value, field)
    await _refused(plain, lambda m, e, v: m.search("x", scope=USER, boost={field: v}), value, "boost")  # type: ignore[call-overload]
    await _refused(plain, lambda m, e, v: m.search("x", scope=USER, filter={field: v}), value, "filter")


@pytest.mark.behaviour("D68")
@cells(
    "given",
    [
        "tags",
        ["tags"],
        5,
        {"tag": ["a"]},
        {"tags": ["a"], "types ": ["user"]},
        {1: ["a"]},
        {"scopes": "user:a"},
    ],
    ids=repr,
    shared=True,
)
async def test_what_a_filter_or_a_boost_does_not_know_is_refused(plain: Memory, given: Any) -> None:
    await _refused(plain, lambda m, e, v: m.search("x", scope=USER, filter=v), given, "filter")
    await _refused(plain, lambda m, e, v: m.search("x", scope=USER, boost=v), given, "boost")


@pytest.mark.behaviour("D68")
@cells(
    "field, value",
    [
        *[
            ("tags", ["a", ""]),
            ("tags", "a"),
            ("any_tags", ["a", ""]),
            ("any_tags", "a"),
            ("types", ["user", "note"]),
            ("types", "user"),
        ],
        *[("since", "today"), ("before", "today"), ("metadata", "a")],
    ],
    shared=True,
)
async def test_what_is_wrong_within_a_filter_is_named_so(plain: Memory, field: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        await plain.search("x", scope=USER, filter={field: value})
    assert refused.value.field == f"filter.{field}"


NO_NUMBERS: list[Any] = [float("nan"), float("inf"), 10**5000, True, "0.5", None, [0.5], 1j]
NUMBERS: dict[str, list[Any]] = {
    "min_relevance": [-0.001, 1.001, *(one for one in NO_NUMBERS if one is not None)],
    "half_life": [0, -1, timedelta(0), timedelta(days=-1), *(one for one in NO_NUMBERS if one is not None)],
    "decay_floor": [0, 1, 1.5, -0.5, *(one for one in NO_NUMBERS if one is not None)],
    "intent": [0, 1, "no", None],
    "age_decay": [0, 1, 90, "no", None],
}


@pytest.mark.parametrize("field", NUMBERS)
async def test_how_much_something_counts_in_a_search_is_refused_where_it_makes_no_sense(
    plain: Memory, field: str
) -> None:
    for value in NUMBERS[field]:
        await _refused(plain, lambda m, e, v: m.search("x", scope=USER, **{field: v}), value, field)
    for given in ({"half_life": 30}, {"decay_floor": 0.4}):
        await _refused(
            plain, lambda m, e, v: m.search("x", scope=USER, age_decay=False, **v), given, next(iter(given))
        )


async def test_a_way_of_searching_that_there_is_not_is_refused(plain: Memory) -> None:
    await _refused(plain, lambda m, e, v: m.search("x", scope=USER, mode=v), "semantic", "mode")


async def test_a_query_may_be_as_long_as_a_text_and_no_longer(plain: Memory) -> None:
    assert await plain.search("x" * 65_536, scope=USER) == []
    await _refused(plain, lambda m, e, v: m.search(v, scope=USER), "x" * 65_537, "query")


@pytest.mark.behaviour("A2")
@pytest.mark.parametrize("kind", ["session", "user", "workspace", "org"])
def test_a_scopes_id_may_have_512_bytes_and_no_more(kind: str) -> None:
    assert Scope.of(kind, "é" * 256).id == "é" * 256
    for bad in ("é" * 256 + "x", "", "\x00", "\ud800"):
        with pytest.raises(InvalidInput, match="id"):
            Scope.of(kind, bad)


async def test_every_refusal_is_an_error_of_ours_and_a_value_error(plain: Memory) -> None:
    with pytest.raises(MemoryTiersError):
        await plain.write("", scope=USER)
    with pytest.raises(ValueError, match="content"):
        await plain.write("", scope=USER)


@pytest.mark.behaviour("A9", "D11")
async def test_a_draft_changed_after_it_was_checked_is_checked_again(plain: Memory) -> None:
    def changed(change: Callable[[EntryDraft], object]) -> EntryDraft:
        draft = EntryDraft(scope=USER, content="fine", metadata={"a": [1]}, tags=["t"])
        change(draft)
        return draft

    for change in (
        lambda d: d.metadata.update(a=float("nan")),
        lambda d: d.tags.append("\x00"),
        lambda d: d.metadata["a"].append(2**63),
    ):
        await _refused(plain, lambda m, e, v: m.write_many([v]), changed(change), "")
    draft = changed(lambda d: None)
    (entry,) = await plain.write_many([draft])
    draft.metadata["a"].append("late")
    draft.tags.append("late")
    read = await plain.get(entry.id)
    assert read is not None
    assert (read.metadata, read.tags) == ({"a": [1]}, ["t"])


@pytest.mark.behaviour("A37", "A63", "A84")
@pytest.mark.parametrize("wrong", ["no", 0, 1, None])
async def test_a_switch_is_on_or_off_and_nothing_is_deleted_for_another_word(
    memory: Memory, wrong: Any
) -> None:
    first = await memory.write("kept", scope=SESSION)
    with pytest.raises(InvalidInput, match="delete_original: must be True or False"):
        await memory.promote(first.id, USER, delete_original=wrong)
    with pytest.raises(InvalidInput, match="delete_sources: must be True or False"):
        await memory.compact([first.id], lambda entries: "made", delete_sources=wrong)
    with pytest.raises(InvalidInput, match="include_narrower: must be True or False"):
        await memory.retrieve(USER, include_narrower=wrong)
    with pytest.raises(InvalidInput, match="include_narrower: must be True or False"):
        await memory.search("kept", scope=USER, include_narrower=wrong)
    with pytest.raises(InvalidInput, match="explain: must be True or False"):
        await memory.search("kept", scope=USER, explain=wrong)
    session = memory.session("switch")
    with pytest.raises(InvalidInput, match="in_history: must be True or False"):
        await session.append({"role": "user", "content": "hello"}, in_history=wrong)
    with pytest.raises(InvalidInput, match="summaries: must be True or False"):
        await session.history(summaries=wrong)
    with pytest.raises(InvalidInput, match="repair: must be True or False"):
        await memory.admin.audit(repair=wrong)
    assert [entry.content for entry in await memory.retrieve(SESSION)] == ["kept"]
    assert await memory.retrieve(USER) == []


async def test_an_error_names_the_argument_of_its_call(memory: Memory) -> None:
    entry = await memory.write("kept", scope=USER)
    with pytest.raises(InvalidInput, match=r"^to: invalid to: 'attic'; choose from short, mid, long"):
        await memory.admin.move([entry.id], to="attic")
    with pytest.raises(InvalidInput, match=r"^entry_ids: is missing\. Pass the ids of entries"):
        await memory.get_many()
    with pytest.raises(Forbidden, match=r"^short_ids\.of: concerns all scopes"):
        await memory.restrict([USER]).short_ids.of([entry.id])


@pytest.mark.behaviour("A1", "A2", "A38")
@pytest.mark.parametrize("wrong", [5, None, b"ada"], ids=repr)
async def test_what_is_no_id_of_a_scope_is_refused_by_the_name_of_that_id(memory: Memory, wrong: Any) -> None:
    for kind in ("session", "user", "workspace", "org"):
        with pytest.raises(InvalidInput, match=f"^{kind}_id: must be text"):
            getattr(Scope, kind)(wrong)
    with pytest.raises(InvalidInput, match=r"^object_id: must be text"):
        Scope.object("ticket", wrong)
    with pytest.raises(InvalidInput, match=r"^object_type: "):
        Scope.object(wrong, "t1")
    with pytest.raises(InvalidInput, match=r"^scope: must be text"):
        Scope.parse(wrong)
    if wrong is not None:
        with pytest.raises(InvalidInput, match=r"^session_id: must be text"):
            await memory.retrieve(USER, include_narrower=True, session_id=wrong)


class Text(str):
    """A text of a subclass, such as an enum's or NumPy's."""


class Real(float):
    """A number of a subclass, such as NumPy's."""


class Stamp(datetime):
    """A moment of a subclass, such as pandas' or pendulum's."""


class Length(timedelta):
    """A duration of a subclass, such as pandas'."""


async def test_values_of_subclasses_become_plain_ones(memory: Memory) -> None:
    session = memory.session(Text("s1"), user=Text("ada"))
    stamp = Stamp(2025, 1, 31, 9, 30, tzinfo=timezone(timedelta(hours=2)))
    given: dict[str, Any] = {
        "scope": Text("user:ada"),
        "key": Text("k"),
        "tags": [Text("t")],
        "title": Text("T"),
    }
    json: dict[str, Any] = {Text("a"): [Text("b"), Real(1.5)]}
    results: list[Any] = [
        await memory.write(
            Text("tea"), **given, metadata=json, data=json, created_at=stamp, expires_at=Length(days=1)
        ),
        *await memory.write_many([{**given, "key": Text("l"), "content": Text("tea"), "expires_at": stamp}]),
        await memory.update(scope=Text("user:ada"), key=Text("k"), content=Text("Tea"), metadata=json),
        await session.append({"role": "user", "content": Text("tea"), "metadata": json, "at": stamp}),
        await session.tasks.save(Text("t1"), title=Text("T"), metadata=json),
        await memory.documents.put(Text("user:ada"), Text("d"), json, metadata=json),
    ]
    for result in results:
        assert __name__.encode() not in pickle.dumps(result), result  # pickles name all classes
    assert results[0].created_at == stamp
