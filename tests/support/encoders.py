"""A small sentence encoder in a folder: a real ONNX model and a real tokenizer, whose
vectors can be worked out by hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy
import numpy.typing as npt

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = (*SPECIAL, *"tea coffee beverage hot ferry boat harbour runs on sundays ada prefers drinks".split())
DIMENSIONS = 8
ALIKE = {"coffee": "tea", "beverage": "tea", "boat": "ferry", "harbour": "ferry"}
"""Words whose vectors are nearly those of others."""


def table() -> npt.NDArray[numpy.float32]:
    """The vector of each word, in the order of WORDS."""
    numbers = numpy.random.default_rng(3).standard_normal((len(WORDS), DIMENSIONS)).astype(numpy.float32)
    for word, other in ALIKE.items():
        numbers[WORDS.index(word)] = numbers[WORDS.index(other)] + 0.1 * numbers[WORDS.index(word)]
    return numbers


def of_words(text: str) -> npt.NDArray[numpy.float32]:
    """The vectors of the tokens of a text, those that the tokenizer puts around it too."""
    known = [WORDS.index(word) if word in WORDS else 1 for word in text.lower().split()]
    return table()[[2, *known, 3]]


def make_encoder(
    folder: Path,
    *,
    where: str = "onnx/model.onnx",
    sentence: bool = False,
    inputs: Sequence[str] = ("input_ids", "attention_mask", "token_type_ids"),
    integers: str = "INT64",
    files: Mapping[str, Any] = MappingProxyType({}),
) -> Path:
    """Make one. It looks each token up; with `sentence` its output is the first token's
    vector, under the name that says so. `files`: what else the folder holds, as JSON.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])]
    outputs = [
        helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["texts", "tokens", DIMENSIONS])
    ]
    constants = [numpy_helper.from_array(table(), "table")]
    if sentence:
        nodes.append(
            helper.make_node("Gather", ["last_hidden_state", "nought"], ["sentence_embedding"], axis=1)
        )
        outputs.append(
            helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["texts", DIMENSIONS])
        )
        constants.append(numpy_helper.from_array(numpy.array(0, numpy.int64), "nought"))
    asked = [
        helper.make_tensor_value_info(name, getattr(TensorProto, integers), ["texts", "tokens"])
        for name in inputs
    ]
    graph = helper.make_graph(nodes, "encoder", asked, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / where).parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(folder / where))
    _tokenizer(folder / "tokenizer.json")
    for name, said in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(said))
    return folder


def _tokenizer(file: Path) -> None:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))  # noqa: S106 - no password
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.save(str(file))
