"""Who does maintenance just now. Everything that it does may be done twice at once: a
lease only saves the work of doing so.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import replace
from typing import Protocol

from memory.domain import ids
from memory.domain.errors import StoreError
from memory.orchestrator.storage.collections import LEASES, SYSTEM_TENANT
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.steps import step
from memory.ports.record import FieldValue, Key, Record
from memory.ports.writes import Absent, AtVersion, Put

log = logging.getLogger(__name__)

LEASE_SCOPE = "leases"
TERM, LOOKS = 0.75, 5
"""For so much of its length a lease is taken, and so often in it a worker looks whether
another one's is over: from one that died it is taken over within the length.
"""


class LeaseCheck(Protocol):
    """Asked before a job of maintenance changes anything, and how many records that
    will be, none where it has but looked: see `Lease.hold` and `Allowance`.
    """

    async def __call__(self, count: int = 1) -> None: ...


class LeaseNotHeld(Exception):
    """Another process holds the lease, or the archive, which knows, failed: that is the
    cause then.
    """


def lease_key() -> Key:
    """Under which the lease of maintenance stands."""
    return Key(SYSTEM_TENANT, ids.derived_id(SYSTEM_TENANT, LEASE_SCOPE, "maintenance"))


class Lease:
    """One sweep's hold on maintenance."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._held: Record | None = None

    async def hold(self, count: int = 1) -> None:
        """Take it, or renew it once half its time is over. Raises `LeaseNotHeld` where it
        cannot be had.
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
        """The lease, when nobody else holds it or its time is over."""
        archive, now, length = (
            self._placement.topology.archive,
            self._placement.now(),
            self._placement.settings.lease,
        )
        key = lease_key()
        with step("lease.read"):
            stands = (await archive.get(LEASES, [key]))[0]
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
        """Let others have it at once, where it is held."""
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
