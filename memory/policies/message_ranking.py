"""Select the messages that answer a question best, a call never without its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memory.domain.message import Message, Role
from memory.policies.window import blocks
from memory.ports.text import bm25_scores, count_words, query_words


def best_of(
    messages: Sequence[Message],
    ranks: Mapping[int, int],
    *,
    most: int | None = None,
    costs: Sequence[int] = (),
    budget: int | None = None,
) -> list[Message]:
    """Return the messages of the best ranks, in their original order.

    Args:
        ranks: The rank of each message that answers, by its position, the best first.
        most: The maximum number of messages. A block that does not fit is skipped.
        costs: The tokens of each message.
        budget: The maximum number of tokens.
    """
    ranked = [
        (min(ranks[at] for at in block if at in ranks), block)
        for block in blocks(messages)
        if any(at in ranks for at in block)
    ]
    kept: list[tuple[int, ...]] = []
    for _, block in sorted(ranked):
        cost = 0 if budget is None else sum(costs[at] for at in block)
        if (most is None or len(block) <= most) and (budget is None or cost <= budget):
            kept.append(tuple(block))
            most = None if most is None else most - len(block)
            budget = None if budget is None else budget - cost
    return [messages[at] for block in sorted(kept) for at in block]


def ranks_by_words(messages: Sequence[Message], query: str) -> dict[int, int]:
    """Return the ranks of the messages that hold words of the query, by position.

    Results of tools are not found, as in a search.
    """
    wanted = frozenset(query_words(query))
    texts = ["" if message.role is Role.TOOL else message.text for message in messages]
    counted = [(at, *count_words([(text, 1.0)], wanted)) for at, text in enumerate(texts)]
    found = bm25_scores(counted, len(counted), sum(length for _, _, length in counted))
    return {at: rank for rank, (at, _) in enumerate(sorted(found, key=lambda one: (-one[1], -one[0])))}
