"""A sentence encoder in a folder: its vectors, how long a text it takes, its
fingerprint, and what is said where it cannot be used.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import numpy.typing as npt
import pytest

from memory import EmbedderMismatch, Memory, Scope
from memory.adapters.embedders.folder import FolderEmbedder
from memory.domain.errors import ConfigError
from tests.support.encoders import DIMENSIONS, make_encoder, of_words

Numbers = npt.NDArray[numpy.float32]
LONG = "tea coffee beverage hot ferry boat harbour runs on sundays"


def unit(vector: Numbers) -> list[float]:
    return [float(number) for number in vector / numpy.linalg.norm(vector)]


async def embedded(folder: Path, *texts: str) -> list[Any]:
    return [numpy.frombuffer(vector, "<f4").tolist() for vector in await FolderEmbedder(folder).embed(texts)]


@pytest.mark.parametrize("where", ["onnx/model.onnx", "model.onnx"])
@pytest.mark.parametrize("integers", ["INT64", "INT32"])
async def test_a_text_is_the_mean_of_its_tokens_at_length_one(
    tmp_path: Path, where: str, integers: str
) -> None:
    folder = make_encoder(tmp_path, where=where, integers=integers)
    (vector,) = await embedded(folder, "Ada prefers TEA")
    assert vector == pytest.approx(unit(of_words("ada prefers tea").mean(axis=0)), abs=1e-6)


async def test_a_relative_folder_is_loaded_where_it_was_when_the_process_changes_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_encoder(tmp_path)
    monkeypatch.chdir(folder.parent)
    embedder = FolderEmbedder(folder.name)
    monkeypatch.chdir("/")
    (vector,) = await embedder.embed(["tea"])
    assert numpy.frombuffer(vector, "<f4") == pytest.approx(unit(of_words("tea").mean(axis=0)), abs=1e-6)


POOLED: dict[str, Callable[[Numbers], Numbers]] = {
    "mean": lambda tokens: numpy.asarray(tokens.mean(axis=0)),
    "cls": lambda tokens: tokens[0],
    "max": lambda tokens: numpy.asarray(tokens.max(axis=0)),
    "lasttoken": lambda tokens: tokens[-1],
}
OLD = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens", "lasttoken": "lasttoken"}


@pytest.mark.parametrize("mode", POOLED)
@pytest.mark.parametrize("written", ["old", "new"])
async def test_tokens_become_one_vector_as_the_folder_says(tmp_path: Path, mode: str, written: str) -> None:
    said = (
        {"pooling_mode": mode}
        if written == "new"
        else {f"pooling_mode_{OLD[other]}": other == mode for other in OLD}
    )
    folder = make_encoder(tmp_path, files={"1_Pooling/config.json": said})
    texts = ("tea on sundays", LONG)  # of two lengths: what stands beside the shorter one counts for nothing
    assert await embedded(folder, *texts) == [
        pytest.approx(unit(POOLED[mode](of_words(text))), abs=1e-6) for text in texts
    ]


async def test_a_model_that_makes_the_vector_of_a_text_is_taken_at_its_word(tmp_path: Path) -> None:
    modules = [
        {"type": f"sentence_transformers.models.{name}"} for name in ("Transformer", "Pooling", "Dense")
    ]
    folder = make_encoder(tmp_path, sentence=True, files={"modules.json": modules})
    assert await embedded(folder, "tea") == [pytest.approx(unit(of_words("")[0]), abs=1e-6)]


async def test_a_text_has_the_same_vector_alone_and_among_any_others(tmp_path: Path) -> None:
    embedder = FolderEmbedder(make_encoder(tmp_path))
    texts = [" ".join(LONG.split()[: 1 + number % 9]) + " tea" * (number // 9) for number in range(80)]
    together = await embedder.embed(texts)
    for text, vector in zip(texts, together, strict=True):
        (alone,) = await embedder.embed([text])
        assert numpy.frombuffer(vector, "<f4") == pytest.approx(numpy.frombuffer(alone, "<f4"), abs=1e-6)


async def test_a_text_of_no_words_has_no_vector(tmp_path: Path) -> None:
    embedder = FolderEmbedder(make_encoder(tmp_path))
    assert [len(vector) for vector in await embedder.embed(["", "tea", " "])] == [0, 4 * DIMENSIONS, 0]
    assert await embedder.embed([]) == []


@pytest.mark.parametrize(
    "files",
    [
        {
            "sentence_bert_config.json": {"max_seq_length": 5},
            "tokenizer_config.json": {"model_max_length": 8},
            "config.json": {"max_position_embeddings": 9},
        },
        {"tokenizer_config.json": {"model_max_length": 5}, "config.json": {"max_position_embeddings": 9}},
        {"config.json": {"max_position_embeddings": 5}},
        {
            "sentence_bert_config.json": {"max_seq_length": None},
            "tokenizer_config.json": {"model_max_length": 1e30},
            "config.json": {"max_position_embeddings": 5},
        },
    ],
    ids=["the encoder's own", "the tokenizer's", "the model's places", "the tokenizer knows no limit"],
)
async def test_a_text_is_cut_where_the_model_takes_no_more(tmp_path: Path, files: dict[str, Any]) -> None:
    folder = make_encoder(tmp_path, files=files)
    assert await embedded(folder, LONG) == await embedded(folder, "tea coffee beverage")


async def test_a_text_is_cut_where_the_tokenizer_s_own_file_says_so(tmp_path: Path) -> None:
    folder = make_encoder(tmp_path)
    said = json.loads((folder / "tokenizer.json").read_text())
    said["truncation"] = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
    (folder / "tokenizer.json").write_text(json.dumps(said))
    assert await embedded(folder, LONG) == await embedded(folder, "tea coffee beverage")


async def test_a_folder_that_says_nothing_takes_the_longest_that_is_usual(tmp_path: Path) -> None:
    folder = make_encoder(tmp_path)
    usual, longer = await embedded(folder, "tea " * 510, "tea " * 510 + "ferry " * 500)
    assert longer == pytest.approx(usual, abs=1e-6)


async def test_the_fingerprint_is_of_what_the_files_hold(tmp_path: Path) -> None:
    folder = make_encoder(tmp_path / "one", files={"sentence_bert_config.json": {"max_seq_length": 9}})
    mine = await FolderEmbedder(folder).fingerprint()
    assert mine.dimensions == DIMENSIONS
    shutil.copytree(folder, tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "README.md").write_text("what it was trained on")
    assert await FolderEmbedder(tmp_path / "elsewhere").fingerprint() == mine
    changes: dict[str, Callable[[Path], object]] = {
        "model": lambda other: make_encoder(other, inputs=("input_ids",)),
        "numbers beside the model": lambda other: (other / "onnx" / "model.onnx_data").write_bytes(
            b"numbers"
        ),
        "tokenizer": lambda other: (other / "tokenizer.json").write_text(
            (other / "tokenizer.json").read_text().replace('"tea"', '"cha"')
        ),
        "pooling": lambda other: make_encoder(
            other, files={"1_Pooling/config.json": {"pooling_mode": "cls"}}
        ),
        "length": lambda other: make_encoder(
            other, files={"sentence_bert_config.json": {"max_seq_length": 8}}
        ),
    }
    others = {}
    for what, change in changes.items():
        change(shutil.copytree(folder, tmp_path / what))
        others[what] = (await FolderEmbedder(tmp_path / what).fingerprint()).model
    assert len({mine.model, *others.values()}) == 1 + len(changes), others


async def test_the_model_is_loaded_once_in_a_thread_however_many_ask_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    loaded = []

    class Noted(onnxruntime.InferenceSession):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            loaded.append(threading.current_thread())
            super().__init__(*args, **options)

    monkeypatch.setattr(onnxruntime, "InferenceSession", Noted)
    embedder = FolderEmbedder(make_encoder(tmp_path))
    answers = await asyncio.gather(*(embedder.embed(["tea"]) for _ in range(8)), embedder.fingerprint())
    assert len({str(answer) for answer in answers[:8]}) == 1
    assert len(loaded) == 1
    assert loaded != [threading.current_thread()]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (shutil.rmtree, "the folder {folder} does not exist; name another one"),
        (
            lambda folder: (folder / "onnx" / "model.onnx").unlink(),
            "{folder} has neither onnx/model.onnx nor model.onnx; export the encoder to ONNX",
        ),
        (lambda folder: (folder / "tokenizer.json").unlink(), "{folder} has no tokenizer.json"),
        (
            lambda folder: (folder / "onnx" / "model.onnx").write_bytes(b"half"),
            "cannot load the encoder in {folder}: ",
        ),
        (
            lambda folder: (folder / "tokenizer.json").write_text("{}"),
            "cannot load the encoder in {folder}: ",
        ),
        (lambda folder: (folder / "config.json").write_text("{"), "{folder}/config.json is not JSON: "),
        (
            lambda folder: make_encoder(folder, files=pooled(pooling_mode="weightedmean")),
            "asks for the pooling weightedmean; choose one of mean, cls, ",
        ),
        (
            lambda folder: make_encoder(
                folder, files=pooled(pooling_mode_cls_token=True, pooling_mode_max_tokens=True)
            ),
            "asks for the pooling cls and max; ",
        ),
        (
            lambda folder: make_encoder(folder, files=pooled(word_embedding_dimension=384)),
            "config.json says 384 dimensions, but model.onnx makes 8",
        ),
        (
            lambda folder: make_encoder(folder, files=pooled(embedding_dimension=384)),
            "config.json says 384 dimensions, but model.onnx makes 8",
        ),
        (
            lambda folder: make_encoder(
                folder, files={"modules.json": [{"type": "sentence_transformers.models.Dense"}]}
            ),
            "modules.json has unsupported steps: Dense; export the model",
        ),
        (
            lambda folder: make_encoder(folder, inputs=("input_ids", "pixels")),
            "the model needs the inputs pixels; supported are input_ids, ",
        ),
    ],
    ids=[
        "folder",
        "model",
        "tokenizer",
        "broken model",
        "broken tokenizer",
        "broken config",
        "pooling",
        "two poolings",
        "dimensions",
        "new dimensions",
        "dense",
        "inputs",
    ],
)
async def test_what_cannot_be_used_says_what_is_wrong(
    tmp_path: Path, spoil: Callable[[Path], object], message: str
) -> None:
    folder = make_encoder(tmp_path / "encoder")
    spoil(folder)
    with pytest.raises(ConfigError) as refused:
        await FolderEmbedder(folder).fingerprint()
    assert str(refused.value).startswith("embedder: ")
    assert message.format(folder=folder) in str(refused.value)


def pooled(**said: Any) -> dict[str, Any]:
    return {"1_Pooling/config.json": said}


async def test_without_the_extra_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ConfigError, match=r"needs 'onnxruntime'; run pip install 'memory-tiers\[encoder\]'"):
        await Memory(
            f"sqlite:///{tmp_path / 'memory.db'}",
            embedder={"use": "folder", "path": str(make_encoder(tmp_path / "encoder"))},
        ).open()


@pytest.mark.backend("sqlite")
async def test_a_memory_finds_by_the_meaning_that_the_encoder_of_its_file_has(tmp_path: Path) -> None:
    make_encoder(tmp_path / "encoder")
    (tmp_path / "memory.toml").write_text(
        'embedder = { use = "folder", path = "encoder" }\n[stores.main]\nurl = "sqlite:///memory.db"\n'
    )
    ada = Scope.user("ada")
    async with Memory(tmp_path / "memory.toml") as memory:
        assert (
            memory.config.leaves() | {"embedder.use": "folder", "embedder.path": str(tmp_path / "encoder")}
            == memory.config.leaves()
        )
        await memory.write_many([{"content": text, "scope": ada} for text in ("ferry", "tea")])
        assert [hit.entry.content for hit in await memory.search("beverage", scope=ada)][:1] == ["tea"]
    with pytest.raises(EmbedderMismatch, match="encoder-"):
        await Memory(f"sqlite:///{tmp_path / 'memory.db'}").open()
