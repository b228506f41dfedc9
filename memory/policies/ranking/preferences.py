"""Preferences of a search: results that do not match rank lower, but stay."""

from __future__ import annotations

from dataclasses import dataclass

from memory.policies.ranking import constants as c


@dataclass(frozen=True, slots=True)
class Preferences:
    """The caller's types, tags and conversation, and whether intent and age count."""

    types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    conversation_id: str | None = None
    intent: bool = True
    age_decay: bool = True
    half_life: float = c.HALF_LIFE  # in days
    floor: float = c.FLOOR
