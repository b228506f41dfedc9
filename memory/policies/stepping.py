"""A window that is cut in steps, so that what a model is sent begins the same from one call to the next. Pure, and the same for the same messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from memory.domain.message import Message, Role
from memory.policies.window import Fitted, blocks, pinned, turns


def stepped(messages: Sequence[Message], costs: Sequence[int], budget: int, slack: float, *, by: Literal["blocks", "turns"] = "blocks") -> Fitted:
    """As `fitted`, but what exceeds the budget is cut down to the budget less `slack`, a share of it: the next cut comes when that has been filled.

    The window is gone through as it grew, so the cuts lie where they lay for whoever asked before: what comes behind changes nothing in front of it
    until the next cut. The last user message is kept.
    """
    units = blocks(messages) if by == "blocks" else turns(messages)
    first_ones = pinned(messages)
    weights = [sum(costs[at] for at in unit) for unit in units]
    always = sum(costs[at] for at in first_ones)
    first, held, user = 0, 0, -1
    for number, unit in enumerate(units):
        held += weights[number]
        if any(messages[at].role is Role.USER for at in unit):
            user = number
        limit: float = budget
        while first <= number and always + held + (weights[user] if 0 <= user < first else 0) > limit:
            held -= weights[first]
            first += 1
            limit = (1 - slack) * budget
    shown = [number for number in range(len(units)) if number >= first or number == user]
    kept = (*first_ones, *(at for number in shown for at in units[number]))
    tokens = sum(costs[at] for at in kept)
    there = set(kept)
    return Fitted(kept, tuple(at for at in range(len(messages)) if at not in there), tokens, max(0, tokens - budget))
