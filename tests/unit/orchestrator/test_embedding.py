"""Texts that many callers have embedded at the same time go to the embedder as one call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from memory import Memory, Scope
from memory.orchestrator.embedding import MOST, SharedEmbedder
from memory.ports.embedder import Fingerprint


class Counting:
    """An embedder that notes what it was asked, never answers what it holds, and fails over some texts."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.begun = asyncio.Event()
        self.holds: set[str] = set()
        self.fails: set[str] = set()
        self.loses: set[str] = set()

    async def fingerprint(self) -> Fingerprint:
        return Fingerprint("counting", 1)

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        self.calls.append(list(texts))
        self.begun.set()
        if self.holds & set(texts):
            await asyncio.Event().wait()
        if self.fails & set(texts):
            raise OSError("no answer")
        return [text.encode() for text in texts if text not in self.loses]


def asked(shared: SharedEmbedder, texts: Sequence[str]) -> list[asyncio.Task[list[bytes]]]:
    return [asyncio.create_task(shared.embed([text])) for text in texts]


async def test_who_asks_in_the_same_turn_shares_a_call_and_each_gets_its_own() -> None:
    shared = SharedEmbedder(counting := Counting())
    texts = [str(number) for number in range(MOST + 3)]
    assert await asyncio.gather(*asked(shared, texts)) == [[text.encode()] for text in texts]
    assert counting.calls == [texts[:MOST], texts[MOST:]]
    assert await shared.embed(["later"]) == [b"later"]
    assert await shared.embed(["two", "at once"]) == [b"two", b"at once"]


async def test_nobody_waits_for_a_call_that_is_under_way() -> None:
    shared = SharedEmbedder(counting := Counting())
    counting.holds = {"a"}
    hanging = asked(shared, ["a", "b"])
    await counting.begun.wait()
    async with asyncio.timeout(5):
        assert await asyncio.gather(*asked(shared, ["c"])) == [[b"c"]]
        assert await asyncio.gather(*asked(shared, ["d", "e"])) == [[b"d"], [b"e"]]
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)


@pytest.mark.parametrize("leaves", [0, 1, 2])
async def test_who_is_cancelled_cuts_off_nobody_else(leaves: int) -> None:
    shared = SharedEmbedder(counting := Counting())
    tasks = asked(shared, ["a", "b", "c"])
    await asyncio.sleep(0)
    tasks[leaves].cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [n for n, one in enumerate(answers) if isinstance(one, asyncio.CancelledError)] == [leaves]
    assert [one for one in answers if isinstance(one, list)] == [[text.encode()] for n, text in enumerate("abc") if n != leaves]
    assert "abc"[leaves] not in [text for call in counting.calls for text in call]


async def test_one_text_that_fails_fails_no_other() -> None:
    shared = SharedEmbedder(counting := Counting())
    counting.fails, counting.loses = {"b"}, {"d"}
    answers = await asyncio.gather(*asked(shared, ["a", "b", "c", "d"]), return_exceptions=True)
    assert isinstance(answers[1], OSError)
    assert isinstance(answers[3], ValueError), "no vector came back for it"
    assert [answers[0], answers[2]] == [[b"a"], [b"c"]]


async def test_an_event_loop_that_ends_leaves_nobody_waiting() -> None:
    shared = SharedEmbedder(counting := Counting())
    counting.holds = {"a"}
    tasks = asked(shared, ["a", "b", "c"])
    await counting.begun.wait()
    for task in asyncio.all_tasks() - {*tasks, asyncio.current_task()}:
        task.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in answers)


async def test_writes_at_once_share_the_embedders_calls() -> None:
    calls: list[int] = []

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        calls.append(len(texts))
        return [[1.0, float(len(text))] for text in texts]

    async with Memory("sqlite:///:memory:", embedder=embed, accept_loss=True) as memory:
        calls.clear()
        await asyncio.gather(*(memory.write(f"fact {number}", scope=Scope.user("ada")) for number in range(50)))
        assert calls == [50]
