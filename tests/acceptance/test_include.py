"""`include`: results without some of the parts of entries."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from memory import Entry, FoundMessage, InvalidInput, Memory
from tests.acceptance.support import USER

PARTS = ("content", "metadata", "data")
WHOLE: dict[str, Any] = {"title": "Tea", "tags": ["t"], "metadata": {"m": 1}, "data": {"price": 3}}


async def _one(memory: Memory, entry: Entry, **given: Any) -> list[Entry]:
    found = await memory.get(entry.id, **given)
    return [] if found is None else [found]


READS: dict[str, Callable[..., Awaitable[Any]]] = {
    "get": _one,
    "get of the past": lambda memory, entry, **given: _one(memory, entry, as_of=entry.created_at, **given),
    "get_many": lambda memory, entry, **given: memory.get_many([entry.id], **given),
    "get_many by key": lambda memory, entry, **given: memory.scoped(USER).get_many(keys=["k"], **given),
    "retrieve": lambda memory, entry, **given: memory.retrieve(USER, **given),
    "browse": lambda memory, entry, **given: memory.browse(filter={"data.price": 3}, **given),
    "a view": lambda memory, entry, **given: memory.restrict([USER]).scoped(USER).browse(**given),
    "history": lambda memory, entry, **given: memory.entries.history(entry.id, **given),
    "search": lambda memory, entry, **given: memory.search(
        "tea", scope=USER, filter={"data.price": 3, "metadata": {"m": 1}}, **given
    ),
    "search of all": lambda memory, entry, **given: memory.scoped(USER).search(" ", **given),
}


async def _iterated(memory: Memory, entry: Entry, **given: Any) -> list[Entry]:
    return [one async for one in memory.entries.iterate(USER, **given)]


READS["iterate"] = _iterated


@pytest.mark.parametrize("include", [(), ["data"], ("metadata", "content"), PARTS])
async def test_every_read_has_the_included_parts_and_all_other_fields(
    memory: Memory, include: tuple[Any, ...]
) -> None:
    entry = await memory.write("green tea", scope=USER, key="k", **WHOLE)
    whole = entry.to_dict()
    missing = [part for part in PARTS if part not in include]
    for how, read in READS.items():
        [found] = [getattr(one, "entry", one) for one in await read(memory, entry, include=include)]
        shown = {name: value for name, value in whole.items() if name not in missing}
        assert found.to_dict() == shown, how
        assert found.left_out == tuple(missing), how
        [found] = [getattr(one, "entry", one) for one in await read(memory, entry, include=None)]
        assert found == entry, how


async def test_a_part_that_was_left_out_is_not_taken_for_an_empty_one(memory: Memory) -> None:
    entry = await memory.write("green tea", scope=USER, **WHOLE)
    empty = await memory.write(scope=USER, title="Tea")
    found = await memory.get(entry.id, include=["content"])
    assert found is not None
    assert found != entry
    for one in (found, found.model_copy(), copy.deepcopy(found), pickle.loads(pickle.dumps(found))):  # noqa: S301
        assert one == found
        for part in ("data", "metadata"):
            with pytest.raises(AttributeError, match=f"'{part}', because the call left it out.*include="):
                getattr(one, part)
        with pytest.raises(AttributeError, match="'metadata', because"):
            _ = one.confidence
        assert "left it out" not in repr(one)
        assert (one.content, one.left_out) == (entry.content, ("metadata", "data"))
    assert (empty.data, empty.metadata, empty.left_out) == (None, {}, ())
    [hit] = await memory.search("green", scope=USER, include=[])
    with pytest.raises(AttributeError, match="'content', because"):
        _ = hit.content
    await memory.update(entry.id, tags=["t", "u"])
    assert (await memory.get(entry.id) or empty).data == WHOLE["data"]


@pytest.mark.parametrize(
    ("include", "problem"),
    [
        ("data", "include: must be a list, not str"),
        (
            ["payload"],
            "include: invalid include: 'payload'; choose from content, metadata, data; did you mean 'metadata'",
        ),
        (["documents"], "did you mean 'content'"),
        (["dat"], "did you mean 'data'"),
        (["title"], "include: 'title' is in every result. Name only parts: content, metadata, data"),
        ([None], "include: invalid include: a NoneType"),
        (3, "include: must be a list"),
    ],
)
async def test_other_names_are_refused(plain: Memory, include: Any, problem: str) -> None:
    entry = await plain.write("green tea", scope=USER, key="k", **WHOLE)
    for read in READS.values():
        with pytest.raises(InvalidInput, match=problem):
            await read(plain, entry, include=include)


async def test_messages_are_whole_and_pages_go_on_with_other_parts(memory: Memory) -> None:
    await memory.session("s1", user=USER.id).append({"role": "user", "content": "green tea, said Ada"})
    entries = [await memory.write(f"green tea {n}", scope=USER, data={"n": n}) for n in range(3)]
    found = await memory.search("green tea", scope=USER, messages=True, include=[])
    assert [hit.content for hit in found if isinstance(hit, FoundMessage)] == ["green tea, said Ada"]
    first = await memory.browse(USER, limit=2, include=[])
    rest = await memory.browse(USER, limit=2, cursor=first.cursor, include=["data"])
    assert [one.id for one in (*first, *rest)] == [one.id for one in reversed(entries)]
    assert rest[0].data == {"n": 0}


async def test_gates_and_advisors_see_whole_entries(config: dict[str, Any]) -> None:
    seen: list[Any] = []

    def gate(entry: Entry) -> bool:
        seen.append((entry.content, entry.data))
        return True

    def order(question: str, texts: Any) -> list[float]:
        seen.append(list(texts))
        return [1.0] * len(texts)

    async with Memory(config, recall_gate=gate, reranker=order) as memory:
        for content in ("green tea", "green paint"):
            await memory.write(content, scope=USER, **WHOLE)
        hits = await memory.search("green", scope=USER, rerank=True, include=[])
        assert [hit.entry.left_out for hit in hits] == [PARTS, PARTS]
    assert ("green tea", {"price": 3}) in seen
    assert any(isinstance(one, list) and "green tea" in str(one) for one in seen)
