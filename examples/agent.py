"""An agent that remembers: what was said goes into a session, what is worth keeping into the user's memory, and a later run knows it.

    python examples/agent.py --session monday "I live in Porto and I am allergic to peanuts."
    python examples/agent.py --session tuesday "Where do I live?"

Without a model at hand a scripted stand-in answers: it repeats what it was sent that has most words in common with the question. With OPENAI_BASE_URL
(such as http://localhost:11434/v1), and OPENAI_API_KEY and OPENAI_MODEL as that endpoint wants them, its model answers. MEMORY_CONFIG names the
stores; by default it is the file agent.db beside you.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from memory import Memory, Message, Scope
from memory.domain.shapes import given_as

SYSTEM = "You are a helpful assistant. Answer briefly, from what you know."
BUDGET, COMPACT_AT, KEEP = 4_000, 3_000, 10
Model = Callable[[list[dict[str, Any]]], AsyncIterator[str]]
"""Messages in the form of OpenAI's in, pieces of the answer out."""


async def turn(memory: Memory, model: Model, said: str, *, user: str, session_id: str) -> AsyncIterator[str]:
    """One turn of the agent: the pieces of its answer, each stored as it comes."""
    session = memory.session(session_id, user=user, system=SYSTEM)
    known = await memory.search(said, scope=Scope.user(user), limit=5)
    await session.append({"role": "user", "content": said})
    context = await session.context(BUDGET)
    if context.total_tokens > COMPACT_AT:
        await session.compact(summary_by(model), keep_last=KEEP)
        context = await session.context(BUDGET)
    system, *messages = given_as(context.messages, "openai")
    if known:
        system["content"] += f"\nWhat you know of {user}:\n" + "\n".join(f"- {hit.entry.content}" for hit in known)
    async with session.stream() as out:
        async for piece in model([system, *messages]):
            await out.write(piece)
            yield piece
    if not said.rstrip().endswith("?"):
        await memory.write(said, scope=Scope.user(user), tags=["fact"], key=said[:200])


def summary_by(model: Model) -> Callable[[list[Message]], Awaitable[str]]:
    """Lets the model say what stands for messages that leave the window; the history keeps them all."""

    async def summary(messages: list[Message]) -> str:
        told = "\n".join(f"{message.role.value}: {message.text}" for message in messages)
        return "".join([piece async for piece in model([{"role": "user", "content": f"Summarise, keeping names and facts:\n{told}"}])])

    return summary


async def stand_in(messages: list[dict[str, Any]]) -> AsyncIterator[str]:
    """A scripted stand-in for a model: of the lines it was sent, the one that has most words in common with the last message."""
    asked = _words(messages[-1]["content"])
    lines = [line.lstrip("- ") for message in messages[:-1] for line in str(message["content"]).splitlines() if not line.startswith("You are ")]
    best = max(lines, key=lambda line: len(asked & _words(line)), default="")
    answer = f"You told me: {best}" if asked & _words(best) else "I will remember that."
    for piece in re.findall(r"\S+\s*", answer):
        yield piece


def _words(text: str) -> set[str]:
    return {word for word in re.findall(r"\w+", text.lower()) if len(word) > 3}


async def endpoint(messages: list[dict[str, Any]]) -> AsyncIterator[str]:
    """The model behind an OpenAI-compatible endpoint, piece by piece."""
    asked = {"model": os.environ.get("OPENAI_MODEL", "gpt-4o-mini"), "messages": messages, "stream": True}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}"}
    url = os.environ["OPENAI_BASE_URL"].rstrip("/") + "/chat/completions"
    request = urllib.request.Request(url, json.dumps(asked).encode(), headers)  # noqa: S310 - whose address the user gave
    with await asyncio.to_thread(urllib.request.urlopen, request, timeout=120) as response:
        while line := await asyncio.to_thread(response.readline):
            if line.startswith(b"data: {"):
                choices = json.loads(line[len(b"data: ") :])["choices"]
                if choices and (piece := choices[0]["delta"].get("content")):
                    yield piece


async def main() -> None:
    given = argparse.ArgumentParser(description="An agent that remembers.")
    given.add_argument("said", help="What you say to it.")
    given.add_argument("--user", default="ada")
    given.add_argument("--session", default="today")
    asked = given.parse_args()
    model = endpoint if os.environ.get("OPENAI_BASE_URL") else stand_in
    async with Memory(os.environ.get("MEMORY_CONFIG", "sqlite:///agent.db")) as memory:
        async for piece in turn(memory, model, asked.said, user=asked.user, session_id=asked.session):
            print(piece, end="", flush=True)
    print()


if __name__ == "__main__":
    asyncio.run(main())
