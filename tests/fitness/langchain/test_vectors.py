"""What users of LangChain do with a vector store beyond its standard tests."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from memory import BlockingMemory, Filter, InvalidInput, Memory
from tests.fitness.langchain.conversion import as_embedder
from tests.fitness.langchain.vector_store import MemoryVectorStore


class Clock(Embeddings):
    """Texts lie on a circle, at the hour that they begin with; queries an hour later."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        hours = [int(found.group()) if (found := re.match(r"\d+", text)) else 0 for text in texts]
        return [[math.cos(hour * math.pi / 6), math.sin(hour * math.pi / 6), 0.0] for hour in hours]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([str(int(text) + 1)])[0]


@pytest.fixture
def memory(config: dict[str, Any]) -> Iterator[Memory]:
    opened = Memory(config, loop="own", embedder=as_embedder(Clock(), "clock"))
    with BlockingMemory(opened):
        yield opened


@pytest.fixture
def store(memory: Memory) -> MemoryVectorStore:
    return MemoryVectorStore(memory, "workspace:docs", Clock())


def hours(found: list[Document]) -> list[int]:
    return [int(one.page_content.split()[0]) for one in found]


def test_the_nearest_come_first_whatever_their_length(store: MemoryVectorStore) -> None:
    store.add_texts([f"{hour} " + "word " * (7 * hour % 5 * 40) for hour in range(12)])
    near = hours(store.similarity_search("2", k=5))
    assert [near[0], {*near[1:3]}, {*near[3:]}] == [3, {2, 4}, {1, 5}]
    found = store.similarity_search_with_score("2", k=12)
    assert [round(score, 3) for _, score in found] == [1.0, *[0.866] * 2, *[0.5] * 2, *[0.0] * 2, *[-0.5] * 2, *[-0.866] * 2, -1.0]  # fmt: skip
    assert hours(store.similarity_search_by_vector([0.0, -1.0, 0.0], k=1)) == [9]
    retriever = store.as_retriever(
        search_type="similarity_score_threshold", search_kwargs={"score_threshold": 0.8, "k": 12}
    )
    assert sorted(hours(retriever.invoke("2"))) == [2, 3, 4]
    diverse = store.max_marginal_relevance_search("2", k=3, fetch_k=12, lambda_mult=0.1)
    assert hours(diverse)[0] == 3
    assert len(set(hours(diverse)) - {2, 3, 4}) == 2


async def test_the_async_half_finds_the_same(store: MemoryVectorStore) -> None:
    ids = await store.aadd_texts([f"{hour} o'clock" for hour in range(12)])
    assert hours(await store.asimilarity_search("2", k=1)) == [3]
    assert hours(await store.asimilarity_search_by_vector([0.0, -1.0, 0.0], k=1)) == [9]
    assert hours(await store.amax_marginal_relevance_search("2", k=2, lambda_mult=0.0))[0] == 3
    assert [one.id for one in await store.aget_by_ids([ids[3], "none", ids[1]])] == [ids[3], ids[1]]
    assert await store.adelete([ids[3], "none"])
    assert await store.asimilarity_search("2", k=12) == store.similarity_search("2", k=12)


def test_filters_compare_metadata(store: MemoryVectorStore) -> None:
    store.add_texts(
        [f"{hour} o'clock" for hour in range(6)],
        [{"hour": hour, "a.b": "dot", "of": {"parity": hour % 2}, "key": "mine"} for hour in range(6)],
    )
    cases: list[tuple[Any, set[int]]] = [
        ({"hour": 3}, {3}),
        ({"hour": {"$gte": 4}}, {4, 5}),
        ({"hour": {"$in": [1, 2]}, "of": {"parity": 0}}, {2}),
        ({"$or": [{"hour": 0}, {"hour": {"$gt": 4}}]}, {0, 5}),
        ({"$not": {"hour": {"$gt": 0}}}, {0}),
        ({"$and": [{"a.b": "dot"}, {"hour": 1}]}, {1}),
        ({"key": "mine", "hour": 1}, {1}),
        ({"key": "other"}, set()),
        (Filter.metadata("hour") < 2, {0, 1}),
        ({}, set(range(6))),
    ]
    for given, expected in cases:
        assert set(hours(store.similarity_search("2", k=9, filter=given))) == expected, given


