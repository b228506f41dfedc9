"""Candidates as columns: from what searches keep in memory and the word index, in one transaction."""

from __future__ import annotations

from memory.adapters.sql.partitions import Directory
from memory.adapters.sql.sqlite.members import MemberCache
from memory.adapters.sql.sqlite.ranking import Population, statistics
from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.table import table_of
from memory.ports.candidates import Candidates, Statistics


async def counted(session: Session, directory: Directory[Session], asked: Candidates, cache: MemberCache) -> Statistics:
    """The statistics of what is asked."""
    table = table_of(session, asked.collection)
    population = Population(session, table, cache.members(session, table, await directory.numbers(session, asked.where)), asked.roles)
    return statistics(table, asked.counted, population)
