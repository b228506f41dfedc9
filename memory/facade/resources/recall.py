"""What memory knows of a question, as one message among those of a conversation, under
one budget with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memory.domain.message import Message, Role
from memory.domain.scope import Scope
from memory.domain.session import Context
from memory.facade.runtime.access import Access
from memory.policies.tokens import message_tokens
from memory.policies.window import RECALLED, recall_message

SHARE = 4
"""Of the budget a quarter at most is for what is recalled."""

Recalled = Sequence[tuple[Message, int]]
"""The message and what it costs; nothing where nothing was found, or nothing fits."""


async def found_for(
    access: Access,
    query: str,
    session_id: str,
    user: str | None,
    budget: int | None,
    least: float | None = None,
) -> Recalled:
    """What is found in the session's scope and in its user's, the best first, as far as
    it fits; an entry is shown whole or not at all.
    """
    scopes = [Scope.session(session_id), *([] if user is None else [Scope.user(user)])]
    hits = await access.search(query, scopes, min_relevance=least)
    counter = access.engine.conversations.counter
    lines: list[str] = []
    shown: Recalled = []
    for hit in hits:
        said = ": ".join(part for part in (hit.entry.title, hit.entry.content) if part)
        message = recall_message([*lines, said])
        cost = message_tokens(message, counter)
        if budget is None or cost <= budget // SHARE:
            lines.append(said)
            shown = [(message, cost)]
    return shown


def room_for(recalled: Recalled, budget: int, *, steady: bool) -> int:
    """What of the budget is kept for it: what it takes, or where cuts are to stay where
    they are, always the same.
    """
    return budget // SHARE if steady else sum(cost for _, cost in recalled)


def with_recalled(context: Context, recalled: Recalled, budget: int | None) -> Context:
    """The context with what was recalled before the last message of the user, or at its
    end where there is none.
    """
    at = max(
        (n for n, message in enumerate(context.messages) if message.role is Role.USER),
        default=len(context.messages),
    )
    found = replace(
        context,
        messages=[*context.messages[:at], *(message for message, _ in recalled), *context.messages[at:]],
        tokens=[*context.tokens[:at], *(cost for _, cost in recalled), *context.tokens[at:]],
        layers=[*context.layers[:at], *(RECALLED for _ in recalled), *context.layers[at:]],
    )
    return found if budget is None else replace(found, over_budget=max(0, found.total_tokens - budget))