def test_ids_name_documents(memory: Memory, store: MemoryVectorStore) -> None:
    """Facts without a key in the same scope are no documents, and stay."""
    fact = BlockingMemory(memory).write("3 is a fact", scope="workspace:docs")
    odd = ["a/b", "%", "A", "a", "ü", " ", "k" * 512]
    store.add_texts([f"{hour} o'clock" for hour in range(len(odd))], ids=odd)
    assert [one.id for one in store.get_by_ids(odd)] == odd
    assert len(store.similarity_search("2", k=20)) == len(odd)
    store.delete(odd[:1])
    assert store.add_documents([Document("1 again", id=odd[0]), Document("2 new")])[0] == odd[0]
    assert [one.page_content for one in store.get_by_ids(odd[:1])] == ["1 again"]
    store.add_texts(["1 first", "1 last"], [{"old": 1}, {}], ids=["twice", "twice"])
    assert store.get_by_ids(["twice"]) == [Document("1 last", id="twice")]
    assert store.get_by_ids([fact.id]) == []
    store.delete()
    assert store.similarity_search("2", k=20) == []
    assert BlockingMemory(memory).get(fact.id) == fact


def test_many_documents(store: MemoryVectorStore) -> None:
    documents = [Document(f"{number % 12} {number}", id=str(number)) for number in range(1_050)]
    store.add_documents(documents)
    assert store.get_by_ids([str(number) for number in range(1_050)]) == documents
    assert len(store.similarity_search("2", k=1_000)) == 1_000


def test_wrong_input_changes_nothing(memory: Memory, store: MemoryVectorStore) -> None:
    wrong: list[tuple[list[str], Any, Any]] = [
        (["1", "2"], [{}], None),
        (["1", "2"], None, ["a"]),
        (["1", "2 " + "x" * 70_000], None, None),
        (["1", "2"], [{}, {"socket": object()}], None),
        (["1", "2"], None, ["a", ""]),
    ]
    for texts, metadatas, ids in wrong:
        with pytest.raises(InvalidInput):
            store.add_texts(texts, metadatas, ids=ids)
    assert BlockingMemory(memory).browse() == []
    with pytest.raises(InvalidInput, match="limit"):
        store.similarity_search("2", k=0)
    with pytest.raises(TypeError, match="nothing"):
        store.similarity_search("2", nothing=1)


def test_an_embedding_of_another_length_is_refused(config: dict[str, Any]) -> None:
    opened = Memory(config, loop="own")
    with BlockingMemory(opened):
        store = MemoryVectorStore(opened, "workspace:docs", Clock())
        with pytest.raises(InvalidInput, match="vector"):
            store.add_texts(["1 o'clock"])


def test_threads_and_loops_write_the_same_ids(store: MemoryVectorStore) -> None:
    def work(caller: int) -> None:
        texts = [f"{hour} by {caller}" for hour in range(12)]
        ids = [str(hour) for hour in range(12)]
        if caller % 2:
            store.add_texts(texts, ids=ids)
        else:
            asyncio.run(store.aadd_texts(texts, ids=ids))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    found = store.similarity_search("2", k=100)
    assert sorted(hours(found)) == list(range(12))


def test_tenants_scopes_and_reopening(config: dict[str, Any]) -> None:
    for is_stored in (False, True):
        opened = Memory(config, loop="own", embedder=as_embedder(Clock(), "clock"))
        with BlockingMemory(opened):
            store = MemoryVectorStore.from_texts(
                [] if is_stored else ["1 o'clock"],
                Clock(),
                ids=[] if is_stored else ["a"],
                memory=opened,
                scope="workspace:docs",
            )
            others = [
                MemoryVectorStore(opened, "workspace:other", Clock()),
                MemoryVectorStore(opened.for_tenant("globex"), "workspace:docs", Clock()),
            ]
            for other in others:
                assert other.get_by_ids(["a"]) == other.similarity_search("2") == []
                other.delete()
            assert [one.id for one in store.similarity_search("2")] == ["a"]
