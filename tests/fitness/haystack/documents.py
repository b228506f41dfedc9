"""Haystack's documents as entries of a memory."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Sequence
from typing import Any

from haystack.dataclasses import Document

from memory import Entry


def only_embeddings(dimensions: int) -> Callable[[Sequence[str]], list[list[float]]]:
    """Return an embedder that makes no vectors: documents bring theirs."""

    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[0.0] * dimensions for _ in texts]

    embed.__qualname__ = "haystack"
    return embed


def fields_of(document: Document) -> dict[str, Any]:
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


def document_of(entry: Entry, score: float | None = None) -> Document:
    data = {"content": entry.content, **entry.data}
    if "embedding" in data:
        packed = base64.b64decode(data["embedding"])
        data["embedding"] = list(struct.unpack(f"<{len(packed) // 8}d", packed))
    if score is not None:
        data["score"] = score
    return Document.from_dict({"id": entry.key, "meta": entry.metadata, **data})
