"""The second half of the demo: the same conversation, with a small window.

An agent has it in a session. The window is compacted several times, and no message is
lost.
"""

from __future__ import annotations

from typing import Any

from memory.cli.demo.run import TOP, USER, turns
from memory.domain.message import Message
from memory.facade.chat_files import all_said
from memory.facade.memory import Memory

SESSION = "andorinha-refit"
BUDGET = 400
"""The window of this agent's model, in tokens: too small for the conversation."""
KEPT = 4


def scripted_summary(messages: list[Message]) -> str:
    """Stand in for a summary by a model: only name the number of messages."""
    return f"(A scripted stand-in for a summary of {len(messages)} messages.)"


async def talk(memory: Memory, answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Have the conversation, then search for messages that left the window.

    In a database that already has the conversation, no message is added twice.
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
    """Return the rank of the evidence in a search of the session.

    The result also says whether the model would receive the evidence anyway.
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
