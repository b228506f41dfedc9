"""LangChain over `memory`: a byte store, and a retriever.

The vector store is in `vector_store.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Literal

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.stores import ByteStore
from pydantic import ConfigDict, Field

from memory import BlockingMemory, DocumentDelete, DocumentPut, FoundEntry, InvalidInput, Memory, Scope
from tests.fitness.halves import blocking

READ_AT_ONCE = 1_000
CHANGED_AT_ONCE = 100


class MemoryByteStore(ByteStore):
    """A `ByteStore` over the documents of one scope.

        memory = Memory("sqlite:///notes.db", loop="own")
        store = MemoryByteStore(memory, "workspace:embeddings")

    Use it for `CacheBackedEmbeddings` and `create_kv_docstore`. Any event loop and any
    thread may call it. Give it a scope without other documents.

    `mset` and `mdelete` change 100 keys at a time, each group as a whole.

    Args:
        memory: An open memory that was made with `loop="own"`. Its owner closes it.
        scope: The scope whose documents are the keys and values.
    """

    def __init__(self, memory: Memory, scope: Scope | str) -> None:
        self._memory: Any = memory
        self._scope = scope

    async def amget(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of the keys, and None for each key without a value."""
        found: list[bytes | None] = []
        for part in _parts(keys, READ_AT_ONCE):
            documents = await self._memory.documents.get_many(self._scope, part)
            found += [None if document is None else document.value for document in documents]
        return found

    async def amset(self, key_value_pairs: Sequence[tuple[str, bytes]]) -> None:
        """Store values under keys. The last value of a repeated key counts.

        Raises:
            InvalidInput: A value is not bytes, or a key is empty or has more than 512
                bytes.
        """
        puts = []
        for key, value in dict(key_value_pairs).items():
            if not isinstance(value, bytes):
                raise InvalidInput(f"value of {key!r}", f"must be bytes, not {type(value).__name__}")
            puts.append(DocumentPut(self._scope, key, value))
        for part in _parts(puts, CHANGED_AT_ONCE):
            await self._memory.documents.apply(part)

    async def amdelete(self, keys: Sequence[str]) -> None:
        """Delete the keys. Keys without a value are ignored."""
        deletions = [DocumentDelete(self._scope, key) for key in dict.fromkeys(keys)]
        for part in _parts(deletions, CHANGED_AT_ONCE):
            await self._memory.documents.apply(part)

    async def ayield_keys(self, *, prefix: str | None = None) -> AsyncIterator[str]:
        """Yield the keys that begin with a prefix, ordered by code point."""
        async for document in self._memory.documents.iterate(self._scope, prefix=prefix or ""):
            yield document.key

    mget = blocking(amget)
    mset = blocking(amset)
    mdelete = blocking(amdelete)
    yield_keys = blocking(ayield_keys)


class MemoryRetriever(BaseRetriever):
    """A retriever over the entries of one scope, or of several.

        retriever = MemoryRetriever(memory=memory, scope="user:ada", k=5)
        documents = retriever.invoke("what does Ada drink?")

    The metadata of a document are those of the entry. `scope`, `score` and `relevance`
    are added to them; `relevance` compares across questions. The id of a document is
    the id of the entry.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    memory: Memory
    """An open memory that was made with `loop="own"`. Its owner closes it."""
    scope: Scope | str | list[Scope | str]
    """The scope to search, or up to 1,000."""
    k: int = Field(default=10, ge=1)
    """At most this many documents."""
    mode: Literal["hybrid", "lexical", "semantic"] = "hybrid"
    """Find entries by shared words, by embeddings, or by both."""
    search_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Other arguments of `Memory.search`, such as `filter` and `min_relevance`."""

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        found = BlockingMemory(self.memory).search(query, scope=self.scope, **self._arguments(kwargs))
        return [_document(hit) for hit in found]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        found = await self.memory.search(query, scope=self.scope, **self._arguments(kwargs))
        return [_document(hit) for hit in found]

    def _arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        limit = given.pop("k", self.k)
        return {"limit": limit, "mode": self.mode, **self.search_kwargs, **given}


def _document(hit: FoundEntry) -> Document:
    entry = hit.entry
    added = {"scope": entry.scope.text, "score": hit.score, "relevance": hit.relevance}
    return Document(id=entry.id, page_content=entry.content, metadata={**entry.metadata, **added})


def _parts(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
