"""An embedder of the user that fails: words still answer, and nothing is written unseen."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from memory import Memory

ADA = "user:ada"
NOTE = "the embedder failed (ConnectionError): the search was by words alone"


class Model:
    """An embedder that can be away."""

    away = False

    async def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        if self.away:
            raise ConnectionError("https://key@models.example")
        return [[1.0, float(len(text))] for text in texts]


async def test_a_hybrid_search_finds_by_words_while_the_embedder_fails() -> None:
    model = Model()
    async with Memory("memory://", accept_loss=True, embedder=model) as memory:
        await memory.write("Ada drinks tea", scope=ADA)
        session = memory.session("ada/s1", user="ada")
        model.away = True
        await session.append({"role": "user", "content": "Is there more tea?"})
        hits = await memory.search("tea", scope=ADA)
        assert ([hit.content for hit in hits], list(hits.degraded)) == (["Ada drinks tea"], [NOTE])
        both = await memory.search("tea", scope=ADA, messages=True)
        assert (len(both), list(both.degraded)) == (2, [NOTE])
        found = await memory.search_messages("tea")
        assert (len(found), list(found.degraded)) == (1, [NOTE])
        context = await session.context(100, recall="tea")
        assert "Ada drinks tea" in context.messages[0].text
        assert (await memory.commands.run("/mem search tea", scope=ADA))[0].is_error is False
        model.away = False
        assert list((await memory.search("tea", scope=ADA)).degraded) == []


async def test_what_needs_a_vector_raises_the_error_of_the_embedder() -> None:
    model = Model()
    async with Memory("memory://", accept_loss=True, embedder=model) as memory:
        await memory.write("Ada drinks tea", scope=ADA)
        model.away = True
        for call in (
            memory.search("tea", scope=ADA, mode="semantic"),
            memory.search_messages("tea", mode="semantic"),
            memory.write("Ada drinks coffee", scope=ADA),
        ):
            with pytest.raises(ConnectionError):
                await call
        assert [entry.content for entry in await memory.browse()] == ["Ada drinks tea"]
