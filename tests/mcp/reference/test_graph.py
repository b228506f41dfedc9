"""The knowledge graph over entries: many clients at once, deletes, odd values."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memory import InvalidInput, Memory, Scope
from memory.mcp.reference import EntityNotFound, KnowledgeGraph
from tests.mcp.reference.calls import addition, deletion, entity, relation

ADA = Scope.user("ada")


@pytest.fixture
def graph(memory: Memory) -> KnowledgeGraph:
    return KnowledgeGraph(memory, ADA)


async def names(graph: KnowledgeGraph) -> list[str]:
    return [one["name"] for one in (await graph.read_graph())["entities"]]


async def test_clients_that_add_at_once_lose_no_observation(memory: Memory, graph: KnowledgeGraph) -> None:
    await graph.create_entities([entity("Ada", "person", "first")])

    async def add(client: int) -> None:
        own = KnowledgeGraph(memory, ADA)
        for number in range(5):
            await own.add_observations([addition("Ada", f"{client}.{number}", "shared")])

    async def remove() -> None:
        await graph.delete_observations([deletion("Ada", "first")])

    await asyncio.gather(*(add(client) for client in range(6)), remove())
    (ada,) = (await graph.open_nodes(["Ada"]))["entities"]
    expected = {f"{client}.{number}" for client in range(6) for number in range(5)} | {"shared"}
    assert set(ada["observations"]) == expected
    assert len(ada["observations"]) == len(expected)  # each once, "shared" too


async def test_clients_that_create_one_entity_at_once_make_one(memory: Memory) -> None:
    async def create(client: int, scope: Scope) -> int:
        await asyncio.sleep(client / 500)  # so that some read between the reads of others
        created = await KnowledgeGraph(memory, scope).create_entities([entity("Ada", "p", str(client))])
        return len(created)

    for number in range(5):
        scope = Scope.user(f"user {number}")
        assert sum(await asyncio.gather(*(create(client, scope) for client in range(8)))) == 1
        assert await names(KnowledgeGraph(memory, scope)) == ["Ada"]


async def test_clients_that_create_and_delete_at_once_leave_one_or_none(
    memory: Memory, graph: KnowledgeGraph
) -> None:
    async def work(client: int) -> None:
        own = KnowledgeGraph(memory, ADA)
        for _ in range(3):
            await own.create_entities([entity("Ada", "p", str(client))])
            await own.delete_entities(["Ada"])

    await asyncio.gather(*(work(client) for client in range(4)))
    assert await names(graph) == []
    await graph.create_entities([entity("Ada", "p")])
    assert await names(graph) == ["Ada"]


async def test_deletes_retire_entries_and_their_history_stays(memory: Memory, graph: KnowledgeGraph) -> None:
    await graph.create_entities([entity("Ada", "person", "likes tea")])
    await graph.create_relations([relation("Ada", "knows", "Bo")])
    await graph.delete_entities(["Ada"])
    assert await memory.browse(ADA) == []
    retired = await memory.browse(ADA, include_retired=True)
    assert sorted(one.content for one in retired) == ["Ada knows Bo", "likes tea"]
    assert (await graph.read_graph()) == {"entities": [], "relations": []}


async def test_an_entity_that_is_created_again_has_only_its_new_observations(graph: KnowledgeGraph) -> None:
    for number in range(3):
        assert await graph.create_entities([entity("Ada", "person", str(number))])
        assert (await graph.open_nodes(["Ada"]))["entities"] == [entity("Ada", "person", str(number))]
        await graph.delete_entities(["Ada"])


async def test_an_entity_whose_entry_was_deleted_for_good_can_be_created(
    memory: Memory, graph: KnowledgeGraph
) -> None:
    await graph.create_entities([entity("Ada", "person", "old")])
    (entry,) = await memory.browse(ADA)
    await memory.delete(entry.id)
    assert await names(graph) == []
    await graph.create_entities([entity("Ada", "person", "new")])
    assert (await graph.read_graph())["entities"] == [entity("Ada", "person", "new")]


async def test_observations_are_found_by_the_search_of_the_memory(
    memory: Memory, graph: KnowledgeGraph
) -> None:
    await graph.create_entities([entity("Ada", "person", "plays the bassoon", "lives in Porto")])
    hits = await memory.search("bassoon", scope=ADA)
    assert [hit.entry.title for hit in hits] == ["Ada (person)"]


async def test_an_entry_that_others_edit_stays_an_entity(memory: Memory, graph: KnowledgeGraph) -> None:
    await graph.create_entities([entity("Ada", "person", "one", "two\nlines")])
    (entry,) = await memory.browse(ADA)
    await memory.update(entry.id, content="three\nnew\nlines", tags=["mine"])
    assert (await graph.read_graph())["entities"] == [entity("Ada", "person", "three", "new", "lines")]
    await graph.add_observations([addition("Ada", "four")])
    assert (await graph.read_graph())["entities"][0]["observations"] == ["three", "new", "lines", "four"]


@pytest.mark.parametrize("data", [None, [1], {"lengths": "x"}, {"id": 7, "name": 1}])
async def test_an_entry_whose_data_others_replaced_stops_no_reader(
    memory: Memory, graph: KnowledgeGraph, data: Any
) -> None:
    await graph.create_entities([entity("Ada", "person", "one"), entity("Bo", "person")])
    await memory.update((await memory.get_many([(await memory.browse(ADA))[-1].id]))[0].id, data=data)  # type: ignore[union-attr]
    assert len(await names(graph)) == 1
    assert await graph.search_nodes("person")
    assert await graph.open_nodes(["Ada", "Bo"])
    with pytest.raises(EntityNotFound):
        await graph.add_observations([addition("Ada", "x")])
    await graph.delete_observations([deletion("Ada", "one")])
    assert await graph.create_entities([entity("Ada", "person", "one")]) == []
    await graph.delete_entities(["Ada"])
    assert await graph.create_entities([entity("Ada", "person", "new")])
    assert sorted(await names(graph)) == ["Ada", "Bo"]


async def test_graphs_of_two_scopes_do_not_mix(memory: Memory, graph: KnowledgeGraph) -> None:
    other = KnowledgeGraph(memory, Scope.user("bo"))
    await graph.create_entities([entity("Secret", "person", "of Ada")])
    await other.create_relations([relation("Secret", "knows", "Bo")])
    await other.delete_entities(["Secret"])
    with pytest.raises(EntityNotFound, match="Entity with name Secret not found"):
        await other.add_observations([addition("Secret", "x")])
    assert await names(other) == []
    assert (await graph.read_graph())["entities"] == [entity("Secret", "person", "of Ada")]


async def test_notes_that_are_no_part_of_the_graph_stay_out(memory: Memory, graph: KnowledgeGraph) -> None:
    await memory.write("a note", scope=ADA, key="note", data={"name": "Ada", "entityType": "person"})
    await graph.delete_entities(["Ada"])
    assert await names(graph) == []
    assert [one.content for one in await memory.browse(ADA)] == ["a note"]


async def test_a_wrong_value_stores_nothing_of_the_call(memory: Memory, graph: KnowledgeGraph) -> None:
    with pytest.raises(InvalidInput, match=r"entities\[1\].observations: exceeds"):
        await graph.create_entities([entity("Ada", "p"), entity("Bo", "p", "x" * 70_000)])
    with pytest.raises(InvalidInput, match=r"entities\[0\].name: .*NUL"):
        await graph.create_entities([entity("A\0da", "p")])
    assert await memory.browse(ADA) == []
    await graph.create_entities([entity("Ada", "p"), entity("Bo", "p")])
    with pytest.raises(InvalidInput, match=r"observations\[1\].contents: exceeds"):
        await graph.add_observations([addition("Ada", "lost"), addition("Bo", "x" * 70_000)])
    assert [one["observations"] for one in (await graph.read_graph())["entities"]] == [[], []]


async def test_a_name_and_a_relation_are_repeated_in_one_call(graph: KnowledgeGraph) -> None:
    created = await graph.create_entities([entity("Ada", "p", "first"), entity("Ada", "p", "second")])
    assert created == [entity("Ada", "p", "first")]
    linked = await graph.create_relations([relation("Ada", "knows", "Bo")] * 2)
    assert linked == [relation("Ada", "knows", "Bo")]


async def test_more_names_than_fit_into_a_filter(graph: KnowledgeGraph) -> None:
    many = [f"E{number}" for number in range(350)]
    assert len(await graph.create_entities([entity(name, "p") for name in many])) == 350
    await graph.create_relations([relation("E0", "to", name) for name in many])
    assert [one["name"] for one in (await graph.open_nodes(many))["entities"]] == many
    await graph.delete_entities(many[1:])
    assert await graph.read_graph() == {
        "entities": [entity("E0", "p")],
        "relations": [relation("E0", "to", "E0")],
    }
