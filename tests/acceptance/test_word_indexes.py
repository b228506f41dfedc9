"""Word indexes that an earlier tokenizer made are rebuilt: in the background after
opening, and by a repair.
"""

from __future__ import annotations

import re
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from memory.facade.memory import Memory
from memory.facade.runtime import background as upkeep
from memory.facade.runtime.access import engine_of
from memory.ports import lexical
from memory.ports.text import TOKENIZER, fold, words
from tests.acceptance.support import USER
from tests.support.waiting import until

WRITTEN = ("मुझे माला पसंद है", "ฉันชอบดื่มชาเขียวตอนเช้า", "Ada prefers tea")
ASKED = ("माला", "ชาเขียว", "tea")


@pytest.fixture
async def filled(config: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A memory as an earlier version left it, whose words were runs of letters without
    signs.
    """
    if "memory:" in str(config["tiers"]):
        pytest.skip("keeps nothing for a later version")
    with monkeypatch.context() as earlier:
        earlier.setattr(lexical, "cut_to_index", lambda text: re.findall(r"[^\W_]+", fold(text)))
        async with Memory(config | {"durations": {"sweep_every": "0s"}}) as memory:
            for text in WRITTEN:
                await memory.write(text, scope=USER)
    return config


async def found(memory: Memory) -> list[str]:
    return [
        hit.entry.content
        for word in ASKED
        for hit in (await memory.search(word, scope=USER, mode="lexical"))[:1]
    ]


async def test_after_opening_words_of_an_earlier_tokenizer_are_made_anew(
    filled: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "FIRST_AFTER", timedelta(milliseconds=20))
    async with Memory(filled) as memory:

        async def all_found() -> bool:
            return await found(memory) == list(WRITTEN)

        await until(all_found)
        await until(lambda: _is_noted(memory))


async def _is_noted(memory: Memory) -> bool:
    return await engine_of(memory).word_indexes.rebuild_outdated() == []


async def test_a_repair_makes_them_anew_and_another_opening_has_nothing_to_do(filled: dict[str, Any]) -> None:
    async with Memory(filled | {"durations": {"sweep_every": "0s"}}) as memory:
        assert await found(memory) != list(WRITTEN)
        assert any(one.problems for one in await memory.admin.audit(repair=True))
        assert await found(memory) == list(WRITTEN)
        await engine_of(memory).word_indexes.rebuild_outdated()
    async with Memory(filled | {"durations": {"sweep_every": "0s"}}) as memory:
        assert await engine_of(memory).word_indexes.rebuild_outdated() == []


def test_other_words_have_another_version() -> None:
    """Where this fails, raise `TOKENIZER`, so that stores make their words anew, and
    then put the new digest here.
    """
    text = (
        Path(__file__).with_name("scripts.txt").read_text()
        + "Café naïve deploying connections 10.0.0.12 C# foo_bar ﾃｽﾄ 👩‍👩‍👧 مُحَمَّد שָׁלוֹם ශ්‍රී محمــد ٢٠٢٦"
    )
    assert (TOKENIZER, sha256(" ".join(words(text)).encode()).hexdigest()[:16]) == (3, "a05a42bea15f9d72")
