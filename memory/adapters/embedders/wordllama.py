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
"""Batches up to this size are embedded where they stand; larger ones in a thread, so that the event loop goes on."""


class WordLlamaEmbedder:
    """The default embedder. The model (16 MB) is loaded at the first use, from the installed package only."""

    def __init__(self) -> None:
        self._model: Any = None

    async def fingerprint(self) -> Fingerprint:
        return Fingerprint(f"wordllama-{metadata.version('wordllama').partition('.post')[0]}/l2_supercat", DIMENSIONS)

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        if not texts:
            return []
        if self._model is None or len(texts) > _AT_ONCE:
            return await asyncio.to_thread(self._embed, list(texts))
        return self._embed(list(texts))

    def _embed(self, texts: list[str]) -> list[bytes]:
        import numpy

        vectors = self._loaded().embed(texts, norm=False).astype("<f4")
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


@contextlib.contextmanager
def _logging_left_alone() -> Iterator[None]:
    """Importing wordllama configures the root logger; that is the application's to do."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:], root.level = handlers, level
