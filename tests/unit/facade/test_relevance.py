"""Relevance at the facade: where it is known, and that a threshold nobody can apply is
refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import pytest

from memory import InvalidInput, Memory, MemoryManager, NamedStore
from memory.adapters.embedders.function import FunctionEmbedder
from memory.adapters.embedders.wordllama import WordLlamaEmbedder
from memory.agents.manager import Injection
from memory.policies.ranking.calibration import EMBEDDERS

Way: TypeAlias = Literal["hybrid", "semantic"]

FACTS = (
    "Ada is allergic to peanuts",
    "Ada works in Lisbon as a naval architect",
    "Ada's dog is called Bolota",
    "The refit must stay under 9,500 euros",
    "Berth C17 is ours from June",
)
BY_MEANING_ALONE = {
    "what food is dangerous for her?": "Ada is allergic to peanuts",
    "which animal lives with her?": "Ada's dog is called Bolota",
    "where is her job?": "Ada works in Lisbon as a naval architect",
}
SHARING_WORDS = {
    "which berth do we have from June?": "Berth C17 is ours from June",
    "who is the naval architect?": "Ada works in Lisbon as a naval architect",
    "how much may the refit cost?": "The refit must stay under 9,500 euros",
}
NONSENSE = ("quantum chromodynamics", "how do I bake sourdough bread?")
MORE_NONSENSE = ("symptoms of measles in toddlers", "who composed that opera?", "what is a mortgage?")
MESSAGE = {"role": "user", "content": "I sail to Porto in June", "id": "m1"}


async def test_the_constants_are_those_of_the_bundled_embedder() -> None:
    assert str(await WordLlamaEmbedder().fingerprint()) in EMBEDDERS, (
        "run `python -m bench relevance --write` after a new version"
    )


async def test_every_right_answer_is_more_relevant_than_every_hit_of_nonsense(tmp_path: Path) -> None:
    async with Memory(tmp_path / "a.db") as memory:
        for fact in FACTS:
            await memory.write(fact, scope="user:ada")

        async def found(questions: Iterable[str], mode: Way) -> list[list[tuple[float, str]]]:
            asked = [await memory.search(question, scope="user:ada", mode=mode) for question in questions]
            return [[(hit.relevance or 0.0, hit.content) for hit in hits] for hits in asked]

        ways: tuple[Way, ...] = ("hybrid", "semantic")
        for mode in ways:
            best = [hits[0] for hits in await found(BY_MEANING_ALONE, mode)]
            assert [content for _, content in best] == list(BY_MEANING_ALONE.values())
            nonsense = [relevance for hits in await found(NONSENSE, mode) for relevance, _ in hits]
            assert min(relevance for relevance, _ in best) > max(nonsense)
        best = [hits[0] for hits in await found(SHARING_WORDS, "hybrid")]
        assert [content for _, content in best] == list(SHARING_WORDS.values())
        nonsense = [
            relevance for hits in await found([*NONSENSE, *MORE_NONSENSE], "hybrid") for relevance, _ in hits
        ]
        assert min(relevance for relevance, _ in best) > 5 * max(nonsense)
        exact, *_ = await memory.search("Ada allergic peanuts", scope="user:ada")
        assert exact.relevance is not None
        assert exact.relevance > 0.9
        await memory.session("s1", user="ada").append(MESSAGE)
        recalled = await memory.session("s1").context(recall="dog Bolota", min_relevance=0.5)
        assert [one.text.count("- ") for one in recalled.messages if one.id == "recalled"] == [1]
        with pytest.raises(InvalidInput, match=r"min_relevance: applies only with recall="):
            await memory.session("s1").context(min_relevance=0.5)


async def test_with_an_unknown_embedder_relevance_is_none_and_a_threshold_is_refused_by_name(
    tmp_path: Path,
) -> None:
    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, float("tea" in text)] for text in texts]

    async with Memory(tmp_path / "a.db", embedder=FunctionEmbedder(embed, model="mine")) as memory:
        await memory.write("Ada drinks tea", scope="user:ada")
        session = memory.session("s1", user="ada")
        await session.append(MESSAGE)
        view = memory.scoped("user:ada")
        explicit = MemoryManager([NamedStore("ada", view)], injection=Injection(min_relevance=0.5))
        for refused in (
            memory.search("tea", scope="user:ada", min_relevance=0.5),
            memory.search("tea", scope="user:ada", mode="semantic", min_relevance=0),
            view.search("tea", min_relevance=0.5, messages=True),
            session.search("sail", min_relevance=0.5),
            memory.search_messages("sail", min_relevance=0.5),
            session.context(recall="tea", min_relevance=0.5),
            explicit.open(),
        ):
            with pytest.raises(
                InvalidInput, match=r"min_relevance: relevance is unknown with the embedder mine"
            ):
                await refused
        (hit,) = await memory.search("tea", scope="user:ada", explain=True)
        assert (hit.relevance, hit.explanation["relevance"]["lexical_share"]) == (None, 1.0)
        assert hit.score is not None
        (by_words,) = await memory.search("tea", scope="user:ada", mode="lexical", min_relevance=0.5)
        assert by_words.relevance is not None
        shown = await MemoryManager([NamedStore("ada", view)], injection=Injection()).inject(
            [{"role": "user", "content": "tea?"}]
        )
        assert "Ada drinks tea" in shown[0]["content"], (
            "the default threshold does not apply where relevance is unknown"
        )
