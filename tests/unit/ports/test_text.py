"""How words are stemmed, where more than one thread does it."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from memory.ports import text

LETTERS = "aeiousnylgtrdmpcb"


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def _made_up(count: int) -> list[str]:
    chance = random.Random(3)  # noqa: S311 - repeatable, not secret
    return [
        "".join(chance.choices(LETTERS, k=chance.randint(4, 14)))
        + chance.choice(("", "ing", "ed", "s", "ational"))
        for _ in range(count)
    ]


@pytest.mark.usefixtures("hasty")
@pytest.mark.filterwarnings(
    "default::pytest.PytestUnraisableExceptionWarning"
)  # of counting branches in so hasty threads
def test_threads_that_stem_at_once_do_not_disturb_each_other() -> None:
    words = _made_up(20_000)
    alone = [text.stem(word) for word in words]
    text._stem_cached.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda _: [text.stem(word) for word in words], range(8)))
    assert all(stems == alone for stems in together)
