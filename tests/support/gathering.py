"""Candidates as a store brings them that has no way of its own, and their columns."""

from __future__ import annotations

from memory.adapters.in_memory import InMemoryStore
from memory.ports.base import BaseStore
from memory.ports.candidates import CandidateColumns, Candidates


class Gathering(InMemoryStore):
    """The store in memory, asked by what every store has."""

    async def _candidates(self, asked: Candidates) -> CandidateColumns:
        return await BaseStore._candidates(self, asked)


def rows(of: CandidateColumns) -> dict[str, object]:
    """Each record's columns, by its id."""
    columns = (
        of.scopes,
        of.versions,
        of.roles,
        of.tiers,
        of.lengths.tolist(),
        of.counts.tolist(),
        of.vectors.tolist(),
        *of.fields.values(),
    )
    return dict(zip(of.ids, zip(*columns, strict=True), strict=True))
