"""Errors of callbacks, stores and models of the user, as errors of the library quote
them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from memory import (
    CompactionError,
    CompositeProvider,
    Memory,
    MemoryManager,
    NamedStore,
    ProviderFailure,
    StoreAddFailure,
)


async def finds_no_key(*_: object, **__: object) -> Any:
    answer: dict[str, Any] = {}
    return answer["choices"]


async def times_out(*_: object, **__: object) -> Any:
    raise TimeoutError


@pytest.mark.parametrize(
    ("foreign", "said"), [(finds_no_key, "KeyError: 'choices'"), (times_out, "TimeoutError")]
)
async def test_an_error_without_a_telling_text_is_quoted_with_its_type(
    foreign: Callable[..., Awaitable[Any]], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    part = SimpleNamespace(read=foreign, write=foreign, search=foreign, add=foreign, type="part")
    async with Memory("memory://", advisor=foreign) as memory:
        entry = await memory.write("Ada sails", scope="user:ada")
        with pytest.raises(CompactionError, match=said):
            await memory.compact([entry.id], foreign)
        session = memory.session("s", user="ada")
        await session.append([{"role": "user", "content": text} for text in ("one", "two")])
        with pytest.raises(CompactionError, match=said):
            await session.compact(foreign, keep_last=1)
        with pytest.raises(StoreAddFailure, match=f"'store': {said}$"):
            await MemoryManager([NamedStore("store", part, writable=True)]).add("tea")
        with pytest.raises(ProviderFailure, match=f"part: {said}$"):
            await CompositeProvider([part]).read("s")
        with caplog.at_level(logging.WARNING):
            await memory.search("Ada", scope="user:ada", expand=True)
    answers = [record.getMessage() for record in caplog.records if "gave no answer" in record.getMessage()]
    assert answers
    assert all(answer.endswith(said) for answer in answers)
