"""Embedder for a sentence encoder in a local folder, exported to ONNX.

The folder has the layout of sentence-transformers. The model is `onnx/model.onnx` or
`model.onnx`, with `tokenizer.json` and `1_Pooling/config.json`. The maximum text length
comes from `sentence_bert_config.json`, `tokenizer_config.json` or `config.json`, if
they exist. Nothing is downloaded. Longer texts are truncated.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b, file_digest
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any

import numpy
import numpy.typing as npt

from memory.domain.errors import ConfigError, InvalidInput
from memory.ports.embedder import Fingerprint
from memory.ports.local_paths import absolute_path

MODELS = "onnx/model.onnx", "model.onnx"
TOKENIZER, POOLING, MODULES = "tokenizer.json", "1_Pooling/config.json", "modules.json"
SENTENCE = "sentence_embedding"
"""Model output that already is one vector per text, if the model has it."""
_AT_ONCE = 32
"""Texts of similar length that go through the model in one batch."""
_LONGEST = 512
"""Tokens per text if no file states the model's limit."""
_UNTOLD = 10**6
"""Tokenizers without a limit state a number from here on."""

Numbers = npt.NDArray[numpy.float32]
Mask = npt.NDArray[numpy.int64]


def _mean(hidden: Numbers, mask: Mask) -> Numbers:
    return numpy.asarray(
        (hidden * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True), numpy.float32
    )


def _first(hidden: Numbers, mask: Mask) -> Numbers:
    return numpy.asarray(hidden[:, 0])


def _largest(hidden: Numbers, mask: Mask) -> Numbers:
    return numpy.asarray(numpy.where(mask[:, :, None] > 0, hidden, -numpy.inf).max(axis=1), numpy.float32)


def _last(hidden: Numbers, mask: Mask) -> Numbers:
    return numpy.asarray(hidden[numpy.arange(len(hidden)), mask.sum(axis=1) - 1])


POOLINGS: Mapping[str, Callable[[Numbers, Mask], Numbers]] = {
    "mean": _mean,
    "cls": _first,
    "max": _largest,
    "lasttoken": _last,
}
"""Functions that combine the token vectors of a text into one vector."""


