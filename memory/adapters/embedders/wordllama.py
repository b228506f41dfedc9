"""WordLlama's 256-dimension model, which its wheel carries: no network, no key, tens of
microseconds a text.

A text's vector is the mean of its tokens' rows in a table, at length one. Table and
tokenizer are read from the wheel's files: the vectors are the very ones that
`wordllama` makes, without importing it, its ways to download models, and its settings
of the root logger.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from memory.ports.embedder import Fingerprint

DIMENSIONS = 256
_IN_PLACE = 64, 4_000
"""Texts, and characters in all, up to which they are embedded where they stand; more in
a thread, so that the event loop goes on.
"""
_AT_ONCE = 16
"""Texts that are cut into tokens together, on all cores and without Python's lock;
their tokens are in memory at once.
"""


class WordLlamaEmbedder:
    """The default embedder. The model (16 MB) is loaded at the first use, from the
    installed package only.
    """

    def __init__(self) -> None:
        self._model: Any = None

    async def fingerprint(self) -> Fingerprint:
        return Fingerprint(
            f"wordllama-{metadata.version('wordllama').partition('.post')[0]}/l2_supercat", DIMENSIONS
        )

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        if not texts:
            return []
        if self._model is None or len(texts) > _IN_PLACE[0] or sum(map(len, texts)) > _IN_PLACE[1]:
            return await asyncio.to_thread(self._embed, list(texts))
        return self._embed(list(texts))

    def _embed(self, texts: list[str]) -> list[bytes]:
        import numpy

        if self._model is None:
            self._model = _load()
        tokenizer, table = self._model
        vectors = numpy.zeros((len(texts), DIMENSIONS), "<f4")
        for first in range(0, len(texts), _AT_ONCE):
            encoded = tokenizer.encode_batch_fast(texts[first : first + _AT_ONCE], add_special_tokens=False)
            for vector, tokens in zip(vectors[first:], encoded, strict=False):
                if tokens.ids:
                    numpy.add.reduce(table[tokens.ids].astype("<f4"), axis=0, out=vector)
                    vector /= numpy.float32(len(tokens.ids))
        lengths = numpy.linalg.norm(vectors, axis=1, keepdims=True)
        usable = (lengths[:, 0] > 0) & numpy.isfinite(lengths[:, 0])
        numpy.divide(vectors, lengths, out=vectors, where=usable[:, None])
        return [row.tobytes() if ok else b"" for row, ok in zip(vectors, usable, strict=True)]


def _load() -> tuple[Any, Any]:
    """The tokenizer, and the table with a row of half-precision numbers for each token."""
    import numpy
    from tokenizers import Tokenizer

    files = Path(str(metadata.distribution("wordllama").locate_file("wordllama")))
    tokenizer = Tokenizer.from_file(str(files / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    with (files / "weights" / f"l2_supercat_{DIMENSIONS}.safetensors").open(
        "rb"
    ) as file:  # the length of a header in JSON, the header, the numbers
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))["embedding.weight"]
        return tokenizer, numpy.fromfile(file, "<f2").reshape(header["shape"])
