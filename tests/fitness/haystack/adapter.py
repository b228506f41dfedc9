"""Haystack over `memory`: a document store."""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from haystack import default_from_dict, default_to_dict
from haystack.dataclasses import Document
from haystack.document_stores.errors import DocumentStoreError, DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.utils import Secret

from memory import ABSENT, BlockingMemory, Entry, Filter, MemoryTiersError, VersionConflict
from tests.fitness.haystack.filters import filter_of

EMBEDDED = Filter.data("embedding").exists()


class MemoryDocumentStore:
    """A `DocumentStore` over the entries of one scope.

        store = MemoryDocumentStore("docs.toml", "workspace:docs", dimensions=768)
        store.write_documents(documents, policy=DuplicatePolicy.OVERWRITE)

    Documents come back equal, with their embedding. The text and the metadata of a
    document have at most 64 KiB each, and so has all else together.

    Args:
        config: What `Memory` takes: a URL, a path of a TOML file, or a mapping. Pass a
            `Secret` for a URL with a password.
        scope: The scope of the documents.
        dimensions: The length of the embeddings of your documents. Without it,
            documents with embeddings are refused.
        tenant: The tenant of the documents.
    """

    def __init__(
        self,
        config: str | dict[str, Any] | Secret,
        scope: str,
        *,
        dimensions: int | None = None,
        tenant: str | None = None,
    ) -> None:
        self._config = config
        self._scope = scope
        self._dimensions = dimensions
        self._tenant = tenant
        given = config.resolve_value() if isinstance(config, Secret) else config
        embedder: Any = "none" if dimensions is None else _only_embeddings(dimensions)
        self._memory = BlockingMemory(given, tenant=tenant, embedder=embedder)

    def __enter__(self) -> MemoryDocumentStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the stores of the memory. The next call opens them again."""
        self._memory.close()

    def to_dict(self) -> dict[str, Any]:
        """Return what makes the same store again."""
        config = self._config.to_dict() if isinstance(self._config, Secret) else self._config
        settings = {"scope": self._scope, "dimensions": self._dimensions, "tenant": self._tenant}
        return dict(default_to_dict(self, config=config, **settings))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> MemoryDocumentStore:
        """Return the store that `to_dict` described."""
        config = data["init_parameters"]["config"]
        if isinstance(config, dict) and config.get("type") == "env_var":
            data["init_parameters"]["config"] = Secret.from_dict(config)
        made: MemoryDocumentStore = default_from_dict(cls, data)
        return made

    # -- the protocol ------------------------------------------------------------------

    def count_documents(self) -> int:
        """Return the number of documents."""
        return sum(1 for _ in self._entries(None))

    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """Return the documents that pass the filters, oldest first."""
        return [_document(entry) for entry in self._entries(filters)]

    def write_documents(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """Store documents, and return how many were stored.

        `NONE` is `FAIL`. With it, documents before the first duplicate stay stored.

        Raises:
            DuplicateDocumentError: A document with this id exists.
            DocumentStoreError: A document is too large, or its embedding has another
                length. It is not stored.
        """
        if not isinstance(documents, list) or not all(isinstance(one, Document) for one in documents):
            raise ValueError("documents must be a list of Document")
        stored = 0
        for document in documents:
            expected = None if policy is DuplicatePolicy.OVERWRITE else ABSENT
            try:
                with _store_errors(document.id):
                    self._open().write(
                        **_fields(document), scope=self._scope, if_exists="replace", expected_version=expected
                    )
            except VersionConflict:
                if policy is DuplicatePolicy.SKIP:
                    continue
                raise DuplicateDocumentError(f"ID '{document.id}' already exists.") from None
            stored += 1
        return stored

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete documents. Ids without a document are ignored."""
        for key in document_ids:
            self._open().delete(scope=self._scope, key=key)

    # -- more of what other stores have ------------------------------------------------

    def delete_all_documents(self) -> None:
        """Delete all documents."""
        self.delete_by_filter({})

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """Delete the documents that pass the filters, and return how many."""
        found = self._open().entries.delete_many(
            filter_of(filters), scope=self._scope, include_retired=not filters
        )
        return found.deleted

    def update_by_filter(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Merge metadata into the documents that pass, and return how many."""
        found = list(self._entries(filters))
        for entry in found:
            self._open().update(entry.id, metadata=meta)
        return len(found)

    def search_by_embedding(
        self, embedding: list[float], *, filters: dict[str, Any] | None = None, top_k: int = 10
    ) -> list[Document]:
        """Return the documents nearest to an embedding. `score` is their cosine."""
        found = self._open().search(
            "",
            vector=embedding,
            scope=self._scope,
            limit=top_k,
            filter=filter_of(filters) & EMBEDDED,
            age_decay=False,
            intent=False,
        )
        return [_document(hit.entry, 2 * (hit.score or 0.0) - 1) for hit in found]

    def search_by_words(
        self, query: str, *, filters: dict[str, Any] | None = None, top_k: int = 10
    ) -> list[Document]:
        """Return the documents with words of a query. `score` is from 0 to 1."""
        if not query.strip():
            return []
        found = self._open().search(
            query, mode="lexical", scope=self._scope, limit=top_k, filter=filter_of(filters), age_decay=False
        )
        return [_document(hit.entry, hit.relevance) for hit in found]

    # -- the same without blocking an event loop ---------------------------------------

    async def count_documents_async(self) -> int:
        """Count as `count_documents` does."""
        return await asyncio.to_thread(self.count_documents)

    async def filter_documents_async(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """Filter as `filter_documents` does."""
        return await asyncio.to_thread(self.filter_documents, filters)

    async def write_documents_async(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """Write as `write_documents` does."""
        return await asyncio.to_thread(self.write_documents, documents, policy)

    async def delete_documents_async(self, document_ids: list[str]) -> None:
        """Delete as `delete_documents` does."""
        await asyncio.to_thread(self.delete_documents, document_ids)

    def _open(self) -> BlockingMemory:
        self._memory.open()
        return self._memory

    def _entries(self, filters: dict[str, Any] | None) -> Iterator[Entry]:
        yield from self._open().entries.iterate(self._scope, filter=filter_of(filters))


def _only_embeddings(dimensions: int) -> Callable[[Sequence[str]], list[list[float]]]:
    """Return an embedder that makes no vectors: documents bring theirs."""

    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[0.0] * dimensions for _ in texts]

    embed.__qualname__ = "haystack"
    return embed


@contextmanager
def _store_errors(document_id: str) -> Iterator[None]:
    try:
        yield
    except VersionConflict:
        raise
    except MemoryTiersError as error:
        raise DocumentStoreError(f"document '{document_id}': {error}") from error


def _fields(document: Document) -> dict[str, Any]:
    """Return the arguments of a write for a document."""
    data = document.to_dict(flatten=False)
    for name in ("id", "meta", "embedding"):
        del data[name]
    content = data.pop("content")
    fields: dict[str, Any] = {"key": document.id, "content": content or "", "metadata": document.meta}
    fields["data"] = {name: value for name, value in data.items() if value is not None}
    if content is None:
        fields["data"]["content"] = None
    if document.embedding is not None:
        packed = struct.pack(f"<{len(document.embedding)}d", *document.embedding)
        fields["data"]["embedding"] = base64.b64encode(packed).decode()
        fields["vector"] = document.embedding
    return fields


def _document(entry: Entry, score: float | None = None) -> Document:
    data = {"content": entry.content, **entry.data}
    if "embedding" in data:
        packed = base64.b64decode(data["embedding"])
        data["embedding"] = list(struct.unpack(f"<{len(packed) // 8}d", packed))
    if score is not None:
        data["score"] = score
    return Document.from_dict({"id": entry.key, "meta": entry.metadata, **data})
