"""Advisor and reranker that call a function of the user."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias

from memory.ports.advisor import Prompt

AdviseFunction: TypeAlias = Callable[[Prompt], "str | Awaitable[str]"]
"""Takes a prompt and returns the model's answer; may be async.

A blocking function runs in a thread.
"""
ScoreFunction: TypeAlias = Callable[[str, Sequence[str]], "Sequence[float] | Awaitable[Sequence[float]]"]
"""Takes a question and texts, and returns one score per text; may be async.

A blocking function runs in a thread.
"""

AT_ONCE = 8
"""Concurrent calls of one blocking function.

Each function has its own threads, so a call that hangs does not block other work.
"""


class _FunctionCaller:
    def __init__(self, function: Callable[..., Any], model: str | None) -> None:
        self._function = function
        self._threads = ThreadPoolExecutor(AT_ONCE, "memory-advisor")
        name = getattr(function, "__qualname__", type(function).__qualname__)
        self.model = model or f"{getattr(function, '__module__', '?')}.{name}"

    async def _call(self, *given: Any) -> Any:
        if inspect.iscoroutinefunction(self._function):
            return await self._function(*given)
        call = partial(contextvars.copy_context().run, self._function, *given)
        answer = await asyncio.get_running_loop().run_in_executor(self._threads, call)
        return await answer if inspect.isawaitable(answer) else answer


class FunctionAdvisor(_FunctionCaller):
    """Advisor that calls a function: `FunctionAdvisor(ask_my_model, model="my-model")`.

    Args:
        model: Name of the model. The default is the function's qualified name.
    """

    def __init__(self, function: AdviseFunction, *, model: str | None = None) -> None:
        super().__init__(function, model)

    async def advise(self, prompt: Prompt) -> str:
        return await self._call(prompt)  # type: ignore[no-any-return]


class FunctionReranker(_FunctionCaller):
    """Reranker that calls a function: `FunctionReranker(score, model="my-model")`.

    Args:
        model: Name of the model. The default is the function's qualified name.
    """

    def __init__(self, function: ScoreFunction, *, model: str | None = None) -> None:
        super().__init__(function, model)

    async def score(self, question: str, texts: Sequence[str]) -> Sequence[float]:
        return await self._call(question, texts)  # type: ignore[no-any-return]
