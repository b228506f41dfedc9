"""Vectors that callers bring, and entries that no search finds."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from memory import Conflict, InvalidInput, Memory, Scope
from tests.acceptance.support import SESSION, USER, WORKSPACE, Clock

EAST, NORTH, UP = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)


def embed(texts: Sequence[str]) -> list[list[float]]:
    """Everything that mentions tea lies to the east, and all other texts to the north."""
    return [list(EAST if "tea" in text else NORTH) for text in texts]


@pytest.fixture
async def memory(config: dict[str, Any], clock: Clock) -> AsyncIterator[Memory]:
    async with Memory(config, embedder=embed, clock=clock) as memory:
        yield memory


async def near(memory: Memory, vector: Any, scope: Scope = USER, **options: Any) -> list[str]:
    """The ids of the entries in about the direction of a vector, best first."""
    found = await memory.search("", scope=scope, vector=vector, **options)
    return [hit.id for hit in found if hit.score is not None and hit.score > 0.6]


async def nearest(memory: Memory, vector: Any, **options: Any) -> str:
    return (await near(memory, vector, **options))[0]


async def test_a_search_by_a_vector_finds_the_entries_nearest_to_it(memory: Memory) -> None:
    tea = await memory.write("tea", scope=USER)
    rum = await memory.write("rum", scope=USER)
    own = await memory.write("tea for two", scope=USER, vector=[0, 0, 7])
    assert await nearest(memory, EAST) == tea.id
    assert await nearest(memory, NORTH) == rum.id
    assert await nearest(memory, UP) == own.id
    assert await nearest(memory, UP, mode="semantic") == own.id
    assert (await memory.search("tea", scope=USER, vector=UP, mode="semantic"))[0].id == own.id
    assert {hit.id for hit in await memory.search("rum", scope=USER, vector=UP)} >= {rum.id, own.id}


@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
async def test_a_vector_alone_orders_by_the_cosine(memory: Memory, mode: Any) -> None:
    """Neither long texts, neighbours nor words change the order; opposites come last."""
    angles = [0, 20, 60, 90, 120, 180]
    ids = {}
    for number, angle in enumerate(reversed(angles)):
        turned = (math.cos(math.radians(angle)), math.sin(math.radians(angle)), 0.0)
        entry = await memory.write(
            " ".join(["word"] * (1 + 50 * number % 170)),
            scope=USER,
            vector=turned,
            conversation_id="c",
            number_in_conversation=number,
        )
        ids[angle] = entry.id
    await memory.write("", title="-", scope=USER, searchable=False)
    query = "" if mode == "hybrid" else "word"
    found = await memory.search(query, scope=USER, vector=EAST, mode=mode, age_decay=False)
    assert [hit.id for hit in found] == [ids[angle] for angle in angles]
    expected = [(1 + math.cos(math.radians(angle))) / 2 for angle in angles]
    assert [hit.score for hit in found] == pytest.approx(expected, abs=1e-5)


async def test_an_entry_without_text_gets_no_vector(memory: Memory) -> None:
    """Also from an embedder that has a vector for an empty text."""
    await memory.write(scope=USER, data={"drink": "chai"})
    await memory.write("tea", scope=USER, searchable=False)
    assert list(await memory.search("", scope=USER, vector=NORTH)) == []


async def test_an_entry_of_data_alone_is_found_by_its_vector(memory: Memory) -> None:
    own = await memory.write(scope=USER, data={"drink": "chai"}, vector=UP)
    await memory.write("tea", scope=USER)
    assert await nearest(memory, UP) == own.id


def make_none(texts: Sequence[str]) -> list[list[float]]:
    return [[0.0] * 3 for _ in texts]


async def test_a_memory_may_have_vectors_of_callers_alone(config: dict[str, Any], clock: Clock) -> None:
    async with Memory(config, embedder=make_none, clock=clock) as memory:
        own = await memory.write("tea", scope=USER, vector=UP)
        text = await memory.write("rum", scope=USER)
        assert await near(memory, UP) == [own.id]
        assert [hit.id for hit in await memory.search("rum", scope=USER)] == [text.id]
        assert [hit.id for hit in await memory.search("rum", scope=USER, mode="semantic")] == []


async def test_vectors_of_every_kind_are_taken(memory: Memory) -> None:
    import array

    import numpy as np

    for vector in (
        [0, 0, 1],
        (0.0, 0.0, 1e308),
        np.array([0, 0, 3], np.float32),
        array.array("f", [0, 0, 1]),
        np.array([0, 0, 1], "<f4").tobytes(),
        [0, 0, 1e-320],
    ):
        entry = await memory.write("tea", scope=USER, vector=vector)
        assert await near(memory, vector) == [entry.id]
        await memory.delete(entry.id)


@pytest.mark.parametrize(
    ("vector", "problem"),
    [
        ([0, 1], "vector: has 2 dimensions, and the embedder .* has 3"),
        ([0, 0, math.nan], "vector: holds a number that is not finite"),
        ([0, 0, math.inf], "vector: holds a number that is not finite"),
        ([0, 0, 10**400], "vector: holds a number that is not finite"),
        ([0, 0, 0], "vector: is empty or all zero"),
        ([], "vector: is empty or all zero"),
        ([0, "1", 0], r"vector\[1\]: must be a number, not str"),
        ([0, True, 0], r"vector\[1\]: must be a number, not bool"),
        (b"12345", "vector: has a number of bytes that is no multiple of 4"),
        ("text", "vector: must be a list of numbers"),
        (3, "vector: must be a list of numbers"),
    ],
)
async def test_other_vectors_are_refused(memory: Memory, vector: Any, problem: str) -> None:
    entry = await memory.write("tea", scope=USER)
    for refused in (
        memory.write("tea", scope=USER, vector=vector),
        memory.write_many(
            [{"content": "rum", "scope": USER}, {"content": "x", "scope": USER, "vector": vector}]
        ),
        memory.update(entry.id, vector=vector),
        memory.search("tea", scope=USER, vector=vector),
    ):
        with pytest.raises(InvalidInput, match=problem):
            await refused
    assert [one.version for one in await memory.browse()] == [entry.version]


async def test_a_vector_without_an_embedder_is_refused(config: dict[str, Any], clock: Clock) -> None:
    async with Memory(config, clock=clock) as memory:
        for refused in (
            memory.write("tea", scope=USER, vector=UP),
            memory.search("", scope=USER, vector=UP),
        ):
            with pytest.raises(InvalidInput, match="vector: needs an embedder, and none is configured"):
                await refused


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"mode": "lexical"}, "vector: is not used with mode='lexical'"),
        ({"expand": True}, "expand: searches other wordings"),
        ({"rerank": True}, "rerank: needs a query"),
    ],
)
async def test_a_search_refuses_what_its_vector_leaves_unused(
    memory: Memory, given: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem):
        await memory.search("", scope=USER, vector=UP, **given)


async def test_a_vector_lasts_until_the_text_changes(memory: Memory) -> None:
    entry = await memory.write("tea", scope=USER, vector=UP)
    assert await near(memory, UP) == [entry.id]
    await memory.update(entry.id, metadata={"a": 1}, tags=["hot"], content="tea", data=[1])
    assert await near(memory, UP) == [entry.id]
    await memory.update(entry.id, content="tea with milk")
    assert await near(memory, UP) == []
    assert await near(memory, EAST) == [entry.id]
    await memory.update(entry.id, content="chai", vector=UP)
    assert await near(memory, UP) == [entry.id]
    await memory.update(entry.id, vector=NORTH)
    assert await near(memory, NORTH) == [entry.id]
    await memory.update(entry.id, title="tea")
    assert await near(memory, EAST) == [entry.id]
    await memory.update(entry.id, vector=UP)
    await memory.update(entry.id, vector=None)
    assert await near(memory, EAST) == [entry.id]


async def test_keyed_writes_compare_vectors(memory: Memory) -> None:
    async def write(if_exists: Any = "error", **given: Any) -> Any:
        return await memory.write("tea", scope=USER, key="k", if_exists=if_exists, **given)

    first = await write(vector=UP)
    assert await write(vector=[0, 0, 2]) == first
    for other in (EAST, None):
        with pytest.raises(Conflict):
            await write(vector=other)
    assert (await write("replace", vector=UP)).version == first.version
    assert (await write("update", vector=UP)).version == first.version
    assert (await write("update", vector=NORTH)).version > first.version
    assert await near(memory, NORTH) == [first.id]
    await write("replace")
    assert await near(memory, EAST) == [first.id]


async def test_copies_keep_the_vector_of_their_text(memory: Memory) -> None:
    entry = await memory.write("tea", scope=SESSION, vector=UP)
    copy = await memory.promote(entry.id, USER)
    assert await near(memory, UP) == [copy.id]
    await memory.admin.move([copy.id], "long")
    assert await near(memory, UP) == [copy.id]
    other = await memory.promote(entry.id, WORKSPACE, content="rum")
    assert await near(memory, NORTH, scope=WORKSPACE) == [other.id]


async def test_a_gate_that_changes_the_text_drops_its_vector(config: dict[str, Any], clock: Clock) -> None:
    async with Memory(
        config, embedder=embed, clock=clock, write_gate=lambda draft, provenance: {"content": "rum"}
    ) as memory:
        entry = await memory.write("tea", scope=USER, vector=UP)
        assert await near(memory, NORTH) == [entry.id]
        await memory.update(entry.id, content="tea", vector=UP)
        assert await near(memory, NORTH) == [entry.id]


async def test_a_revert_takes_back_the_vector_of_a_source(memory: Memory) -> None:
    entry = await memory.write("tea", scope=USER, vector=UP, source="good")
    await memory.update(entry.id, vector=NORTH, source="bad")
    await memory.admin.block_source(source="bad", reason="wrong")
    await memory.admin.revert_source(source="bad")
    assert await near(memory, UP) == [entry.id]


async def test_exports_carry_vectors_of_callers(memory: Memory, clock: Clock) -> None:
    own = await memory.write("tea", scope=USER, vector=UP)
    await memory.write("rum", scope=USER)
    lines = [line async for line in memory.admin.export()]
    assert ["vector" in line for line in lines] == [True, False]
    there = memory.for_tenant("there")
    await there.admin.import_(lines)
    assert len(await near(there, UP)) == 1
    async with Memory("memory://", embedder=embed, clock=clock) as exact:
        await exact.admin.import_(lines, same_ids=True)
        assert await near(exact, UP) == [own.id]
        assert [line async for line in exact.admin.export()] == lines


def wider(texts: Sequence[str]) -> list[list[float]]:
    return [[0.0, 0.0, 1.0, 1.0] for _ in texts]


def other(texts: Sequence[str]) -> list[list[float]]:
    return [list(NORTH) for _ in texts]


async def test_a_reindex_keeps_vectors_whose_length_fits(config: dict[str, Any], clock: Clock) -> None:
    if set(config["tiers"].values()) == {"memory://"}:
        pytest.skip("this store forgets everything when it is closed")
    async with Memory(config, embedder=embed, clock=clock) as memory:
        own = await memory.write("tea", scope=USER, vector=UP)
        tea = await memory.write("tea", scope=USER)
        kept = await memory.write("tea", scope=USER, vector=UP)
        await memory.update(kept.id, vector=EAST)
    async with await Memory(config, embedder=other, clock=clock).open(reindex=True) as memory:
        assert (await memory.admin.reindex()).ended
        assert await near(memory, UP) == [own.id]
        assert await near(memory, NORTH) == [tea.id]
    async with await Memory(config, embedder=wider, clock=clock).open(reindex=True) as memory:
        assert (await memory.admin.reindex()).ended
        assert set(await near(memory, [0, 0, 1, 1])) == {own.id, tea.id, kept.id}


async def test_a_memory_without_an_embedder_leaves_no_vector_of_an_earlier_text(
    config: dict[str, Any], clock: Clock
) -> None:
    """It keeps all other vectors, and a reindex makes those that it could not make."""
    if set(config["tiers"].values()) == {"memory://"}:
        pytest.skip("this store forgets everything when it is closed")
    async with Memory(config, embedder=embed, clock=clock) as memory:
        own = [
            await memory.write(f"rum {name}", scope=USER, key=name, vector=UP)
            for name in ("updated", "same", "upserted", "reverted")
        ]
        edited = await memory.write("rum edited", scope=USER)
        tagged = await memory.write("rum tagged", scope=USER, key="tagged")
        dropped = await memory.write("rum dropped", scope=USER, vector=UP)
        await memory.update(own[3].id, tags=["bad"], agent="bad")
        promoted = [await memory.write("rum here", scope=SESSION, vector=vector) for vector in (UP, None)]
    async with Memory(config, clock=clock) as memory:
        await memory.update(own[0].id, tags=["new"])
        await memory.update(own[1].id, content=own[1].content)
        await memory.write(own[2].content, scope=USER, key="upserted", tags=["new"], if_exists="update")
        await memory.admin.revert_source(agent="bad")
        await memory.write(scope=USER, key="tagged", tags=["new"], if_exists="update")
        await memory.update(edited.id, content="tea")
        await memory.update(dropped.id, vector=None)
        copies = [await memory.promote(one.id, WORKSPACE) for one in promoted]
    async with Memory(config, embedder=embed, clock=clock) as memory:
        assert await near(memory, UP, scope=WORKSPACE) == [copies[0].id]
        assert await near(memory, NORTH, scope=WORKSPACE) == [copies[1].id]
        assert set(await near(memory, UP)) == {one.id for one in own}
        assert await near(memory, NORTH) == [tagged.id]
        assert (await memory.admin.reindex()).ended
        assert set(await near(memory, UP)) == {one.id for one in own}
        assert await near(memory, EAST) == [edited.id]
        assert set(await near(memory, NORTH)) == {tagged.id, dropped.id}


# -- entries that no search finds ------------------------------------------------------


async def test_an_unsearchable_entry_is_read_but_not_found(memory: Memory) -> None:
    hidden = await memory.write(
        "tea", scope=USER, title="Tea", key="k", tags=["tea"], source="tea", searchable=False
    )
    shown = await memory.write("tea", scope=USER)
    assert (hidden.searchable, hidden.title, hidden.content) == (False, "Tea", "tea")
    for mode in ("hybrid", "lexical", "semantic"):
        assert [hit.id for hit in await memory.search("tea", scope=USER, mode=mode)] == [shown.id]
    assert await near(memory, EAST) == [shown.id]
    assert {hit.id for hit in await memory.search("", scope=USER)} == {hidden.id, shown.id}
    assert await memory.get(hidden.id) == hidden
    assert await memory.get(scope=USER, key="k") == hidden
    assert hidden in await memory.browse(filter={"title": "Tea"})
    assert hidden in await memory.retrieve(USER, filter={"content": "tea"})
    lines = [line async for line in memory.admin.export()]
    assert [line.get("searchable") for line in lines] == [False, None]
    there = memory.for_tenant("there")
    await there.admin.import_(lines)
    assert len(await there.search("tea", scope=USER)) == 1
    assert len(await there.browse()) == 2


async def test_an_unsearchable_entry_is_not_found_beside_its_neighbours(memory: Memory) -> None:
    """Neighbours in a conversation and speakers lead to it, and it has the place only."""
    said = [("tea", "ada", True), ("the safe is open", "ben", False), ("rum", "eve", True)]
    first, hidden, _ = [
        await memory.write(
            text,
            scope=USER,
            conversation_id="c",
            number_in_conversation=number,
            speaker=speaker,
            searchable=searchable,
        )
        for number, (text, speaker, searchable) in enumerate(said)
    ]
    now = hidden.updated_at
    for query in ("tea", "ben", "what did ben say?", "rum today"):
        for given in ({}, {"messages": True}, {"as_of": now}, {"known_at": now}, {"mode": "semantic"}):
            hits = await memory.search(query, scope=USER, **given)
            assert hidden.id not in [hit.id for hit in hits], (query, given)
    explained = await memory.search("tea", scope=USER, explain=True)
    assert explained[0].id == first.id
    assert explained.left_out == {"not_searchable": [hidden.id]}


async def test_an_entry_stops_and_begins_to_be_found(memory: Memory) -> None:
    entry = await memory.write("tea", scope=USER, vector=UP)
    changed = await memory.update(entry.id, searchable=False)
    assert (changed.searchable, changed.content) == (False, "tea")
    assert (await near(memory, UP), await memory.search("tea", scope=USER)) == ([], [])
    with pytest.raises(InvalidInput, match="vector: is not used by an entry that no search finds"):
        await memory.update(entry.id, vector=UP)
    await memory.update(entry.id, content="more tea", tags=["tea"])
    assert await memory.search("tea", scope=USER) == []
    await memory.update(entry.id, searchable=True)
    assert [hit.id for hit in await memory.search("tea", scope=USER, mode="lexical")] == [entry.id]
    assert await near(memory, EAST) == [entry.id]
    assert [one.searchable for one in await memory.entries.history(entry.id)] == [True, False, False, True]
    replaced = await memory.write("tea", scope=USER, key="k", searchable=False)
    assert (await memory.write("tea", scope=USER, key="k", if_exists="replace")).searchable
    assert not (await memory.write(scope=USER, key="k", if_exists="update", searchable=False)).searchable
    assert [hit.id for hit in await memory.search("tea", scope=USER)] == [entry.id] != [replaced.id]


async def test_copies_of_unsearchable_entries_are_not_found_either(memory: Memory) -> None:
    entry = await memory.write("tea", scope=SESSION, searchable=False)
    copy = await memory.promote(entry.id, USER)
    assert not copy.searchable
    await memory.admin.move([copy.id], "long")
    both = [copy.id, (await memory.write("more tea", scope=USER, searchable=False)).id]
    made = await memory.compact(both, lambda entries: "tea")
    assert not made.searchable
    assert await memory.search("tea", scope=USER) == []
    both[1] = (await memory.write("more tea", scope=USER)).id
    assert not (await memory.compact(both, lambda entries: "tea")).searchable
    for given in ({"searchable": "no"}, {"searchable": False, "vector": UP}):
        with pytest.raises(InvalidInput, match=r"searchable: must be True or False|vector: is not used"):
            await memory.write("tea", scope=USER, **given)
