"""The suite of Haystack for document stores, on every topology."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from haystack.dataclasses import Document
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.testing.document_store import DocumentStoreBaseExtendedTests
from haystack.testing.document_store_async import (
    CountDocumentsAsyncTest,
    DeleteDocumentsAsyncTest,
    FilterDocumentsAsyncTest,
    WriteDocumentsAsyncTest,
)

from tests.fitness.haystack.adapter import MemoryDocumentStore


@pytest.fixture
def made(config: dict[str, Any]) -> Iterator[MemoryDocumentStore]:
    with MemoryDocumentStore(config, "workspace:docs", dimensions=768) as store:
        yield store


class TestDocumentStore(DocumentStoreBaseExtendedTests):
    """The 49 tests of the base, and 11 of the methods that many stores have."""

    @pytest.fixture
    def document_store(self, made: MemoryDocumentStore) -> MemoryDocumentStore:
        return made

    def test_write_documents(self, document_store: MemoryDocumentStore) -> None:
        """The default refuses a document that exists."""
        document = Document(content="test doc")
        assert document_store.write_documents([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            document_store.write_documents([document])
        self.assert_documents_are_equal(document_store.filter_documents(), [document])


class TestDocumentStoreAsync(
    CountDocumentsAsyncTest, DeleteDocumentsAsyncTest, FilterDocumentsAsyncTest, WriteDocumentsAsyncTest
):
    """The 13 tests of the async half of the protocol."""

    @pytest.fixture
    def document_store(self, made: MemoryDocumentStore) -> MemoryDocumentStore:
        return made

    async def test_write_documents_async(self, document_store: MemoryDocumentStore) -> None:
        """The default refuses a document that exists."""
        document = Document(content="test doc")
        assert await document_store.write_documents_async([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            await document_store.write_documents_async([document])
