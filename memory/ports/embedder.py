"""The embedder port: turns text into vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The properties that make vectors comparable.

    They are stored with the vectors, and checked when a store is opened again.
    """

    model: str
    dimensions: int
    metric: str = "cosine"

    @property
    def digest(self) -> str:
        """The short form that is stored with each vector."""
        return blake2b(str(self).encode(), digest_size=6).hexdigest()

    def __str__(self) -> str:
        return f"{self.model} ({self.dimensions} dimensions, {self.metric})"


@runtime_checkable
class Embedder(Protocol):
    """Makes one vector for each text.

    The same text always gives the same vector. Vectors are finite, and not all zero for
    a text with words.
    """

    async def fingerprint(self) -> Fingerprint:
        """Return the fingerprint of the vectors; may load the model to find out.

        It is always the same for one embedder.
        """
        ...

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Embed the texts as packed float32 vectors of length 1, in the texts' order.

        See `pack_vector`. An empty list gives an empty list. A text without a vector,
        of which the model knows nothing, gives empty bytes. Search by meaning does not
        find it.
        """
        ...
