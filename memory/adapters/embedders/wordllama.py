"""Default embedder: WordLlama's 256-dimension model, which its wheel includes.

It needs no network and no key, and takes tens of microseconds per text.

A text's vector is the mean of its tokens' rows in a table, normalized to length 1. The
table and the tokenizer are read from the wheel's files. The vectors equal those of
`wordllama`, but its downloads and its changes to the root logger are avoided.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from memory.ports.embedder import Fingerprint

DIMENSIONS = 256
_IN_PLACE = 64, 4_000
"""Most texts, and most characters in total, that are embedded without a thread.

Larger inputs run in a thread, so that the event loop stays responsive.
"""
_AT_ONCE = 16
"""Texts that are tokenized together, on all cores and without the GIL.

Their tokens are in memory at the same time.
"""


class WordLlamaEmbedder:
    """The default embedder. It needs no network and no key.

    The model (16 MB) is loaded on first use, only from the installed package.
    """

    def __init__(self) -> None:
        self._model: Any = None

    async def fingerprint(self) -> Fingerprint:
        return _fingerprint()

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


@cache
def _fingerprint() -> Fingerprint:
    version = metadata.version("wordllama").partition(".post")[0]  # it reads the whole metadata: 2 to 5 ms
    return Fingerprint(f"wordllama-{version}/l2_supercat", DIMENSIONS)


@cache
def _load() -> tuple[Any, Any]:
    """Load the tokenizer and the table: one row of half-precision numbers per token.

    Nothing changes them, so all embedders of a process share them.
    """
    import numpy
    from tokenizers import Tokenizer

    files = Path(str(metadata.distribution("wordllama").locate_file("wordllama")))
    tokenizer = Tokenizer.from_file(str(files / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    with (files / "weights" / f"l2_supercat_{DIMENSIONS}.safetensors").open(
        "rb"
    ) as file:  # safetensors: header length, JSON header, numbers
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))["embedding.weight"]
        return tokenizer, numpy.fromfile(file, "<f2").reshape(header["shape"])
