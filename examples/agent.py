"""An agent that remembers: what was said goes into a session, what is worth keeping
into the user's memory, and a later run knows it.

    python examples/agent.py --session monday "I live in Porto and I am allergic to peanuts."
    python examples/agent.py --session tuesday "Where do I live?"

What memory does stands in between, on the other stream: what the model was shown, which
tools it called, what was learnt from the turn.

Without a model at hand a scripted stand-in answers: it repeats what it was shown that
has most words in common with the question, and looks up what it is asked to look up.
With OPENAI_BASE_URL (such as http://localhost:11434/v1), and OPENAI_API_KEY and
OPENAI_MODEL as that endpoint wants them, its model answers. MEMORY_CONFIG names the
stores; by default it is the file agent.db beside you.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

from memory import (
    EveryTurn,
    Extraction,
    Memory,
    MemoryManager,
    MemoryTiersError,
    Message,
    NamedStore,
    Scope,
    Session,
)
from memory.formats import export_messages

SYSTEM = "You are a helpful assistant. Answer briefly, from what you know."
BUDGET, COMPACT_AT, KEEP = 4_000, 3_000, 10
STEPS = 4
"""Calls of the model in one turn, while it asks for tools."""
Model = Callable[[list[dict[str, Any]], list[dict[str, Any]]], AsyncIterator[str | dict[str, Any]]]
"""Messages and tools in the form of OpenAI's in; out come pieces of the answer, and
calls of tools.
"""
Tell = Callable[[str], object]


def manager_of(memory: Memory, model: Model, user: str) -> MemoryManager:
    """The user's memory as the agent has it: shown to the model, searched by a tool,
    and told what is said.
    """
    about = NamedStore(
        user,
        memory.scoped(Scope.user(user)),
        description=f"What {user} told us",
        writable=True,
        extraction=Extraction(EveryTurn()),
    )
    return MemoryManager([about], memory=memory, model=lambda prompt: text_of(model, prompt.to_messages()))


async def turn(
    manager: MemoryManager, session: Session, model: Model, said: str, tell: Tell = len
) -> AsyncIterator[str]:
    """One turn of the agent: the pieces of its answer, each stored as it comes."""
    recording = await manager.record(session)
    await session.append({"role": "user", "content": said})
    for _ in range(STEPS):
        shown = await manager.inject((await fitting(session, model)).messages)
        if "<memory>" in shown[-1].text:
            tell(
                f"shown to the model: {shown[-1].text.partition('</memory>')[0].count('<entry')} entries of memory"
            )
        calls: list[dict[str, Any]] = []
        async with AsyncExitStack() as stack:
            out: Any = None
            async for piece in model(export_messages(shown, "openai"), manager.schemas()):
                if isinstance(piece, str):
                    out = out or await stack.enter_async_context(session.stream())
                    await out.write(piece)
                    yield piece
                else:
                    calls.append(piece)
        if not calls:
            break
        await session.append(
            [
                {"role": "assistant", "content": "", "tool_calls": calls},
                *[await answered(manager, call, tell) for call in calls],
            ]
        )
    await recording.turn_ended()


async def answered(manager: MemoryManager, call: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """What a tool answers to the model's call; what went wrong it reads too."""
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    try:
        result = await manager.dispatch(name, json.loads(arguments))
    except (MemoryTiersError, ValueError) as error:
        result = {"error": str(error)}
    tell(f"called {name} {arguments}: {json.dumps(result)[:200]}")
    return {"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)}


async def fitting(session: Session, model: Model) -> Any:
    """What fits the model's window; where it fills up, a summary stands for what is
    older.
    """
    context = await session.context(BUDGET)
    if context.total_tokens <= COMPACT_AT:
        return context
    await session.compact(summary_by(model), keep_last=KEEP)
    return await session.context(BUDGET)


def summary_by(model: Model) -> Callable[[list[Message]], Awaitable[str]]:
    """Lets the model say what stands for messages that leave the window; the history
    keeps them all.
    """

    async def summary(messages: list[Message]) -> str:
        told = "\n".join(f"{message.role.value}: {message.text}" for message in messages)
        return await text_of(
            model, [{"role": "user", "content": f"Summarise, keeping names and facts:\n{told}"}]
        )

    return summary


async def text_of(model: Model, messages: list[dict[str, Any]]) -> str:
    return "".join([piece async for piece in model(messages, []) if isinstance(piece, str)])


async def stand_in(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]]
) -> AsyncIterator[str | dict[str, Any]]:
    """A scripted stand-in for a model."""
    last = str(messages[-1]["content"])
    if "transcript" in last.partition("\n")[0]:  # asked for facts: what the user says and does not ask
        lines = [
            line.removeprefix("user: ")
            for line in last.splitlines()
            if line.startswith("user: ") and not line.endswith("?")
        ]
        yield json.dumps([{"content": line} for line in lines])
        return
    asked = _words(last.rpartition("</memory>")[2])
    if tools and "look" in asked and messages[-1]["role"] == "user":
        yield {
            "id": "c1",
            "type": "function",
            "function": {
                "name": "search_memory",
                "arguments": json.dumps({"query": last.rpartition("\n")[2]}),
            },
        }
        return
    if messages[-1]["role"] == "tool":
        lines = [found["content"] for found in json.loads(last)]
        asked = _words(next(str(m["content"]) for m in reversed(messages) if m["role"] == "user"))
    else:
        told = "\n".join([*(str(m["content"]) for m in messages[:-1]), last.rpartition("</memory>")[0]])
        lines = [
            re.sub(r"<[^>]*>", "", line) for line in told.splitlines() if not line.startswith("You are ")
        ]
    best = max(lines, key=lambda line: len(asked & _words(line)), default="")
    answer = f"You told me: {best}" if asked & _words(best) else "I will remember that."
    for piece in re.findall(r"\S+\s*", answer):
        yield piece


