"""Multipliers of a score: preferences, intent, age and conversation."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import numpy as np

from memory.policies.question import Question
from memory.policies.ranking import constants as c
from memory.policies.ranking.preferences import Preferences
from memory.policies.ranking.score import Scores
from memory.ports.candidates import CandidateColumns

DAY = timedelta(days=1)


def boost_multipliers(
    question: Question, pool: CandidateColumns, preferred: Preferences, now: datetime
) -> Mapping[str, Scores]:
    """Return the multipliers of each candidate's score by name.

    The caller's types win over the question's intent. Age does not count if the
    question names a period: what happened then is asked for.
    """
    wanted = frozenset(preferred.types) or (question.intents if preferred.intent else frozenset())
    ages, here = pool.fields["valid_from"], preferred.conversation_id
    decays = preferred.age_decay and question.period(now.date()) is None
    return {
        "type": np.array([c.TYPE if kind in wanted else 1.0 for kind in pool.fields["type"]]),
        "tag": np.array(
            [c.TAG if set(tags or ()) & set(preferred.tags) else 1.0 for tags in pool.fields["tags"]]  # type: ignore[arg-type]
        ),
        "local": np.array(
            [c.LOCAL if here is not None and of == here else 1.0 for of in pool.fields["conversation_id"]]
        ),
        "age": np.array(
            [
                decay((now - at) / DAY, preferred) if decays and isinstance(at, datetime) else 1.0
                for at in ages
            ]
        ),
    }


def decay(days: float, preferred: Preferences) -> float:
    """Return the share of a score that remains at this age, in steps.

    It never falls below the floor.
    """
    if days <= c.FRESH_DAYS:
        return 1.0
    return next(
        (max(left, preferred.floor) for lives, left in c.AGES if days <= lives * preferred.half_life),
        preferred.floor,
    )