class FolderEmbedder:
    """Embeds texts with the encoder in a folder: `FolderEmbedder("models/encoder")`.

    The model is loaded on first use. Loading and embedding run in a thread. The
    fingerprint depends on the content of the files, not on their path. A text's vector
    is the same alone and in a batch, to about six decimal places.

    Raises:
        ConfigError: `onnxruntime` is not installed, or the folder lacks a file.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self._folder = absolute_path(folder)
        self._encoder: _Encoder | None = None
        self._loading = Lock()
        if find_spec("onnxruntime") is None:
            raise ConfigError(
                "embedder: an encoder in a folder needs 'onnxruntime'; run pip install"
                " 'memory-tiers[encoder]'"
            )
        _files(self._folder)

    async def fingerprint(self) -> Fingerprint:
        return (await asyncio.to_thread(self._load_encoder)).fingerprint

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        return await asyncio.to_thread(lambda: self._load_encoder().embed(list(texts))) if texts else []

    def _load_encoder(self) -> _Encoder:
        with self._loading:
            if self._encoder is None:
                self._encoder = _Encoder(self._folder)
            return self._encoder


class _Encoder:
    """The loaded model. All threads share one session."""

    def __init__(self, folder: Path) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        model, tokenizer = _files(folder)
        longest, said = _longest(folder), _json(folder / POOLING)
        try:
            self._tokenizer = Tokenizer.from_file(str(tokenizer))
            self._session: Any = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        except Exception as error:  # both raise plain Exception or classes of their own
            raise ConfigError(f"embedder: cannot load the encoder in {folder}: {error}") from error
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(longest)
        self._inputs = {
            given.name: numpy.int32 if given.type == "tensor(int32)" else numpy.int64
            for given in self._session.get_inputs()
        }
        outputs = [made.name for made in self._session.get_outputs()]
        self._output = SENTENCE if SENTENCE in outputs else outputs[0]
        self._pooling = SENTENCE if SENTENCE in outputs else _pooling(folder, said)
        dimensions = self._encode([self._tokenizer.encode("how many dimensions?").ids]).shape[1]
        expected = said.get("embedding_dimension", said.get("word_embedding_dimension", dimensions))
        if expected != dimensions:
            raise ConfigError(
                f"embedder: {folder / POOLING} says {expected} dimensions, but {model.name} makes"
                f" {dimensions}; export both from one model"
            )
        self.fingerprint = Fingerprint(
            f"encoder-{_digest(model, tokenizer, f'{self._pooling} {longest}')}", dimensions
        )

    def embed(self, texts: list[str]) -> list[bytes]:
        tokens = [e.ids if 0 in e.special_tokens_mask else [] for e in self._tokenizer.encode_batch(texts)]
        vectors = [b""] * len(texts)
        ordered = sorted(
            (place for place, ids in enumerate(tokens) if ids), key=lambda place: len(tokens[place])
        )
        for start in range(0, len(ordered), _AT_ONCE):
            places = ordered[start : start + _AT_ONCE]
            made = self._encode([tokens[place] for place in places])
            lengths = numpy.linalg.norm(made, axis=1)
            if not numpy.isfinite(lengths).all():
                raise InvalidInput("embedder", "made a vector with a number that is not finite")
            for place, vector, length in zip(places, made, lengths, strict=True):
                vectors[place] = (vector / length).astype("<f4").tobytes() if length else b""
        return vectors

    def _encode(self, tokens: list[list[int]]) -> Numbers:
        """Return one vector per text, not normalized."""
        width = max(map(len, tokens))
        ids, mask = numpy.zeros((2, len(tokens), width), numpy.int64)
        for row, some in enumerate(tokens):
            ids[row, : len(some)] = some
            mask[row, : len(some)] = 1
        known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}
        if unknown := self._inputs.keys() - known.keys():
            raise ConfigError(
                f"embedder: the model needs the inputs {', '.join(sorted(unknown))}; supported are"
                f" {', '.join(known)}; export it without the others"
            )
        (made,) = self._session.run(
            [self._output], {name: known[name].astype(kind) for name, kind in self._inputs.items()}
        )
        numbers = numpy.asarray(made, numpy.float32)
        return numbers if self._pooling == SENTENCE else POOLINGS[self._pooling](numbers, mask)


def _files(folder: Path) -> tuple[Path, Path]:
    """Return the paths of the model and the tokenizer."""
    if not folder.is_dir():
        raise ConfigError(f"embedder: the folder {folder} does not exist; name another one")
    model = next((file for name in MODELS if (file := folder / name).is_file()), None)
    if model is None:
        raise ConfigError(
            f"embedder: {folder} has neither {' nor '.join(MODELS)}; export the encoder to ONNX, as"
            " sentence-transformers does"
        )
    if not (folder / TOKENIZER).is_file():
        raise ConfigError(f"embedder: {folder} has no {TOKENIZER}; copy it from the model's folder")
    return model, folder / TOKENIZER


def _json(file: Path) -> Any:
    """Return the parsed JSON of a file; an empty dict if it does not exist."""
    if not file.is_file():
        return {}
    try:
        return json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ConfigError(f"embedder: {file} is not JSON: {error}; export the encoder again") from error


def _longest(folder: Path) -> int:
    """Return the maximum number of tokens per text.

    The first file that states a limit wins, capped by the model's number of positions.
    """
    places = _json(folder / "config.json").get("max_position_embeddings")
    told = [
        _json(folder / "sentence_bert_config.json").get("max_seq_length"),
        _json(folder / "tokenizer_config.json").get("model_max_length"),
        (_json(folder / TOKENIZER).get("truncation") or {}).get("max_length"),
        places,
    ]
    longest = next(filter(None, told), _LONGEST)
    return int(min(longest, places or (longest if longest < _UNTOLD else _LONGEST)))


def _pooling(folder: Path, said: Mapping[str, Any]) -> str:
    """Return the pooling mode that the folder configures.

    Raises:
        ConfigError: There are several modes, an unknown one, or a later step other than
            normalization.
    """
    old = [
        re.sub("_tokens?$", "", name.removeprefix("pooling_mode_"))
        for name, on in said.items()
        if name.startswith("pooling_mode_") and on is True
    ]
    modes = said.get("pooling_mode", old or ["mean"])
    modes = [modes] if isinstance(modes, str) else modes
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise ConfigError(
            f"embedder: {folder / POOLING} asks for the pooling {' and '.join(modes)}; choose one of"
            f" {', '.join(POOLINGS)}"
        )
    kinds = [str(module["type"]).rpartition(".")[2] for module in _json(folder / MODULES) or []]
    if others := [kind for kind in kinds if kind not in ("Transformer", "Pooling", "Normalize")]:
        raise ConfigError(
            f"embedder: {folder / MODULES} has unsupported steps: {', '.join(others)}; export the model with"
            f" its output '{SENTENCE}'"
        )
    return str(modes[0])


def _digest(model: Path, tokenizer: Path, said: str) -> str:
    """Digest everything that determines the vectors.

    These are the model with any weight files beside it, the tokenizer, and `said`: the
    settings.
    """
    whole = blake2b(said.encode(), digest_size=8)
    for file in [*sorted(model.parent.glob(f"{model.name}*")), tokenizer]:
        with file.open("rb") as opened:
            whole.update(file_digest(opened, "blake2b").digest())
    return whole.hexdigest()
