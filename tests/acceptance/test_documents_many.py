"""Documents: puts that keep or change nothing, many puts in one call, and lists by the
last put.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from memory import (
    Conflict,
    DocumentDelete,
    DocumentInfo,
    DocumentPut,
    Forbidden,
    InvalidInput,
    Memory,
    PartialWrite,
    VersionConflict,
)
from tests.acceptance.support import HOUR, OTHER_USER, SESSION, USER, Clock, watching

LARGE = "x" * 300_000


async def value_of(memory: Memory, key: str) -> Any:
    found = await memory.documents.get(USER, key)
    return None if found is None else found.value


async def test_keep_leaves_and_returns_the_document_that_is_there(memory: Memory, clock: Clock) -> None:
    documents = memory.documents
    first = await documents.put(USER, "k", 1, metadata={"of": "ada"}, if_exists="keep")
    clock.advance(HOUR)
    for other in (2, LARGE):
        assert await documents.put(USER, "k", other, if_exists="keep") == first
    assert await value_of(memory, "k") == 1
    await documents.delete(USER, "k")
    assert (await documents.put(USER, "k", 3, if_exists="keep")).created_at > first.created_at
    await documents.put(USER, "soon", 1, expires_in=HOUR)
    clock.advance(2 * HOUR)
    await documents.put(USER, "soon", 2, if_exists="keep")
    assert await value_of(memory, "soon") == 2
    with pytest.raises(InvalidInput, match="expected_version: cannot be combined with if_exists='keep'"):
        await documents.put(USER, "k", 4, if_exists="keep", expected_version=first.version)


async def test_groups_keep_documents_too(memory: Memory) -> None:
    first = await memory.documents.put(USER, "there", 1)
    group: list[DocumentPut | DocumentDelete] = [
        DocumentPut(USER, "there", 2, if_exists="keep"),
        DocumentPut(USER, "new", 3, if_exists="keep"),
        DocumentDelete(USER, "none"),
    ]
    for _ in range(2):
        there, new, none = await memory.documents.apply(group, request_id="r1")
        assert there == first
        assert new is not None
        assert none is None
    assert await memory.documents.apply(group) == [first, new, None]


async def test_a_repeat_returns_the_document_that_was_kept(memory: Memory) -> None:
    documents = memory.documents
    first = await documents.put(USER, "there", {"a": "long"}, expires_in=HOUR, refresh_on_read=True)
    puts = [DocumentPut(USER, "there", b"2", if_exists="keep"), DocumentPut(USER, "new", 3)]
    for _ in range(2):
        assert await documents.put(USER, "there", b"2", if_exists="keep", request_id="r1") == first
        assert (await documents.put_many(puts, request_id="r2"))[0] == first
        assert (await documents.apply(puts, request_id="r3"))[0] == first


async def test_a_put_of_what_is_there_makes_no_version(memory: Memory, clock: Clock) -> None:
    documents = memory.documents
    for number, value in enumerate([1, {"a": [1, None]}, "text", b"bytes", None]):
        key = f"k{number}"
        first = await documents.put(USER, key, value, metadata={"n": 1})
        clock.advance(HOUR)
        assert await documents.put(USER, key, value, metadata={"n": 1}) == first
        same = await documents.put(USER, key, value, metadata={"n": 1}, expected_version=first.version)
        assert same == first
        with pytest.raises(Conflict):
            await documents.put(USER, key, value, metadata={"n": 1}, if_exists="error")
        with pytest.raises(VersionConflict):
            await documents.put(USER, key, value, metadata={"n": 1}, expected_version="0000000000001")
        assert (await documents.put(USER, key, value)).version != first.version
    for key, before, after in (("bool", 1, True), ("float", 1, 1.0), ("form", "a", b"a"), ("null", None, 0)):
        first = await documents.put(USER, key, before)
        assert (await documents.put(USER, key, after)).version != first.version
        assert type(await value_of(memory, key)) is type(after)
    lasting = await documents.put(USER, "lasting", 1, expires_in=HOUR)
    assert (await documents.put(USER, "lasting", 1, expires_in=HOUR)).expires_at != lasting.expires_at
    assert (await documents.put(USER, "lasting", 1)).expires_at is None


async def test_many_documents_are_put_by_few_calls(memory: Memory) -> None:
    first = await memory.documents.put(USER, "k3", 3)
    puts = [DocumentPut(USER, f"k{n}", n, metadata={"n": n}) for n in range(100)]
    puts[3] = DocumentPut(USER, "k3", "other", if_exists="keep")
    puts[50] = DocumentPut(SESSION, "k50", LARGE)
    puts[60] = DocumentPut(OTHER_USER, "k60", b"bytes", expires_in=HOUR)
    with watching(memory) as calls:
        infos = await memory.documents.put_many(puts)
    assert len(calls) < 20
    assert [(one.scope, one.key) for one in infos] == [(str(one.scope), one.key) for one in puts]
    assert infos[3] == first
    found = await memory.documents.get_many(USER, [f"k{n}" for n in range(100)])
    assert [one and one.value for one in found] == [None if n in (50, 60) else n for n in range(100)]
    large = await memory.documents.get(SESSION, "k50")
    assert large is not None
    assert large.value == LARGE
    assert await memory.documents.put_many(puts[:50]) == infos[:50]
    assert await memory.documents.put_many([]) == []


async def test_puts_that_conflict_are_named_and_the_others_are_stored(memory: Memory) -> None:
    first = await memory.documents.put(USER, "a", 1)
    puts = [
        DocumentPut(USER, "a", 2, if_exists="error"),
        DocumentPut(USER, "b", 2, expected_version=first.version),
        DocumentPut(USER, "c", 2, if_exists="error"),
        DocumentPut(USER, "d", LARGE, expected_version=first.version),
    ]
    with pytest.raises(PartialWrite) as refused:
        await memory.documents.put_many(puts)
    assert set(refused.value.conflicts) == {0, 1, 3}
    assert isinstance(refused.value.conflicts[1], VersionConflict)
    assert refused.value.written[2].key == "c"
    assert [await value_of(memory, key) for key in "abcd"] == [1, None, 2, None]


async def test_wrong_puts_are_refused_before_any_is_stored(memory: Memory) -> None:
    good = DocumentPut(USER, "a", 1)
    for wrong, said in (
        ([good, DocumentPut(USER, "", 1)], r"puts\[1\]"),
        ([good, DocumentDelete(USER, "b")], r"puts\[1\]: must be a DocumentPut, not DocumentDelete"),
        ([good, good], "puts: name the key 'a' twice"),
        ([DocumentPut(USER, f"k{n}", n) for n in range(1_001)], "puts"),
    ):
        with pytest.raises(InvalidInput, match=said):
            await memory.documents.put_many(wrong)  # type: ignore[arg-type]
    assert await value_of(memory, "a") is None


async def test_a_repeat_of_many_puts_changes_nothing(memory: Memory) -> None:
    puts = [DocumentPut(USER, f"k{n}", n) for n in range(5)]
    first = await memory.documents.put_many(puts, request_id="r1")
    await memory.documents.put(USER, "k1", "later")
    assert await memory.documents.put_many(puts, request_id="r1") == first
    assert await value_of(memory, "k1") == "later"
    with pytest.raises(Conflict):
        await memory.documents.put_many(puts[:2], request_id="r1")


async def test_a_view_puts_only_where_it_may(memory: Memory) -> None:
    view = memory.restrict(scopes=[USER])
    await view.documents.put_many([DocumentPut(USER, "a", 1)])
    with pytest.raises(Exception, match="scope"):
        await view.documents.put_many([DocumentPut(USER, "b", 1), DocumentPut(OTHER_USER, "b", 1)])
    assert await value_of(memory, "b") is None


# -- edits ---------------------------------------------------------------------------------


async def edit(memory: Memory, change: Callable[[Any], Any]) -> DocumentInfo:
    return await memory.documents.edit(USER, "k", change)


async def test_edits_at_once_lose_nothing(memory: Memory) -> None:
    def add(number: int) -> Callable[[Any], Any]:
        return lambda found: [*(found.value if found else []), number]

    await asyncio.gather(*(edit(memory, add(n)) for n in range(20)))
    assert sorted(await value_of(memory, "k")) == list(range(20))


async def test_an_edit_keeps_metadata_and_expiry(memory: Memory, clock: Clock) -> None:
    documents = memory.documents
    first = await documents.put(USER, "k", 1, metadata={"of": "ada"}, expires_in=HOUR, refresh_on_read=True)
    clock.advance(HOUR / 2)
    made = await edit(memory, lambda found: found.value + 1)
    found = await documents.get(USER, "k")
    assert found is not None
    assert (found.value, found.metadata, found.created_at) == (2, {"of": "ada"}, first.created_at)
    assert made.lifetime == HOUR
    assert made.expires_at is not None
    assert first.expires_at is not None
    assert made.expires_at - first.expires_at >= HOUR / 2, "the edit has read it"
    clock.advance(3 * HOUR)
    assert (await edit(memory, lambda found: found is None)).expires_at is None
    assert await value_of(memory, "k") is True
    same = await edit(memory, lambda found: True)
    assert same == await edit(memory, lambda found: found.value)


async def test_an_edit_that_fails_changes_nothing(memory: Memory) -> None:
    await memory.documents.put(USER, "k", 1)
    changes: list[tuple[Any, type[Exception], str]] = [
        (lambda found: found.value / 0, ZeroDivisionError, "division"),
        (lambda found: {1, 2}, InvalidInput, "value: is a set"),
        ({"a": 1}, InvalidInput, "change: must be a function of the document, not dict"),
    ]
    for change, error, problem in changes:
        with pytest.raises(error, match=problem):
            await edit(memory, change)
    assert await value_of(memory, "k") == 1
    with pytest.raises(Forbidden):
        await edit(memory.restrict(role="reader"), lambda found: 2)


# -- iteration -----------------------------------------------------------------------------


async def test_an_iteration_begins_with_few_documents_and_reads_more_each_time(memory: Memory) -> None:
    await memory.documents.put_many([DocumentPut(USER, f"k{n:03}", n) for n in range(80)])
    read = 0
    with watching(memory) as calls:
        async for document in memory.documents.iterate(USER, at_first=1):
            read += 1
            if document.key == "k000":
                assert len(calls) == 1
    assert read == 80
    assert len(calls) == 4
    for wrong in (0, 1_001, "many"):
        with pytest.raises(InvalidInput, match="at_first: must be"):
            async for _ in memory.documents.iterate(USER, at_first=wrong):  # type: ignore[arg-type]
                pass
