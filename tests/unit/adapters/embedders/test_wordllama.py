"""The embedder that everyone gets: where it works, and how texts are put together."""

from __future__ import annotations

import random
import threading

import pytest

from memory.adapters.embedders.wordllama import WordLlamaEmbedder, _of_like_length

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
async def test_what_takes_long_is_embedded_in_a_thread(embedder: Watched, texts: list[str], in_place: bool) -> None:
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
    assert await embedder.embed([texts[place] for place in shuffled]) == [together[place] for place in shuffled]


@pytest.mark.parametrize("lengths", [[65_000] * 10, [5] * 200, [65_000, *[5] * 100], [0, 0, 1, 64_000, 64_001], []], ids=str)
def test_texts_put_together_are_filled_up_to_no_more_than_there_is_room_for(lengths: list[int]) -> None:
    groups = list(_of_like_length(["x" * length for length in lengths]))
    assert sorted(place for group in groups for place in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) <= 64
        assert len(group) == 1 or len(group) * max(lengths[place] for place in group) <= 64_000
