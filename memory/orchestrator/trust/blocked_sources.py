"""The blocked sources of a tenant: one record of the archive, cached in each process.

A process reads the record again when its copy is older than `LASTS`. So a block takes
at most that long to reach other processes. While the archive does not answer, the
cached copy stays in use. Without a copy, every entry that names an origin is hidden.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from memory.domain import ids
from memory.domain.blocked_source import BlockedSource
from memory.domain.errors import CorruptRecord, InvalidInput, StoreError
from memory.domain.provenance import ORIGIN_KINDS, parts_of
from memory.domain.time import micros, micros_or_none, moment, moment_or_none
from memory.orchestrator.storage.collections import SETTINGS
from memory.orchestrator.storage.key_locks import RetryDeadline
from memory.orchestrator.storage.placement import Placement, raise_if_rejected
from memory.ports.query import And, Condition, Eq, Ge, Has, IsNull, Not, Or, all_of
from memory.ports.record import Corrupt, Key, Record
from memory.ports.writes import Absent, AtVersion, Put

LASTS = timedelta(seconds=2)
MAX_TENANTS = 10_000
"""How many tenants are cached; the least recently used one is evicted."""
MAX_BLOCKED_SOURCES = 80
"""Per tenant. Each blocked source adds up to five parts to every query, and a search
adds many more. All must fit into `MAX_FILTER_PARTS`.
"""
DISTRUSTS_SCOPE = "distrusts"

Said: TypeAlias = Mapping[str, Any]
UNNAMED: Condition = And(tuple(IsNull(name) for name in (*ORIGIN_KINDS, "origins")))
"""Selects entries that name no origin."""


@dataclass(frozen=True, slots=True)
class BlockedSourceList:
    """The blocked sources of a tenant, as they were at the moment `read`."""

    read: datetime
    blocked: tuple[BlockedSource, ...]

    @property
    def lets_through(self) -> Condition | None:
        """Selects the entries that may be shown; None for all."""
        return Not(Or(tuple(map(written_by, self.blocked)))) if self.blocked else None


def written_by(source: BlockedSource) -> Condition:
    """Return the condition for entries of its origin, and those derived from them."""
    return of_origin(source.origin, since=source.since)


def of_origin(origin: str, *, since: datetime | None = None) -> Condition:
    kind, name = parts_of(origin)
    found = Or((Eq(kind, name), Has("origins", origin)))
    return found if since is None else And((found, Ge("version", micros(since))))


class BlockedSources:
    """The blocked sources of all tenants."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._known: OrderedDict[str, BlockedSourceList] = OrderedDict()

    # -- said --------------------------------------------------------------------------

    async def block(self, tenant: str, sources: Sequence[BlockedSource]) -> list[BlockedSource]:
        """Block these sources. A source that is blocked already gets the new terms.

        Raises:
            InvalidInput: The tenant would have too many blocked sources.
        """
        new = {one.origin: _to_json(one) for one in sources}

        def with_them(said: Said) -> Said:
            if len(said.keys() | new.keys()) > MAX_BLOCKED_SOURCES:
                advice = "revert some of them, then unblock these"
                raise InvalidInput(
                    parts_of(sources[0].origin)[0],
                    f"a tenant blocks at most {MAX_BLOCKED_SOURCES} sources at once: {advice}",
                )
            return {**said, **new}

        await self._change(tenant, with_them)
        return list(sources)

    async def unblock(
        self, tenant: str, origins: Sequence[str], until: datetime | None = None
    ) -> list[BlockedSource]:
        """Unblock these origins; return those that were blocked.

        With `until`, sources that were blocked after this moment stay blocked.
        """
        unblocked: list[BlockedSource] = []

        def without(said: Said) -> Said:
            named = [_source(origin, said[origin]) for origin in origins if origin in said]
            unblocked[:] = [one for one in named if until is None or one.blocked_at <= until]
            gone = {one.origin for one in unblocked}
            return {origin: how for origin, how in said.items() if origin not in gone}

        await self._change(tenant, without)
        return unblocked

    async def all(self, tenant: str) -> list[BlockedSource]:
        """Every blocked source of a tenant, oldest first, as the archive has it now."""
        return list((await self._read(tenant))[1].blocked)

    async def _change(self, tenant: str, change: Callable[[Said], Said]) -> None:
        archive, patience = (
            self._placement.topology.archive,
            RetryDeadline(self._placement, f"the blocked sources of tenant '{tenant}'"),
        )
        while True:
            before, known = await self._read(tenant)
            said = change({one.origin: _to_json(one) for one in known.blocked})
            version = self._placement.next_version(0 if before is None else before.version)
            body = {"by_origin": {origin: dict(how) for origin, how in said.items()}}
            record = Record(
                _key(tenant), DISTRUSTS_SCOPE, version, known.read, known.read, body=body, tier="mid"
            )
            put = Put(SETTINGS, record, Absent() if before is None else AtVersion(before.version))
            outcome = await self._placement.write_one("distrust.put", archive, put)
            if outcome.applied:
                self._remember(tenant, BlockedSourceList(self._placement.now(), _sources(record)))
                return
            raise_if_rejected(archive, outcome)
            await patience.wait()

    # -- asked -------------------------------------------------------------------------

    async def load(self, tenant: str) -> BlockedSourceList:
        """Return the blocked sources, as they were at most `LASTS` ago.

        If the archive fails, return the cached ones; raise if there are none.
        """
        if (known := self.cached(tenant)) is not None:
            return known
        answer = await self._placement.answer(self._placement.topology.archive, self._read(tenant))
        if not isinstance(answer, StoreError):
            return answer[1]
        if (before := self._known.get(tenant)) is None:
            raise answer
        known = BlockedSourceList(
            self._placement.now(), before.blocked
        )  # so that not every query asks the archive again
        self._remember(tenant, known)
        return known

    def cached(self, tenant: str) -> BlockedSourceList | None:
        """Return the cached sources; None if they must be read."""
        known = self._known.get(tenant)
        return known if known is not None and self._is_young(known) else None

    def _is_young(self, known: BlockedSourceList) -> bool:
        return timedelta(0) <= self._placement.now() - known.read <= LASTS

    def _remember(self, tenant: str, known: BlockedSourceList) -> None:
        """Cache the sources, unless the cached ones were read later."""
        there = self._known.get(tenant)
        if there is None or not known.read < there.read <= self._placement.now():
            self._known[tenant] = known
        self._known.move_to_end(tenant)
        if len(self._known) > MAX_TENANTS:
            self._known.popitem(last=False)

    async def _read(self, tenant: str) -> tuple[Record | None, BlockedSourceList]:
        archive, now = self._placement.topology.archive, self._placement.now()
        there = await self._placement.read_one("distrust.read", archive, SETTINGS, _key(tenant))
        if isinstance(there, Corrupt):
            raise CorruptRecord(
                archive.name, there.key.id, f"it says which sources are blocked ({there.problem})"
            )
        record = there if isinstance(there, Record) else None
        known = BlockedSourceList(now, () if record is None else _sources(record))
        self._remember(tenant, known)
        return record, known


def visible(known: BlockedSourceList | None) -> Condition | None:
    """Return the condition that selects visible entries.

    If the blocked sources are unknown, only entries that name no origin are visible.
    """
    return UNNAMED if known is None else all_of(known.lets_through)


def _key(tenant: str) -> Key:
    return Key(tenant, ids.derived_id(tenant, DISTRUSTS_SCOPE, "all"))


def _sources(record: Record) -> tuple[BlockedSource, ...]:
    by_origin: Mapping[str, Said] = record.body["by_origin"]
    return tuple(
        sorted(
            (_source(origin, how) for origin, how in by_origin.items()),
            key=lambda one: (one.blocked_at, one.origin),
        )
    )


def _source(origin: str, how: Said) -> BlockedSource:
    since = moment_or_none(how["since"])
    return BlockedSource(origin, since, how["later_writes"], how["reason"], how["by"], moment(how["at"]))


def _to_json(one: BlockedSource) -> dict[str, Any]:
    return {
        "since": micros_or_none(one.since),
        "later_writes": one.later_writes,
        "reason": one.reason,
        "by": one.blocked_by,
        "at": micros(one.blocked_at),
    }
