"""LangChain over `memory`: a vector store."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore
from langchain_core.vectorstores.utils import maximal_marginal_relevance

from memory import Entry, Filter, InvalidInput, Memory, PartialWrite, Scope
from tests.fitness.halves import blocking
from tests.fitness.langchain.conversion import filter_of

AT_ONCE = 1_000


class MemoryVectorStore(VectorStore):
    """A `VectorStore` over the entries of one scope.

        store = MemoryVectorStore(memory, "workspace:docs", embeddings)
        store.add_documents(documents, ids=["1", "2"])

    The id of a document is the key of its entry. A document with an id that exists is
    replaced. Entries without a key, such as facts in the same scope, are no documents.
    Searches compare vectors alone; `MemoryRetriever` also searches by words.

    Searches take a `filter` of the metadata: a dict such as `{"year": {"$gt": 2020}}`
    with the operators of the memory's filters, or a `Filter`.

    Args:
        memory: An open memory that was made with `loop="own"`. Its owner closes it.
        scope: The scope of the documents.
        embedding: Makes the vectors of texts and queries. The embedder of the memory
            has the same model; see `as_embedder`.
    """

    def __init__(self, memory: Memory, scope: Scope | str, embedding: Embeddings) -> None:
        self._memory: Any = memory
        self._scope = scope
        self._embedding = embedding

    @property
    def embeddings(self) -> Embeddings:
        """The embeddings of this store."""
        return self._embedding

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        memory: Memory,
        scope: Scope | str,
    ) -> MemoryVectorStore:
        """Return a store with these texts added to it."""
        store = cls(memory, scope, embedding)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    # -- changes -----------------------------------------------------------------------

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
    ) -> list[str]:
        """Store texts, and return their ids. A text without an id gets a new one.

        Raises:
            InvalidInput: The lists differ in length, a text is empty or has more than
                64 KiB, or metadata are not JSON. Nothing is stored.
        """
        listed = list(texts)
        return list(self._add(listed, self._embedding.embed_documents(listed), metadatas, ids))

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
    ) -> list[str]:
        """Store texts, and return their ids, as `add_texts` does."""
        listed = list(texts)
        return await self._aadd(listed, await self._embedding.aembed_documents(listed), metadatas, ids)

    async def _aadd(
        self,
        texts: list[str],
        vectors: list[list[float]],
        metadatas: list[dict[str, Any]] | None,
        ids: Sequence[str | None] | None,
    ) -> list[str]:
        for name, given in (("metadatas", metadatas), ("ids", ids)):
            if given is not None and len(given) != len(texts):
                raise InvalidInput(name, f"has {len(given)} items, and there are {len(texts)} texts")
        named: list[str | None] = [None] * len(texts) if ids is None else list(ids)
        keys = [str(uuid.uuid4()) if one is None else one for one in named]
        drafts: dict[str, dict[str, Any]] = {}
        for at, (key, text, vector) in enumerate(zip(keys, texts, vectors, strict=True)):
            draft: dict[str, Any] = {"content": text, "vector": vector, "key": key}
            drafts[key] = draft | {
                "scope": self._scope,
                "metadata": {} if metadatas is None else metadatas[at],
            }
        known = {one.id for one in await self._aget([key for key in named if key is not None])}
        new = [draft for key, draft in drafts.items() if key not in known]
        changed = [draft for key, draft in drafts.items() if key in known]
        try:
            await self._memory.write_many(new, revive=True)  # many at a time
        except PartialWrite as error:  # another process was faster
            changed += [new[at] for at in error.conflicts]
        await self._memory.write_many(changed, if_exists="replace")
        return keys

    async def adelete(self, ids: Sequence[str] | None = None) -> bool:
        """Delete the documents of these ids, or all. Unknown ids are ignored."""
        if ids is None:
            documents = Filter.field("key").exists()
            await self._memory.entries.delete_many(documents, scope=self._scope, include_retired=True)
        for key in ids or ():
            await self._memory.delete(scope=self._scope, key=key)
        return True

    # -- reads -------------------------------------------------------------------------

    async def aget_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents of these ids, in their order, without missing ones."""
        return await self._aget(ids)

    async def _aget(self, ids: Sequence[str]) -> list[Document]:
        found: list[Document] = []
        for start in range(0, len(ids), AT_ONCE):
            part = list(ids[start : start + AT_ONCE])
            entries = await self._memory.get_many(scope=self._scope, keys=part)
            found += [_document(entry) for entry in entries if entry is not None]
        return found

    def similarity_search_with_score(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Return the nearest documents with their cosine, the nearest first."""
        return list(self._search(self._embedding.embed_query(query), k, **kwargs))

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Return the nearest documents with their cosine, the nearest first."""
        return await self._asearch(await self._embedding.aembed_query(query), k, **kwargs)

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the nearest documents."""
        return [one for one, _ in self.similarity_search_with_score(query, k, **kwargs)]

    async def asimilarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the nearest documents."""
        return [one for one, _ in await self.asimilarity_search_with_score(query, k, **kwargs)]

    async def asimilarity_search_by_vector(
        self, embedding: list[float], k: int = 4, **kwargs: Any
    ) -> list[Document]:
        """Return the documents nearest to a vector."""
        return [one for one, _ in await self._asearch(embedding, k, **kwargs)]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return near documents that differ from each other, of the `fetch_k` nearest."""
        vector = self._embedding.embed_query(query)
        near = [one for one, _ in self._search(vector, fetch_k, **kwargs)]
        vectors = self._embedding.embed_documents([one.page_content for one in near])
        return _diverse(near, vectors, vector, k, lambda_mult)

    async def amax_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return near documents that differ from each other, of the `fetch_k` nearest."""
        vector = await self._embedding.aembed_query(query)
        near = [one for one, _ in await self._asearch(vector, fetch_k, **kwargs)]
        vectors = await self._embedding.aembed_documents([one.page_content for one in near])
        return _diverse(near, vectors, vector, k, lambda_mult)

    async def _asearch(
        self,
        vector: list[float],
        k: int,
        *,
        filter: Mapping[str, Any] | Filter | None = None,  # noqa: A002 - LangChain's name
    ) -> list[tuple[Document, float]]:
        order = {"age_decay": False, "intent": False}
        found = await self._memory.search(
            "", vector=vector, scope=self._scope, limit=k, filter=filter_of(filter), **order
        )
        return [(_document(hit.entry), 2 * hit.score - 1) for hit in found]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return lambda cosine: min(max(cosine, 0.0), 1.0)

    _add = blocking(_aadd)
    _search = blocking(_asearch)
    delete = blocking(adelete)
    get_by_ids = blocking(aget_by_ids)
    similarity_search_by_vector = blocking(asimilarity_search_by_vector)


def _document(entry: Entry) -> Document:
    return Document(id=entry.key, page_content=entry.content, metadata=entry.metadata)


def _diverse(
    documents: list[Document], vectors: list[list[float]], near: list[float], k: int, lambda_mult: float
) -> list[Document]:
    chosen = maximal_marginal_relevance(np.array(near), vectors, lambda_mult, k) if documents else []
    return [documents[number] for number in chosen]
