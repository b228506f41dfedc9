"""Turning text into vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What makes vectors comparable: stored with them, and checked when a store is
    opened again.
    """

    model: str
    dimensions: int
    metric: str = "cosine"

    @property
    def digest(self) -> str:
        """What stands beside each vector."""
        return blake2b(str(self).encode(), digest_size=6).hexdigest()

    def __str__(self) -> str:
        return f"{self.model} ({self.dimensions} dimensions, {self.metric})"


@runtime_checkable
class Embedder(Protocol):
    """Makes one vector a text. The same text always gives the same vector; vectors are
    finite and, for a text with words, not all zero.
    """

    async def fingerprint(self) -> Fingerprint:
        """What the vectors are made with; may load the model to find out. Always the
        same for one embedder.
        """
        ...

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Packed float32 vectors (see `pack_vector`), of length 1, in the order of the
        texts. An empty list gives an empty list.

        A text that has no vector (nothing the model knows) gives empty bytes: it is not
        found by meaning.
        """
        ...
