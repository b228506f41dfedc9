"""WordLlama's 256-dimension model, which its wheel carries: no network, no key, tens of microseconds a text."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pathlib
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Any

from memory.ports.embedder import Fingerprint

DIMENSIONS = 256
_AT_ONCE = 64
"""Texts that the model is given together."""
_IN_PLACE = 4_000
"""Characters in all up to which texts are embedded where they stand; more in a thread, so that the event loop goes on."""
_PADDED = 64_000
"""Characters that texts given together take at most, each as long as the longest: the model fills the shorter ones up."""


class WordLlamaEmbedder:
    """The default embedder. The model (16 MB) is loaded at the first use, from the installed package only."""

    def __init__(self) -> None:
        self._model: Any = None

    async def fingerprint(self) -> Fingerprint:
        return Fingerprint(f"wordllama-{metadata.version('wordllama').partition('.post')[0]}/l2_supercat", DIMENSIONS)

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        if not texts:
            return []
        if self._model is None or len(texts) > _AT_ONCE or sum(map(len, texts)) > _IN_PLACE:
            return await asyncio.to_thread(self._embed, list(texts))
        return self._embed(list(texts))

    def _embed(self, texts: list[str]) -> list[bytes]:
        import numpy

        model, vectors = self._loaded(), numpy.zeros((len(texts), DIMENSIONS), "<f4")
        for places in _of_like_length(texts):
            vectors[places] = model.embed([texts[place] for place in places], norm=False)
        lengths = numpy.linalg.norm(vectors, axis=1, keepdims=True)
        usable = (lengths[:, 0] > 0) & numpy.isfinite(lengths[:, 0])
        numpy.divide(vectors, lengths, out=vectors, where=usable[:, None])
        return [row.tobytes() if ok else b"" for row, ok in zip(vectors, usable, strict=True)]

    def _loaded(self) -> Any:
        if self._model is None:
            with _logging_left_alone():
                import wordllama

                bundled = pathlib.Path(wordllama.__file__).parent
                self._model = wordllama.WordLlama.load(cache_dir=bundled, disable_download=True)
        return self._model


def _of_like_length(texts: Sequence[str]) -> Iterator[list[int]]:
    """The places of texts that are embedded together. In length they are alike: among short ones a long one would cost its length for each."""
    places: list[int] = []
    for place in sorted(range(len(texts)), key=lambda place: len(texts[place])):
        if len(places) == _AT_ONCE or (places and (len(places) + 1) * len(texts[place]) > _PADDED):
            yield places
            places = []
        places.append(place)
    if places:
        yield places


@contextlib.contextmanager
def _logging_left_alone() -> Iterator[None]:
    """Importing wordllama configures the root logger; that is the application's to do."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:], root.level = handlers, level
