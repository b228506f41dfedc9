"""What users of LangChain do beyond its standard tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda

from memory import BlockingMemory, Filter, InvalidInput, Memory
from tests.fitness.langchain.adapter import MemoryByteStore, MemoryRetriever


@pytest.fixture
def memory(config: dict[str, Any]) -> Iterator[Memory]:
    opened = Memory(config, loop="own")
    with BlockingMemory(opened):
        yield opened


@pytest.fixture
def store(memory: Memory) -> MemoryByteStore:
    return MemoryByteStore(memory, "workspace:bytes")


class TestByteStore:
    def test_more_keys_than_one_call_takes(self, store: MemoryByteStore) -> None:
        pairs = [(f"k{number:04}", str(number).encode()) for number in range(1_050)]
        store.mset(pairs)
        assert store.mget([key for key, _ in pairs]) == [value for _, value in pairs]
        assert list(store.yield_keys()) == [key for key, _ in pairs]
        assert list(store.yield_keys(prefix="k104")) == [f"k{number}" for number in range(1040, 1050)]
        store.mdelete([key for key, _ in pairs[:1_049]])
        assert list(store.yield_keys()) == ["k1049"]

    def test_large_values_and_odd_keys(self, store: MemoryByteStore) -> None:
        keys = ["%", "_", "*", "a/b", "a\nb", "A", "a", "ü", "\U0001f600", " ", "k" * 512]
        pairs = [(key, key.encode() * 1_000) for key in keys]
        pairs.append(("large", b"\x00\xff" * 2**22))
        store.mset(pairs)
        assert store.mget([key for key, _ in pairs]) == [value for _, value in pairs]
        assert list(store.yield_keys()) == sorted(key for key, _ in pairs)
        assert list(store.yield_keys(prefix="%")) == ["%"]

    def test_the_last_value_of_a_repeated_key_counts(self, store: MemoryByteStore) -> None:
        store.mset([("a", b"1"), ("b", b"2"), ("a", b"3")])
        store.mdelete(["b", "b"])
        assert store.mget(["a", "a", "b"]) == [b"3", b"3", None]
        store.mset([])
        store.mdelete([])
        assert store.mget([]) == []

    def test_wrong_input_is_refused(self, store: MemoryByteStore) -> None:
        wrong: list[Any] = [[("a", "text")], [("a", None)], [("", b"")], [("k" * 513, b"")], [(1, b"")]]
        for pairs in wrong:
            with pytest.raises(InvalidInput):
                store.mset([("good", b""), *pairs])
        assert list(store.yield_keys()) == []

    def test_threads_and_loops_share_a_store(self, store: MemoryByteStore) -> None:
        async def put(number: int) -> None:
            await store.amset([(f"{number}/{part}", b"x") for part in range(5)])
            assert [key async for key in store.ayield_keys(prefix=f"{number}/")] == [
                f"{number}/{part}" for part in range(5)
            ]

        def work(number: int) -> None:
            asyncio.run(put(number))
            store.mdelete([f"{number}/0"])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        assert len(list(store.yield_keys())) == 8 * 4

    def test_a_blocking_call_inside_a_running_loop(self, store: MemoryByteStore) -> None:
        async def both() -> list[bytes | None]:
            store.mset([("a", b"1")])
            return await store.amget(["a"])

        assert asyncio.run(both()) == [b"1"]

    def test_tenants_and_scopes_never_mix(self, memory: Memory, store: MemoryByteStore) -> None:
        store.mset([("a", b"1")])
        others = [
            MemoryByteStore(memory, "workspace:other"),
            MemoryByteStore(memory.for_tenant("globex"), "workspace:bytes"),
        ]
        for other in others:
            assert other.mget(["a"]) == [None]
            other.mdelete(["a"])
            assert list(other.yield_keys()) == []
        assert store.mget(["a"]) == [b"1"]

    def test_values_survive_reopening(self, config: dict[str, Any]) -> None:
        for expected in (None, b"1"):
            opened = Memory(config, loop="own")
            with BlockingMemory(opened):
                store = MemoryByteStore(opened, "workspace:bytes")
                assert store.mget(["a"]) == [expected]
                store.mset([("a", b"1")])


class TestRetriever:
    @pytest.fixture(autouse=True)
    def entries(self, memory: Memory) -> None:
        blocking = BlockingMemory(memory)
        for name in ("ada", "bob"):
            for year in (2024, 2025):
                blocking.write(f"{name} bought a boat", scope=f"user:{name}", metadata={"year": year})

    def test_a_document_is_an_entry(self, memory: Memory) -> None:
        (found,) = MemoryRetriever(memory=memory, scope="user:ada", k=1).invoke("boat")
        entry = BlockingMemory(memory).get(found.id)
        assert entry is not None
        assert (found.page_content, found.metadata["scope"]) == (entry.content, "user:ada")
        assert found.metadata["year"] == entry.metadata["year"]
        assert 0 < found.metadata["relevance"] <= 1

    def test_scopes_and_filters(self, memory: Memory) -> None:
        both = MemoryRetriever(memory=memory, scope=["user:ada", "user:bob"])
        assert len(both.invoke("boat")) == 4
        assert {one.page_content for one in both.invoke("boat", filter=Filter.metadata("year") > 2024)} == {
            "ada bought a boat",
            "bob bought a boat",
        }
        mine = MemoryRetriever(
            memory=memory, scope="user:ada", search_kwargs={"filter": {"metadata.year": 2024}}
        )
        assert [one.metadata["year"] for one in mine.invoke("boat")] == [2024]

    async def test_it_is_a_step_of_a_chain(self, memory: Memory) -> None:
        def count(documents: list[Document]) -> int:
            return len(documents)

        chain = MemoryRetriever(memory=memory, scope="user:ada") | RunnableLambda(count)
        assert await chain.abatch(["boat", "boat"]) == [2, 2]
        assert chain.invoke("boat") == 2

    def test_wrong_input_is_refused(self, memory: Memory) -> None:
        with pytest.raises(ValueError, match="greater than or equal to 1"):
            MemoryRetriever(memory=memory, scope="user:ada", k=0)
        with pytest.raises(TypeError, match="nothing"):
            MemoryRetriever(memory=memory, scope="user:ada").invoke("boat", nothing=1)
