"""How a worker has stores learn from a session, and shows a model what is known: by a
manager over stores that say what they were told.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memory import Memory, MemoryManager, Message, NamedStore
from memory.agents.manager import EveryNTurns, ExtractedFact, Extraction, Injection, ModelExtractor
from memory.ports.advisor import Prompt

HEARD, NOTED = "heard", "noted"
"""A store that takes what is said as it is, and one for which a model notes it."""


@dataclass(slots=True)
class Learnt:
    """What stores were told, by session; and what was said of it first, as it is
    stored.
    """

    heard: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    noted: dict[str, list[str]] = field(default_factory=dict)
    stored: list[Message] = field(default_factory=list)
    whole: bool | None = None
    """Whether the recording ended with nothing left to tell; None where its process
    ended first.
    """


class _Heard:
    def __init__(self, learnt: Learnt, down: Sequence[str]) -> None:
        self._learnt = learnt
        self._down = down

    async def search(self, query: str, *, limit: int) -> list[str]:
        return []

    async def add_messages(self, messages: Sequence[Message], context: Mapping[str, Any]) -> None:
        if HEARD in self._down:
            raise OSError("down")
        told = zip(context["sequence_numbers"], [message.text for message in messages], strict=True)
        self._learnt.heard.setdefault(context["session_id"], []).extend(told)


class _Noted:
    async def search(self, query: str, *, limit: int) -> list[str]:
        return []

    async def add(self, content: str, metadata: Any = None, *, key: str) -> None:
        """What a model noted is kept."""


def _notes_all(prompt: Prompt) -> str:
    """The model: it notes every line."""
    return f"Noted: {json.dumps([{'content': line} for line in prompt.user.splitlines()[1:]])}."


def _managing(memory: Memory, learnt: Learnt, down: Sequence[str]) -> MemoryManager:
    reads = ModelExtractor(_notes_all)

    async def noted(messages: Sequence[Message], context: Mapping[str, Any]) -> list[ExtractedFact]:
        if NOTED in down:
            raise OSError("down")
        facts = await reads(messages, context)
        learnt.noted.setdefault(context["session_id"], []).extend(fact.content for fact in facts)
        return facts

    never = EveryNTurns(1_000)
    return MemoryManager(
        [
            NamedStore(HEARD, _Heard(learnt, down), writable=True, extraction=Extraction(never)),
            NamedStore(NOTED, _Noted(), writable=True, extraction=Extraction(never, extractor=noted)),
        ],
        memory=memory,
    )


async def learn(
    memory: Memory, session_id: str, message: dict[str, Any] | None, down: Sequence[str], *, ends: bool
) -> Learnt:
    """A recording of a session, in which something is said, and which ends, or is left
    by a process that dies.
    """
    learnt, session = Learnt(), memory.session(session_id, create=False)
    recording = await _managing(memory, learnt, down).record(session)
    if message is not None:
        await recording.add(message)
        learnt.stored = [item.message for item in (await session.history(ids=[message["id"]])).items]
    if ends:
        learnt.whole = await recording.close()
    return learnt


async def resume(memory: Memory) -> Learnt:
    """What was left in any session is told."""
    learnt = Learnt()
    await _managing(memory, learnt, ()).resume()
    return learnt


async def inject(memory: Memory, scope: str, query: str, limit: int) -> str:
    """What a model is shown of a scope, with a question."""
    manager = MemoryManager(
        [NamedStore("here", memory.scoped(scope))], injection=Injection(max_entries=limit)
    )
    (shown,) = await manager.inject([{"role": "user", "content": query}])
    return str(shown["content"])


CALLS: dict[str, Callable[..., Any]] = {"learn": learn, "resume": resume, "inject": inject}
