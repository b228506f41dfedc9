"""Recalled entries, as one message in a context and under its budget."""

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
"""Recalled entries take at most this fraction of the budget: a quarter."""

Recalled = Sequence[tuple[Message, int]]
"""The message of recalled entries, and its cost in tokens.

It is empty if nothing was found or nothing fits.
"""


async def found_for(
    access: Access,
    query: str,
    session_id: str,
    user: str | None,
    budget: int | None,
    least: float | None = None,
) -> Recalled:
    """Search the scopes of the session and of its user, and return the hits that fit.

    The best come first. An entry is shown whole or not at all.
    """
    scopes = [Scope.session(session_id), *([] if user is None else [Scope.user(user)])]
    readable = [one for one in scopes if access.view is None or access.view.contains(one)]
    if not readable:
        return []
    hits = await access.search(query, readable, min_relevance=least)
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
    """Return the part of the budget that is kept for the recalled entries.

    This is their cost. With `steady` it is a fixed share, so that cuts do not move.
    """
    return budget // SHARE if steady else sum(cost for _, cost in recalled)


def with_recalled(context: Context, recalled: Recalled, budget: int | None) -> Context:
    """Add the recalled message before the last user message of a context.

    Without a user message it is added at the end.
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
