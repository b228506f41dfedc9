"""Any function that turns texts into vectors, as an embedder."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from memory.domain.errors import InvalidInput
from memory.ports.embedder import Fingerprint
from memory.ports.record import pack_vector

EmbedFunction: TypeAlias = Callable[[Sequence[str]], Sequence[Sequence[float]] | Awaitable[Sequence[Sequence[float]]]]
"""Texts in, one vector of numbers each out; may be async. A blocking function runs in a thread."""


class FunctionEmbedder:
    """`FunctionEmbedder(my_model.encode, model="my-model-v2", dimensions=384)`.

    `model` names what makes vectors comparable: change it whenever the function's vectors change.
    """

    def __init__(self, function: EmbedFunction, *, model: str, dimensions: int) -> None:
        self._function = function
        self._fingerprint = Fingerprint(model, dimensions)

    @property
    def fingerprint(self) -> Fingerprint:
        return self._fingerprint

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        if not texts:
            return []
        if inspect.iscoroutinefunction(self._function):
            made = await self._function(texts)
        else:
            made = await asyncio.to_thread(self._function, texts)
            if inspect.isawaitable(made):
                made = await made
        if len(made) != len(texts):
            raise InvalidInput("embedder", f"was given {len(texts)} texts and returned {len(made)} vectors")
        return [self._packed(vector) for vector in made]

    def _packed(self, vector: Sequence[float]) -> bytes:
        if len(vector) != self._fingerprint.dimensions:
            raise InvalidInput("embedder", f"returned a vector of {len(vector)} dimensions, not {self._fingerprint.dimensions}")
        numbers = [float(v) for v in vector]
        length = math.sqrt(sum(n * n for n in numbers))
        if not math.isfinite(length):
            raise InvalidInput("embedder", "returned a vector with a number that is not finite")
        return pack_vector([n / length for n in numbers]) if length else b""
