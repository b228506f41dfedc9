"""Cues: words of a question that predict marks or types of its answer.

The tables are data, by language. Other languages are searched without cues.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from memory.policies.text_features import HAS_NUMBER, HAS_PICTURE, HAS_PLACE, HAS_TIME

SHOWN: Mapping[str, tuple[tuple[str, int, float], ...]] = {
    "en": (
        ("when|what (?:day|date|month|year)", HAS_TIME, 0.5),
        ("how (?:many|much|often|long|old)", HAS_NUMBER, 0.4),
        ("where|(?:which|what) (?:city|town|country|state|place)", HAS_PLACE, 0.6),
        ("photo|photos|picture|pictures|image|images|show|shown|showed", HAS_PICTURE, 0.2),
    )
}
"""The bonus of texts with a mark, for questions with a cue. Weights: `retrieval.md`."""

INTENTS: Mapping[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "en": (
        (
            "favorite|favourite|prefer|preference|love|hate|enjoy|dislike|wants|liked|likes|loved|hated|enjoys|wanted",
            ("user", "feedback"),
        ),
        (
            "what is|where is|who is|what's|where's|who's|how many|how much|url|address|endpoint|port",
            ("reference",),
        ),
        ("how to|how do|how does|why is|why does|explain|tutorial|guide", ("learning",)),
        (
            "when|before|after|since|until|first|earliest|latest|recent|recently|ago|did|yesterday|today|happened",
            ("project",),
        ),
    )
}
"""The types of entries that answer a question with the cue."""


def _compile_cue(cue: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{cue})(?!\w)", re.IGNORECASE)  # on word boundaries, next to any sign


_SHOWN = tuple((_compile_cue(cue), mark, weight) for table in SHOWN.values() for cue, mark, weight in table)
_INTENTS = tuple((_compile_cue(cue), types) for table in INTENTS.values() for cue, types in table)


def expected_marks(question: str) -> tuple[tuple[int, float], ...]:
    """Return the marks that an answer to this question probably has, with weights."""
    return tuple((mark, weight) for cue, mark, weight in _SHOWN if cue.search(question))


def intents(question: str) -> frozenset[str]:
    """Return the types of entries that probably answer the question.

    Several groups may match. If none does, there is no boost.
    """
    plain = question.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")  # phones and word processors write it
    plain = " ".join(plain.split())
    return frozenset(kind for cue, types in _INTENTS if cue.search(plain) for kind in types)
