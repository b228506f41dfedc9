"""Conversations with questions, as LoCoMo has them: the turns, the questions with the
turns that answer them, and how well those were found.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ADVERSARIAL = 5
"""The category of questions that no turn answers: asked, and left out of the averages."""
DEPTH = 20
"""How far down a list of what was found counts."""

_EVIDENCE = re.compile(r"D\s*:?\s*(\d+)\s*:\s*(\d+)(?:\s*-\s*D?\s*:?\s*(\d+)\s*:\s*(\d+))?")
"""Also as it slips in: 'D8:6; D9:17', 'D:11:26', 'D30:05', 'D12:3-D12:5'."""
_LONGEST_RANGE = 20


@dataclass(frozen=True, slots=True)
class Turn:
    """What was said at once. `id` is one of the whole file, `number` the place in the
    session, from 1; a picture's caption stands behind the text.
    """

    id: str
    conversation: str
    session: int
    number: int
    speaker: str
    text: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Question:
    """A question to one conversation, and the ids of the turns that answer it."""

    id: str
    conversation: str
    text: str
    category: int
    evidence: tuple[str, ...]


def load(file: Path) -> tuple[list[Turn], list[Question]]:
    """All turns in order, and the questions of which at least one answering turn is
    there.
    """
    turns, questions = [], []
    for conversation in json.loads(file.read_text()):
        name, said = conversation["sample_id"], list(_turns(conversation))
        known = {turn.id for turn in said}
        turns += said
        for number, asked in enumerate(conversation["qa"]):
            evidence = tuple(
                e for one in _turn_ids(asked.get("evidence") or []) if (e := f"{name}/{one}") in known
            )
            if evidence:
                questions.append(
                    Question(
                        f"{name}/q{number}", name, str(asked["question"]), int(asked["category"]), evidence
                    )
                )
    return turns, questions


def _turns(conversation: Mapping[str, Any]) -> Iterator[Turn]:
    name, talk = conversation["sample_id"], conversation["conversation"]
    for session in sorted(
        int(key[8:])
        for key, value in talk.items()
        if re.fullmatch(r"session_\d+", key) and isinstance(value, list)
    ):
        at = datetime.strptime(talk[f"session_{session}_date_time"].strip(), "%I:%M %p on %d %B, %Y").replace(
            tzinfo=UTC
        )
        for number, turn in enumerate(talk[f"session_{session}"], 1):
            parts = (turn.get("text") or "").strip(), turn.get("blip_caption") or ""
            (turn_id,) = _turn_ids([turn["dia_id"]])
            yield Turn(
                f"{name}/{turn_id}",
                name,
                session,
                number,
                turn["speaker"].strip(),
                "\n".join(filter(None, parts)),
                at,
            )


def _turn_ids(texts: Sequence[object]) -> list[str]:
    """The turns that evidence names, each once."""
    found = []
    for first in (match for text in texts for match in _EVIDENCE.finditer(str(text))):
        session, start, end_session, end = (int(group) if group else 0 for group in first.groups())
        is_range = end_session == session and start < end <= start + _LONGEST_RANGE
        found += [f"D{session}:{number}" for number in range(start, (end if is_range else start) + 1)]
        found += [f"D{end_session}:{end}"] if end_session and not is_range else []
    return list(dict.fromkeys(found))


def scores(questions: Sequence[Question], found: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """The averages over all questions but adversarial ones, in percent. `found` has the
    ids of turns by the question's id, best first.
    """
    rows = [
        measured(question.evidence, found.get(question.id, ()))
        for question in questions
        if question.category != ADVERSARIAL
    ]
    return {name: 100 * sum(row[name] for row in rows) / len(rows) for name in rows[0]} if rows else {}


def measured(evidence: Sequence[str], found: Sequence[str]) -> dict[str, float]:
    """Of one question: the share of the evidence in the first 5 and 10, the gain that
    ranks discount, one over the rank of the first.
    """
    right = [turn in evidence for turn in dict.fromkeys(found[:DEPTH])]
    best = sum(_discount(rank) for rank in range(min(10, len(evidence))))
    return {
        "recall@5": sum(right[:5]) / len(evidence),
        "recall@10": sum(right[:10]) / len(evidence),
        "nDCG@10": sum(_discount(rank) for rank, is_right in enumerate(right[:10]) if is_right) / best,
        "MRR": next((1 / rank for rank, is_right in enumerate(right, 1) if is_right), 0.0),
    }


def _discount(rank: int) -> float:
    return 1 / math.log2(rank + 2)
