"""The demo's second half: an agent has the same conversation in a session, whose window
is compacted again and again while nothing is forgotten.
"""

from __future__ import annotations

from typing import Any

from memory.cli.demo.run import TOP, USER, turns
from memory.domain.message import Message
from memory.facade.chat_files import all_said
from memory.facade.memory import Memory

SESSION = "andorinha-refit"
BUDGET = 400
"""Tokens that the model of this agent would take: few, so that the conversation does
not fit.
"""
KEPT = 4


def scripted_summary(messages: list[Message]) -> str:
    """What a model would be asked for; this stand-in only says how many messages it
    stands for.
    """
    return f"(A scripted stand-in for a summary of {len(messages)} messages.)"


async def talk(memory: Memory, answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Have the conversation, turn by turn, and look up in it what the window no longer
    holds. Says nothing twice in a database that has it.
    """
    session = memory.session(SESSION, user=USER.id, system="You help Ines restore her grandfather's boat.")
    said = [(str(turn.draft.key), str(turn.draft.metadata["role"]), turn.draft.content) for turn in turns()]
    largest = 0
    for name, role, content in said:
        await session.append({"id": name, "role": role, "content": content})
        context = await session.context()
        if context.total_tokens > BUDGET:
            await session.compact(scripted_summary, keep_last=KEPT, reason="the window is full")
            context = await session.context()
        largest = max(largest, context.total_tokens)
    in_window = {message.id for message in context.messages}
    kept = [item.message.id async for item in all_said(session)]
    return {
        "session": SESSION,
        "budget": BUDGET,
        "largest_window": largest,
        "window": {"messages": len(context.messages), "tokens": context.total_tokens},
        "compactions": [
            {
                "archived": len(one.archived_ids),
                "tokens_before": one.tokens_before,
                "tokens_after": one.tokens_after,
            }
            for one in await session.compactions()
        ],
        "said": len(said),
        "kept": sum(name in kept for name, _, _ in said),
        "recalled": [
            await _find_evidence(session, answer, in_window) for answer in answers if answer["shared_words"]
        ],
    }


async def _find_evidence(session: Any, answer: dict[str, Any], in_window: set[str | None]) -> dict[str, Any]:
    """Where the evidence stands among what a search of the session finds, and whether
    the model would be sent it anyway.
    """
    found = [hit.message for hit in await session.search(answer["question"], limit=TOP)]
    places = [place for place, message in enumerate(found, start=1) if message.id in answer["expected"]]
    return {
        "question": answer["question"],
        "expected": answer["expected"],
        "in_window": any(name in in_window for name in answer["expected"]),
        "found_at": places[0] if places else None,
        "content": found[places[0] - 1].text if places else None,
    }
