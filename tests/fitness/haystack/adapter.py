"""Haystack over `memory`: a document store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from haystack import default_from_dict, default_to_dict
from haystack.dataclasses import Document
from haystack.document_stores.errors import DocumentStoreError, DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.utils import Secret

from memory import BlockingMemory, Entry, Filter, InvalidInput, Memory, MemoryTiersError, PartialWrite
from tests.fitness.haystack.documents import document_of, fields_of, only_embeddings
from tests.fitness.haystack.filters import filter_of

READ_AT_ONCE = 1_000
EMBEDDED = Filter.data("embedding").exists()


class MemoryDocumentStore:
    """A `DocumentStore` over the entries of one scope.

        store = MemoryDocumentStore("docs.toml", "workspace:docs", dimensions=768)
        store.write_documents(documents, policy=DuplicatePolicy.OVERWRITE)

    Documents come back equal, with their embedding. The text and the metadata of a
    document have at most 64 KiB each, and so has all else together.

    Args:
        config: What `Memory` takes: a URL, a path of a TOML file, or a mapping. Pass a
            `Secret` for a URL with a password. It may also be an open `Memory` that was
            made with `loop="own"`, which several stores share. Its owner closes it, and
            `to_dict` is refused.
        scope: The scope of the documents.
        dimensions: The length of the embeddings of your documents. Without it,
            documents with embeddings are refused. A `Memory` has an embedder instead.
        tenant: The tenant of the documents.
    """

    def __init__(
        self,
        config: str | dict[str, Any] | Secret | Memory,
        scope: str,
        *,
        dimensions: int | None = None,
        tenant: str | None = None,
    ) -> None:
        self._config = config
        self._scope = scope
        self._dimensions = dimensions
        self._tenant = tenant
        if isinstance(config, Memory):
            if dimensions is not None:
                raise ValueError("dimensions: are those of the embedder of the memory. Omit the argument")
            self._memory = BlockingMemory(config if tenant is None else config.for_tenant(tenant))
            return
        given = config.resolve_value() if isinstance(config, Secret) else config
        embedder: Any = "none" if dimensions is None else only_embeddings(dimensions)
        self._memory = BlockingMemory(given, tenant=tenant, embedder=embedder)

    def __enter__(self) -> MemoryDocumentStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the stores of an own memory. The next call opens them again."""
        if not isinstance(self._config, Memory):
            self._memory.close()

    def to_dict(self) -> dict[str, Any]:
        """Return what makes the same store again.

        Raises:
            ValueError: The store was made of a `Memory`.
        """
        if isinstance(self._config, Memory):
            raise ValueError("a Memory cannot be saved. Make the store of its configuration instead")
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
        return [document_of(entry) for entry in self._entries(filters)]

    def write_documents(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """Store documents, and return how many were stored.

        `NONE` is `FAIL`. With it, documents before the first duplicate stay stored.

        Raises:
            DuplicateDocumentError: A document with this id exists.
            DocumentStoreError: A document is too large, or its embedding has another
                length. None of the new documents is stored.
        """
        if not isinstance(documents, list) or not all(isinstance(one, Document) for one in documents):
            raise ValueError("documents must be a list of Document")
        known = self._known([one.id for one in documents])
        new: dict[str, dict[str, Any]] = {}
        changed: dict[str, dict[str, Any]] = {}
        duplicate: str | None = None
        for document in documents:
            if document.id not in known and document.id not in new:
                new[document.id] = {"scope": self._scope, **fields_of(document)}
            elif policy is DuplicatePolicy.OVERWRITE:
                changed[document.id] = {"scope": self._scope, **fields_of(document)}
            elif policy is not DuplicatePolicy.SKIP:
                duplicate = document.id
                break
        stored = len(new) + len(changed.keys() - new.keys())
        try:
            self._open().write_many(new.values(), revive=True)
        except PartialWrite as error:  # another process was faster
            raced = [list(new)[at] for at in error.conflicts]
            if policy is DuplicatePolicy.OVERWRITE:
                changed = {key: new[key] for key in raced} | changed
            elif policy is DuplicatePolicy.SKIP:
                stored -= len(raced)
            else:
                duplicate = raced[0]
        except MemoryTiersError as error:
            raise DocumentStoreError(str(error)) from error
        self._open().write_many(changed.values(), if_exists="replace")
        if duplicate is not None:
            raise DuplicateDocumentError(f"ID '{duplicate}' already exists.")
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
        return [document_of(hit.entry, 2 * (hit.score or 0.0) - 1) for hit in found]

    def search_by_words(
        self, query: str, *, filters: dict[str, Any] | None = None, top_k: int = 10
    ) -> list[Document]:
        """Return the documents with words of a query. `score` is from 0 to 1."""
        if not query.strip():
            return []
        found = self._open().search(
            query, mode="lexical", scope=self._scope, limit=top_k, filter=filter_of(filters), age_decay=False
        )
        return [document_of(hit.entry, hit.relevance) for hit in found]

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
        if not isinstance(self._config, Memory):
            self._memory.open()
        return self._memory

    def _known(self, ids: Sequence[str]) -> set[str]:
        """Return those of the ids that have a document."""
        found: set[str] = set()
        for start in range(0, len(ids), READ_AT_ONCE):
            try:
                part = self._open().get_many(scope=self._scope, keys=ids[start : start + READ_AT_ONCE])
            except InvalidInput as error:
                raise DocumentStoreError(str(error)) from error
            found |= {str(entry.key) for entry in part if entry is not None}
        return found

    def _entries(self, filters: dict[str, Any] | None) -> Iterator[Entry]:
        yield from self._open().entries.iterate(self._scope, filter=filter_of(filters))
