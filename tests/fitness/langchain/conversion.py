"""LangChain's embeddings and filters as those of a memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from langchain_core.embeddings import Embeddings

from memory import Filter


def as_embedder(embeddings: Embeddings, model: str) -> Callable[[Sequence[str]], Awaitable[Any]]:
    """Return LangChain's embeddings as the embedder of a memory.

        embedder = as_embedder(embeddings, "my-model")
        memory = Memory("sqlite:///docs.db", embedder=embedder, loop="own")

    Args:
        model: The name of the model. A store refuses vectors of another model.
    """

    async def embed(texts: Sequence[str]) -> Any:
        return await embeddings.aembed_documents(list(texts))

    embed.__qualname__ = model
    return embed


def filter_of(given: Mapping[str, Any] | Filter | None) -> Mapping[str, Any] | Filter:
    """Return a filter that documents alone pass."""
    if isinstance(given, Filter):
        return given & Filter.field("key").exists()
    return {"$and": [{"key": {"$exists": True}}, *([] if given is None else [_of_metadata(given)])]}


def _of_metadata(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a filter of entries for one of metadata."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name in ("$and", "$or", "$nor"):
            found[name] = [_of_metadata(one) for one in value]
        elif name == "$not":
            found[name] = _of_metadata(value)
        else:
            found.setdefault("metadata", {})[name] = value
    return found
