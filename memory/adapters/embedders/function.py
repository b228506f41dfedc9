"""Embedder that calls a function of the user."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from memory.domain.errors import InvalidInput
from memory.ports.embedder import Fingerprint
from memory.ports.record import pack_vector
from memory.ports.threads import CallerThreads

_threads = CallerThreads()
"""Shared by all embedders: their threads do not end."""

EmbedFunction: TypeAlias = Callable[
    [Sequence[str]], Sequence[Sequence[float]] | Awaitable[Sequence[Sequence[float]]]
]
"""Takes texts and returns one vector of numbers per text; may be async.

A blocking function runs in a thread.
"""


class FunctionEmbedder:
    """Embeds texts with a function: `FunctionEmbedder(encode, model="my-model-v2")`.

    Args:
        model: Identifies comparable vectors. Change it whenever the function's vectors
            change. The default is the function's qualified name.
    """

    def __init__(self, function: EmbedFunction, *, model: str | None = None) -> None:
        self._function = function
        name = getattr(function, "__qualname__", type(function).__qualname__)
        self._model = model or f"{getattr(function, '__module__', '?')}.{name}"
        self._dimensions: int | None = None

    async def fingerprint(self) -> Fingerprint:
        if self._dimensions is None:
            self._dimensions = len((await self._call_function(["how many dimensions?"]))[0])
        return Fingerprint(self._model, self._dimensions)

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        if not texts:
            return []
        dimensions = (await self.fingerprint()).dimensions
        return [_pack_unit_vector(vector, dimensions) for vector in await self._call_function(texts)]

    async def _call_function(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        if inspect.iscoroutinefunction(self._function):
            made = await self._function(texts)
        else:
            made = await _threads.run(self._function, texts)
            if inspect.isawaitable(made):
                made = await made
        if len(made) != len(texts):
            raise InvalidInput("embedder", f"got {len(texts)} texts, but returned {len(made)} vectors")
        return made  # type: ignore[no-any-return]


def _pack_unit_vector(vector: Sequence[float], dimensions: int) -> bytes:
    """Normalize a vector to length 1; empty bytes for a zero vector."""
    if len(vector) != dimensions:
        raise InvalidInput("embedder", f"returned a vector of {len(vector)} dimensions, not {dimensions}")
    numbers = [float(v) for v in vector]
    length = math.sqrt(sum(n * n for n in numbers))
    if not math.isfinite(length):
        raise InvalidInput("embedder", "returned a vector with a number that is not finite; check the model")
    return pack_vector([n / length for n in numbers]) if length else b""
