"""Candidates while the stores hold vectors of two embedders.

Only records with a vector of the embedder in use are compared by meaning. The others
are found and compared by words alone. With one embedder, which is nearly always the
case, the query is unchanged.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from memory.orchestrator.embeddings.embeddings import Embeddings
from memory.orchestrator.storage.collections import MODEL
from memory.ports.candidates import CandidateColumns, Candidates, concatenate
from memory.ports.query import all_of

if TYPE_CHECKING:
    from memory.ports.query import Condition


async def candidates_of(
    ask: Callable[[Candidates], Awaitable[CandidateColumns]], asked: Candidates, embeddings: Embeddings
) -> CandidateColumns:
    """Return a store's candidates without the vectors of another embedder.

    A record that both ways found is in the result twice.
    """
    own = embeddings.own
    if own is None or not asked.width:
        return await ask(asked)
    answer = concatenate(
        [await ask(one) for one in _apart(replace(asked, select=asked.select | {MODEL}), own)]
    )
    vectors = answer.vectors.copy()
    vectors[[row for row, model in enumerate(answer.fields[MODEL]) if not embeddings.is_own(model)]] = 0.0
    return replace(answer, vectors=vectors, fields={name: answer.fields[name] for name in asked.select})


def _apart(asked: Candidates, own: Condition) -> list[Candidates]:
    """Return the query by words, and the query by meaning among the own vectors."""
    by_words = replace(asked, near=None, dimensions=asked.width)
    if asked.near is None:
        return [by_words]
    return [by_words, replace(asked, text="", among=(), filter=all_of(asked.filter, own), statistics=False)]
