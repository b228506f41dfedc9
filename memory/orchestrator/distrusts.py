"""Which origins a tenant distrusts: one record of the archive, which every process
remembers for a moment.

A process looks at it again when what it remembers is older than `LASTS`, so that is how
long another's distrust takes to be heard. Where the archive does not answer, what was
known goes on; where nothing was, whatever says where it comes from is not shown.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from memory.domain import ids
from memory.domain.distrust import BlockedSource
from memory.domain.errors import CorruptRecord, InvalidInput, StoreError
from memory.domain.provenance import ORIGIN_KINDS, parts_of
from memory.domain.time import micros, moment
from memory.orchestrator.collections import SETTINGS
from memory.orchestrator.placement import Placement, refused
from memory.orchestrator.steps import step
from memory.orchestrator.turns import Patience
from memory.ports.query import And, Condition, Eq, Ge, Has, IsNull, Not, Or, all_of
from memory.ports.record import Corrupt, Key, Record
from memory.ports.writes import Absent, AtVersion, Put

LASTS = timedelta(seconds=2)
MOST_TENANTS = 10_000
"""Of so many it is remembered, those asked last."""
MOST_DISTRUSTED = 80
"""Of one tenant: each is up to five parts of every question, and a search asks for many
places besides within `MAX_FILTER_PARTS`.
"""
DISTRUSTS_SCOPE = "distrusts"

Said: TypeAlias = Mapping[str, Any]
UNNAMED: Condition = And(tuple(IsNull(name) for name in (*ORIGIN_KINDS, "origins")))
"""Of what says nothing of where it comes from."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a process knows of a tenant: as it stood when it was read."""

    read: datetime
    distrusts: tuple[BlockedSource, ...]

    @property
    def lets_through(self) -> Condition | None:
        """What of entries may be shown; None for all."""
        return Not(Or(tuple(map(written_by, self.distrusts)))) if self.distrusts else None


def written_by(distrust: BlockedSource) -> Condition:
    """The entries that are of its origin, or were made of such."""
    return of_origin(distrust.origin, since=distrust.since)


def of_origin(origin: str, *, since: datetime | None = None) -> Condition:
    kind, name = parts_of(origin)
    found = Or((Eq(kind, name), Has("origins", origin)))
    return found if since is None else And((found, Ge("version", micros(since))))


