"""A counter of one's own: handed in, or named in the configuration; what another has
counted is counted again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from memory import ConfigError, InvalidInput, Memory
from memory.facade.config.settings import MemoryConfig
from memory.policies.tokens import MESSAGE_TOKENS, DefaultCounter, FunctionCounter

MESSAGE = {"role": "user", "content": "one two three", "id": "u1"}


def words(text: str) -> int:
    return len(text.split())


class Letters:
    name = "letters"

    def count(self, text: str) -> int:
        return len(text)


async def _cost(counter: Any = None, path: str = "memory://", **settings: Any) -> list[int]:
    async with Memory(path, embedder="none", accept_loss=True, token_counter=counter, **settings) as memory:
        session = memory.session("s1")
        await session.append(MESSAGE)
        return (await session.context(tools=[])).tokens


@pytest.mark.parametrize(
    ("counter", "tokens"),
    [(None, 4), ("estimate", 4), (words, 3), (FunctionCounter(words, name="words"), 3), (Letters(), 13)],
    ids=["default", "named", "function", "named-function", "counter"],
)
@pytest.mark.behaviour("A111", "C16")
async def test_messages_are_counted_by_the_counter_that_was_handed_in(counter: Any, tokens: int) -> None:
    assert await _cost(counter) == [MESSAGE_TOKENS + tokens]


async def test_what_another_counter_has_counted_is_counted_again(tmp_path: Path) -> None:
    file = f"sqlite:///{tmp_path / 'memory.db'}"
    assert [await _cost(counter, file) for counter in (words, Letters(), None, words)] == [
        [7],
        [17],
        [8],
        [7],
    ]


async def test_budgets_are_kept_by_it() -> None:
    async with Memory("memory://", embedder="none", accept_loss=True, token_counter=words) as memory:
        session = memory.session("s1")
        await session.append([{"role": "user", "content": "a b c", "id": f"u{n}"} for n in range(5)])
        context = await session.context(2 * (MESSAGE_TOKENS + 3))
        assert [message.id for message in context.messages] == ["u3", "u4"]
        assert context.total_tokens == 14


async def test_a_counter_that_says_no_number_of_tokens_is_refused() -> None:
    for says in (-1, 1.5, True, None):
        with pytest.raises(InvalidInput, match="token_counter: must return a whole number"):
            await _cost(lambda _, says=says: says)
    with pytest.raises(ConfigError, match="token_counter: must be a TokenCounter, a function"):
        Memory("memory://", token_counter=3)  # type: ignore[arg-type]


async def test_one_that_another_distribution_registers_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_counters.py").write_text(
        "class Bytes:\n    name = 'bytes'\n    def count(self, text):\n        return len(text.encode())\n"
    )
    info = tmp_path / "their_counters-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-counters\nVersion: 1.0\n")
    points = [
        "[memory.token_counters]",
        "bytes = their_counters:Bytes",
        "broken = not_installed_at_all:Counter",
    ]
    (info / "entry_points.txt").write_text("\n".join([*points, ""]))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert await _cost("bytes") == [MESSAGE_TOKENS + 13]
    with pytest.raises(ConfigError, match="token_counter: 'broken' needs 'not_installed_at_all'"):
        await _cost("broken")
    with pytest.raises(ConfigError, match="there is no 'tokens'; there are: estimate, broken, bytes"):
        await _cost("tokens")


async def test_it_is_set_in_a_file_and_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def named(source: Any) -> object:
        return MemoryConfig.load(source).leaves()["token_counter"]

    assert named({}) == DefaultCounter().name
    file = tmp_path / "memory.toml"
    file.write_text('token_counter = "bytes"\n')
    assert named(file) == "bytes"
    monkeypatch.setenv("MEMORY__TOKEN_COUNTER", "letters")
    assert named(file) == "letters"
