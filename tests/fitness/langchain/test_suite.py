"""The standard tests of `langchain-tests`, on every place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from langchain_core.retrievers import BaseRetriever
from langchain_core.stores import BaseStore
from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests import (
    BaseStoreAsyncTests,
    BaseStoreSyncTests,
    RetrieversIntegrationTests,
    VectorStoreIntegrationTests,
)

from memory import BlockingMemory, Memory
from tests.fitness.langchain.adapter import MemoryByteStore, MemoryRetriever
from tests.fitness.langchain.conversion import as_embedder
from tests.fitness.langchain.vector_store import MemoryVectorStore

VALUES = (b"", b"\x00\xff", b"three")


class TestByteStore(BaseStoreSyncTests[bytes]):
    @pytest.fixture
    def kv_store(self, config: dict[str, Any]) -> Iterator[BaseStore[str, bytes]]:
        memory = Memory(config, loop="own", embedder="none")
        with BlockingMemory(memory):
            yield MemoryByteStore(memory, "workspace:bytes")

    @pytest.fixture
    def three_values(self) -> tuple[bytes, bytes, bytes]:
        return VALUES


class TestByteStoreAsync(BaseStoreAsyncTests[bytes]):
    @pytest.fixture
    async def kv_store(self, config: dict[str, Any]) -> AsyncIterator[BaseStore[str, bytes]]:
        async with Memory(config, loop="own", embedder="none") as memory:
            yield MemoryByteStore(memory, "workspace:bytes")

    @pytest.fixture
    def three_values(self) -> tuple[bytes, bytes, bytes]:
        return VALUES


class TestVectorStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, config: dict[str, Any]) -> Iterator[VectorStore]:
        embeddings = self.get_embeddings()
        memory = Memory(config, loop="own", embedder=as_embedder(embeddings, "fake"))
        with BlockingMemory(memory):
            yield MemoryVectorStore(memory, "workspace:docs", embeddings)


class TestRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def memory(self, config: dict[str, Any]) -> Iterator[None]:
        self._memory = Memory(config, loop="own")
        with BlockingMemory(self._memory) as blocking:
            for drink in ("tea", "coffee", "water", "juice"):
                blocking.write(f"Ada drinks {drink}", scope="user:ada", metadata={"drink": drink})
            yield

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return MemoryRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"memory": self._memory, "scope": "user:ada"}

    @property
    def retriever_query_example(self) -> str:
        return "what does Ada drink?"