def _words(text: str) -> set[str]:
    return {word for word in re.findall(r"\w+", text.lower()) if len(word) > 3}


async def endpoint(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]]
) -> AsyncIterator[str | dict[str, Any]]:
    """The model behind an OpenAI-compatible endpoint, piece by piece; calls of tools
    when they are whole.
    """
    asked: dict[str, Any] = {
        "model": os.environ.get("OPENAI_MODEL", "gpt-4o-mini"),
        "messages": messages,
        "stream": True,
    }
    asked |= {"tools": tools} if tools else {}
    headers = {
        "Content-Type": "application/json",
        "Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}",
    }
    url = os.environ["OPENAI_BASE_URL"].rstrip("/") + "/chat/completions"
    request = urllib.request.Request(url, json.dumps(asked).encode(), headers)  # noqa: S310 - whose address the user gave
    calls: dict[int, dict[str, Any]] = {}
    with await asyncio.to_thread(urllib.request.urlopen, request, timeout=120) as response:
        while line := await asyncio.to_thread(response.readline):
            if not line.startswith(b"data: {"):
                continue
            for choice in json.loads(line[len(b"data: ") :])["choices"]:
                if piece := choice["delta"].get("content"):
                    yield piece
                for part in choice["delta"].get("tool_calls") or ():
                    call = calls.setdefault(
                        part["index"],
                        {"id": part.get("id"), "type": "function", "function": {"name": "", "arguments": ""}},
                    )
                    for name, text in part.get("function", {}).items():
                        call["function"][name] += text or ""
    for call in calls.values():
        yield call


async def main() -> None:
    given = argparse.ArgumentParser(description="An agent that remembers.")
    given.add_argument("said", help="What you say to it.")
    given.add_argument("--user", default="ada")
    given.add_argument("--session", default="today")
    asked = given.parse_args()
    model: Model = endpoint if os.environ.get("OPENAI_BASE_URL") else stand_in

    def tell(line: str) -> None:
        print(f"  · {line}", file=sys.stderr, flush=True)

    async with Memory(os.environ.get("MEMORY_CONFIG", "sqlite:///agent.db")) as memory:
        begun = datetime.now(UTC)
        async with manager_of(memory, model, asked.user) as manager:
            session = memory.session(f"{asked.user}/{asked.session}", user=asked.user, system=SYSTEM)
            async for piece in turn(manager, session, model, asked.said, tell):
                print(piece, end="", flush=True)
            print()
        for entry in await memory.retrieve(Scope.user(asked.user), since=begun):
            tell(f"learnt: {entry.content}")


if __name__ == "__main__":
    asyncio.run(main())