class Distrusts:
    """Those of all tenants."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._known: OrderedDict[str, Known] = OrderedDict()

    # -- said --------------------------------------------------------------------------

    async def place(self, tenant: str, distrusts: Sequence[BlockedSource]) -> list[BlockedSource]:
        """Distrust these from now on; one that is distrusted already is so as is said
        now. Raises `InvalidInput` where they are too many.
        """
        new = {one.origin: _said(one) for one in distrusts}

        def with_them(said: Said) -> Said:
            if len(said.keys() | new.keys()) > MOST_DISTRUSTED:
                advice = "roll back what some of them wrote, then trust these again"
                raise InvalidInput(
                    parts_of(distrusts[0].origin)[0],
                    f"a tenant distrusts at most {MOST_DISTRUSTED} at once: {advice}",
                )
            return {**said, **new}

        await self._change(tenant, with_them)
        return list(distrusts)

    async def lift(self, tenant: str, origins: Sequence[str]) -> list[BlockedSource]:
        """Trust these again; what of them was distrusted."""
        lifted: list[BlockedSource] = []

        def without(said: Said) -> Said:
            lifted[:] = [_distrust(origin, said[origin]) for origin in origins if origin in said]
            return {origin: how for origin, how in said.items() if origin not in origins}

        await self._change(tenant, without)
        return lifted

    async def all(self, tenant: str) -> list[BlockedSource]:
        """Every distrust of a tenant, oldest first, as the archive has it now."""
        return list((await self._read(tenant))[1].distrusts)

    async def _change(self, tenant: str, change: Callable[[Said], Said]) -> None:
        archive, patience = (
            self._placement.topology.archive,
            Patience(self._placement, f"what tenant '{tenant}' distrusts"),
        )
        while True:
            before, known = await self._read(tenant)
            said = change({one.origin: _said(one) for one in known.distrusts})
            version = self._placement.next_version(0 if before is None else before.version)
            body = {"by_origin": {origin: dict(how) for origin, how in said.items()}}
            record = Record(
                _key(tenant), DISTRUSTS_SCOPE, version, known.read, known.read, body=body, tier="mid"
            )
            put = Put(SETTINGS, record, Absent() if before is None else AtVersion(before.version))
            outcome = await self._placement.write_one("distrust.put", archive, put)
            if outcome.applied:
                self._remember(tenant, Known(self._placement.now(), _distrusts(record)))
                return
            if (error := refused(archive, outcome)) is not None:
                raise error
            await patience.wait()

    # -- asked -------------------------------------------------------------------------

    async def known(self, tenant: str) -> Known:
        """What is distrusted, as it was at most `LASTS` ago. Where the archive fails
        what was known before; raises where nothing was.
        """
        if (known := self.at_once(tenant)) is not None:
            return known
        answer = await self._placement.answer(self._placement.topology.archive, self._read(tenant))
        if not isinstance(answer, StoreError):
            return answer[1]
        if (before := self._known.get(tenant)) is None:
            raise answer
        known = Known(self._placement.now(), before.distrusts)  # it is not asked again by every question
        self._remember(tenant, known)
        return known

    def at_once(self, tenant: str) -> Known | None:
        """What is known without asking anybody; None where it has to be asked."""
        known = self._known.get(tenant)
        return known if known is not None and self._is_young(known) else None

    def _is_young(self, known: Known) -> bool:
        return timedelta(0) <= self._placement.now() - known.read <= LASTS

    def _remember(self, tenant: str, known: Known) -> None:
        """Unless it was read before what is remembered: then others have said more
        since.
        """
        there = self._known.get(tenant)
        if there is None or not known.read < there.read <= self._placement.now():
            self._known[tenant] = known
        self._known.move_to_end(tenant)
        if len(self._known) > MOST_TENANTS:
            self._known.popitem(last=False)

    async def _read(self, tenant: str) -> tuple[Record | None, Known]:
        archive, now = self._placement.topology.archive, self._placement.now()
        with step("distrust.read"):
            (there,) = await archive.get(SETTINGS, [_key(tenant)])
        if isinstance(there, Corrupt):
            raise CorruptRecord(
                archive.name, there.key.id, f"it says which sources are distrusted ({there.problem})"
            )
        record = there if isinstance(there, Record) else None
        known = Known(now, () if record is None else _distrusts(record))
        self._remember(tenant, known)
        return record, known


def visible(known: Known | None) -> Condition | None:
    """What may be shown by what is known; where nothing is, what says nothing of where
    it comes from.
    """
    return UNNAMED if known is None else all_of(known.lets_through)


def _key(tenant: str) -> Key:
    return Key(tenant, ids.derived_id(tenant, DISTRUSTS_SCOPE, "all"))


def _distrusts(record: Record) -> tuple[BlockedSource, ...]:
    by_origin: Mapping[str, Said] = record.body["by_origin"]
    return tuple(
        sorted(
            (_distrust(origin, how) for origin, how in by_origin.items()),
            key=lambda one: (one.distrusted_at, one.origin),
        )
    )


def _distrust(origin: str, how: Said) -> BlockedSource:
    since = None if how["since"] is None else moment(how["since"])
    return BlockedSource(origin, since, how["later_writes"], how["reason"], how["by"], moment(how["at"]))


def _said(one: BlockedSource) -> dict[str, Any]:
    since = None if one.since is None else micros(one.since)
    return {
        "since": since,
        "later_writes": one.later_writes,
        "reason": one.reason,
        "by": one.distrusted_by,
        "at": micros(one.distrusted_at),
    }
