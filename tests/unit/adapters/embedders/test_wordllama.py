"""The embedder that everyone gets: where it works, and that its vectors are
WordLlama's.
"""

from __future__ import annotations

import random
import sys
import threading
import unicodedata
from pathlib import Path

import numpy
import pytest

from memory.adapters.embedders.wordllama import WordLlamaEmbedder

WORDS = "the ferry runs on Sundays when Ada drinks tea in Lisbon quietly".split()


class Watched(WordLlamaEmbedder):
    """Notes the thread that embeds."""

    threads: list[threading.Thread]

    def _embed(self, texts: list[str]) -> list[bytes]:
        self.threads = [*getattr(self, "threads", []), threading.current_thread()]
        return super()._embed(texts)


@pytest.fixture(scope="module")
def embedder() -> Watched:
    loaded = Watched()
    loaded._embed(["tea"])
    return loaded


@pytest.mark.parametrize(
    ("texts", "in_place"),
    [
        (["tea"], True),
        (["x " * 2_000], True),
        (["x " * 2_000, "y"], False),
        (["x " * 400] * 10, False),
        (["tea"] * 65, False),
        (["x " * 32_000], False),
    ],
    ids=["short", "4000 characters", "4001 in all", "8000 in all", "65 texts", "the longest"],
)
async def test_what_takes_long_is_embedded_in_a_thread(
    embedder: Watched, texts: list[str], in_place: bool
) -> None:
    embedder.threads = []
    assert len(await embedder.embed(texts)) == len(texts)
    assert [thread is threading.current_thread() for thread in embedder.threads] == [in_place]


async def test_the_model_is_loaded_in_a_thread() -> None:
    fresh = Watched()
    await fresh.embed(["tea"])
    assert fresh.threads != [threading.current_thread()]


async def test_a_text_has_the_same_vector_alone_and_among_any_others(embedder: Watched) -> None:
    chance = random.Random(5)  # noqa: S311 - the same texts in every run
    texts = [" ".join(chance.choices(WORDS, k=chance.randrange(0, 400))) for _ in range(150)]
    together = await embedder.embed(texts)
    chance.shuffle(shuffled := list(range(len(texts))))
    assert [(await embedder.embed([text]))[0] for text in texts] == together
    assert await embedder.embed([texts[place] for place in shuffled]) == [
        together[place] for place in shuffled
    ]


# What stores keep. The numbers were noted when `wordllama` 0.4.0 itself made the
# vectors.
PINNED = {
    "Ada prefers tea to coffee": (0.0246662, 0.0866906, -0.0549040, -0.0341752),
    "Паром ходит по воскресеньям": (-0.0690196, 0.1356259, -0.0373545, 0.0132165),
    "渡し船は日曜日に運航します": (-0.0832647, 0.1788003, 0.0344424, -0.0158169),
    "العبّارة تعمل يوم الأحد": (-0.0410331, -0.0238411, -0.0233960, -0.0297794),
    "रविवार को नाव चलती है 👩🏽‍🚀": (-0.1469065, 0.0362896, 0.0834028, -0.0647061),
    " ": (-0.0904848, -0.0068723, 0.0195893, 0.0728999),
    "": (),
}


@pytest.mark.parametrize("text", PINNED)
def test_a_text_has_the_vector_that_it_had_under_this_fingerprint(embedder: Watched, text: str) -> None:
    (vector,) = embedder._embed([text])
    assert numpy.frombuffer(vector, "<f4")[:4] == pytest.approx(PINNED[text], abs=1e-6)


async def test_the_fingerprint_names_the_model_and_its_release(embedder: Watched) -> None:
    assert str(await embedder.fingerprint()) == "wordllama-0.4.0/l2_supercat (256 dimensions, cosine)"


def test_vectors_are_the_very_ones_that_wordllama_makes(embedder: Watched) -> None:
    """Bit by bit, for every character there is, white space of every kind and what the
    tokenizer takes for its own signs.
    """
    import wordllama

    model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    characters = [
        c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) not in ("Cn", "Co", "Cs")
    ]
    blocks = ["".join(characters[first : first + 150]) for first in range(0, len(characters), 150)]
    texts = [*PINNED, "a  b   c\t\n\r\n\x00 \u2581x\u2581 <s>tea</s> <unk>", *blocks]
    expected = numpy.concatenate([model.embed([text]) for text in texts])
    expected /= numpy.maximum(numpy.linalg.norm(expected, axis=1, keepdims=True), numpy.finfo("f4").tiny)
    assert [vector or bytes(1024) for vector in embedder._embed(texts)] == [
        vector.tobytes() for vector in expected
    ]
