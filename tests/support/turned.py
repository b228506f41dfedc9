"""Embedders of a few words, for tests in which two are in use: one's vectors are of no
use to the other, whether of the same length or not.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence

from memory.ports.embedder import Fingerprint
from memory.ports.record import pack_vector

MEANT = {"tea": 0, "beverage": 0, "heron": 1, "bird": 1, "outage": 2, "crashed": 2}
"""Words, and what they mean: those of one number mean the same."""


class Embedder:
    """Knows the words of `MEANT`. Where one's vector for tea points, another's for
    herons does: who compares the two finds the wrong text.
    """

    def __init__(self, model: str, dimensions: int = 3, turned: int = 0, unknown: str = "") -> None:
        self.model, self.dimensions, self.turned, self.unknown = model, dimensions, turned, unknown
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        """What others do, once, while texts are embedded."""
        self.embedded = 0

    async def fingerprint(self) -> Fingerprint:
        return Fingerprint(self.model, self.dimensions)

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        self.embedded += len(texts)
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return [self.vector_of(text) for text in texts]

    def vector_of(self, text: str) -> bytes:
        at = [0.0] * self.dimensions
        for word in re.findall("[a-z]+", text.lower()):
            if word in MEANT and word != self.unknown:
                at[(MEANT[word] + self.turned) % 3] += 1.0
        length = sum(one * one for one in at) ** 0.5
        return pack_vector([one / length for one in at]) if length else b""
