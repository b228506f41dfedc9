"""What a search prefers: what does not match comes later, and is never left out."""

from __future__ import annotations

from dataclasses import dataclass

from memory.policies.ranking import constants as c


@dataclass(frozen=True, slots=True)
class Preferences:
    """The caller's types, tags and conversation; whether the question's intent counts,
    and the age.
    """

    types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    conversation_id: str | None = None
    intent: bool = True
    age_decay: bool = True
    half_life: float = c.HALF_LIFE  # days
    floor: float = c.FLOOR
