"""The lease of maintenance: only one process runs maintenance at a time.

All maintenance is safe to run twice at once. The lease only saves the double work.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import replace
from typing import Protocol

from memory.domain import ids
from memory.domain.errors import StoreError
from memory.domain.validation import SYSTEM_TENANT
from memory.orchestrator.storage.collections import LEASES
from memory.orchestrator.storage.placement import Placement
from memory.ports.record import FieldValue, Key, Record
from memory.ports.writes import Absent, AtVersion, Put

log = logging.getLogger(__name__)

LEASE_SCOPE = "leases"
TERM, LOOKS = 0.75, 5
"""A lease is taken for `TERM` of its length. A waiting worker looks `LOOKS` times in
that length whether another worker's lease is over. So the lease of a worker that
died is taken over within the length.
"""


class LeaseCheck(Protocol):
    """Called before a maintenance job changes anything.

    `count` is the number of records that it will change; 0 if it only looked. See
    `Lease.hold` and `Allowance`.
    """

    async def __call__(self, count: int = 1) -> None: ...


class LeaseNotHeld(Exception):
    """Another process holds the lease, or the archive failed.

    A failure of the archive is the exception's cause.
    """


def lease_key() -> Key:
    """Return the key of the lease of maintenance."""
    return Key(SYSTEM_TENANT, ids.derived_id(SYSTEM_TENANT, LEASE_SCOPE, "maintenance"))


class Lease:
    """One sweep's hold on maintenance."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._held: Record | None = None

    async def hold(self, count: int = 1) -> None:
        """Take the lease, or renew it once half its time is over.

        Raises:
            LeaseNotHeld: The lease cannot be had.
        """
        now, term = self._placement.now(), TERM * self._placement.settings.lease
        if self._held is not None and abs(now - self._held.updated_at) < term / 2:
            return
        try:
            self._held = await self._take()
        except StoreError as error:
            raise LeaseNotHeld from error
        if self._held is None:
            raise LeaseNotHeld

    async def _take(self) -> Record | None:
        """Take the lease if nobody else holds it or its time is over."""
        archive, now, length = (
            self._placement.topology.archive,
            self._placement.now(),
            self._placement.settings.lease,
        )
        key = lease_key()
        stands = await self._placement.read_one("lease.read", archive, LEASES, key)
        of_another = self._held is None or getattr(stands, "version", 0) != self._held.version
        if isinstance(stands, Record) and of_another and now < stands.fields["until"] <= now + 2 * length:  # type: ignore[operator]
            return None
        version = self._placement.next_version(getattr(stands, "version", 0))
        fields: dict[str, FieldValue] = {"holder": secrets.token_hex(8), "until": now + TERM * length}
        lease = Record(key, LEASE_SCOPE, version, now, now, fields=fields, tier="mid")
        when = Absent() if stands is None else AtVersion(getattr(stands, "version", 0))
        outcome = await self._placement.write_one("lease.take", archive, Put(LEASES, lease, when))
        return lease if outcome.applied else None

    async def give_back(self) -> None:
        """Release the lease, if it is held, so that others can take it at once."""
        lease, self._held = self._held, None
        if lease is None:
            return
        ended = replace(
            lease,
            version=self._placement.next_version(lease.version),
            fields={**lease.fields, "until": lease.created_at},
        )
        put = Put(LEASES, ended, AtVersion(lease.version))
        try:
            await self._placement.write_one("lease.return", self._placement.topology.archive, put)
        except StoreError as error:
            log.warning("the maintenance lease was not released, and expires by itself: %s", error)
