"""What a worker does where rules, quotas and holds are: one process with an engine of
its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

from memory.domain.entry import EntryDraft, EntryType
from memory.domain.errors import (
    Conflict,
    InvalidInput,
    LegalHoldActive,
    MemoryTiersError,
    NotFound,
    PartialWrite,
    QuotaExceeded,
    StoreError,
    TooMuchContention,
)
from memory.domain.legal_hold import LegalHold, Over
from memory.domain.maintenance_reports import SweepReport
from memory.domain.promotion_report import PromotionReport
from memory.domain.scope import Scope
from memory.orchestrator.storage.budgets import Allowance
from memory.ports.record import Key
from tests.simulation.faults import Process, WorkerCrashed
from tests.simulation.rules.given import (
    FACT,
    MOST_OF_A_TICKET,
    PINNED,
    SCOPES,
    SESSIONS,
    TENANTS,
    TICKET,
    USER,
)
from tests.simulation.rules.told import Call, Came, EndTold, Hold, Kind

if TYPE_CHECKING:
    from tests.simulation.rules.run import Run

OFTEN = (
    "write write write write batch crowd update update update relate delete hold hold hold release end sweep"
    " meet maintain maintain maintain "
)
ACTS = [*(2 * OFTEN).split(), "erase"]
TYPES = (EntryType.FEEDBACK, EntryType.CONTEXT, EntryType.CONTEXT)
CONFIDENCES = (None, 0.2, 0.7)
TAGS: tuple[tuple[str, ...], ...] = ((), (), (), (FACT,), (PINNED,))
EXPIRY = timedelta(minutes=30)
LITTLE = timedelta(milliseconds=20)
"""How long a round of maintenance may take: some portions."""
_CAME: dict[type[MemoryTiersError], Came] = {
    PartialWrite: Came.OPEN,
    LegalHoldActive: Came.HELD,
    QuotaExceeded: Came.FULL,
    NotFound: Came.REFUSED,
    InvalidInput: Came.REFUSED,
    Conflict: Came.REFUSED,
    TooMuchContention: Came.REFUSED,
}


class Worker:
    """One process."""

    def __init__(self, world: Run, process: Process) -> None:
        self._world, self._process, self._told = world, process, world.told
        self.engine = world.engine(process)

    async def perform(self, act: str, label: str, random: Random) -> None:
        """Do it, and note what was promised; whatever a store's failure leaves open
        stays open.
        """
        self._world.watch.look()
        tenant = TENANTS[0] if random.random() < 0.6 else TENANTS[1]
        try:
            await getattr(self, f"_{act}")(tenant, label, random)
        except MemoryTiersError:
            pass  # noted by the call
        finally:
            self._world.watch.look()
        if self._process.dead:
            raise WorkerCrashed(self._process.name)

    def _call(self, kind: Kind, tenant: str, about: str = "", many: int = 1) -> _Calling:
        return _Calling(
            self._world, self._process, Call(kind, self._process.name, tenant, self._told.now(), about, many)
        )

    def _any(self, tenant: str, random: Random) -> Key | None:
        """An entry of the tenant of which somebody was told, one of the last mostly."""
        known = [key for key in self._told.acknowledged if key.tenant == tenant][-8:]
        return known[random.randrange(len(known))] if known else None

    # -- entries -----------------------------------------------------------------------

    def _draft(self, scope: Scope, label: str, random: Random) -> EntryDraft:
        confidence = random.choice(CONFIDENCES)
        expires_at = self._process.clock() + EXPIRY if random.random() < 0.3 else None
        metadata = {} if confidence is None else {"confidence": confidence}
        return EntryDraft(
            scope=scope,
            type=random.choice(TYPES),
            content=f"{label}: said once",
            tags=list(random.choice(TAGS)),
            metadata=metadata,
            expires_at=expires_at,
        )

    async def write_some(self, tenant: str, scope: Scope, label: str, random: Random, many: int = 1) -> None:
        drafts = [self._draft(scope, f"{label}/{n}", random) for n in range(many)]
        with self._call(Kind.WRITE, tenant, scope.text, many) as call:
            written = await self.engine.entries.write_many(tenant, drafts)
            call.came = Came.DONE
        for entry in written:
            self._told.acknowledged[Key(tenant, entry.id)] = scope.text, call.ended
        self._world.watch.look()

    async def _write(self, tenant: str, label: str, random: Random) -> None:
        await self.write_some(tenant, random.choice(SCOPES), label, random)

    async def _batch(self, tenant: str, label: str, random: Random) -> None:
        await self.write_some(tenant, random.choice(SCOPES), label, random, random.randint(2, 3))

    async def _crowd(self, tenant: str, label: str, random: Random) -> None:
        """Several writes of one process at once, where they meet a quota."""
        scope = random.choice((TICKET, TICKET, USER))
        writes = [self.write_some(tenant, scope, f"{label}.{n}", random) for n in range(MOST_OF_A_TICKET)]
        await _both(*writes)

    async def _update(self, tenant: str, label: str, random: Random) -> None:
        if (key := self._any(tenant, random)) is not None:
            await self.edit(key, label)

    async def edit(self, key: Key, label: str) -> None:
        with self._call(Kind.UPDATE, key.tenant, key.id) as call:
            await self.engine.entries.update(key.tenant, key.id, {"content": f"{label}: said since"})
            call.came = Came.DONE
        self._world.watch.look()

    async def _relate(self, tenant: str, label: str, random: Random) -> None:
        source, target = self._any(tenant, random), self._any(tenant, random)
        if source is not None and target is not None:
            with self._call(Kind.RELATE, tenant, source.id) as call:
                await self.engine.relations.relate(tenant, source.id, "contradicts", target.id)
                call.came = Came.DONE

    async def _delete(self, tenant: str, label: str, random: Random) -> None:
        if (key := self._any(tenant, random)) is not None:
            with self._call(Kind.DELETE, tenant, key.id) as call:
                call.came = Came.DONE if await self.engine.deletion.delete(tenant, key.id) else Came.REFUSED

    async def _erase(self, tenant: str, label: str, random: Random) -> None:
        scope = random.choice(SCOPES)
        with self._call(Kind.ERASE, tenant, scope.text) as call:
            await self.engine.erasure.erase_scope(tenant, scope)
            call.came = Came.DONE

    # -- holds -------------------------------------------------------------------------

    async def _hold(self, tenant: str, label: str, random: Random) -> None:
        key = self._any(tenant, random)
        choices: list[tuple[Over, str]] = [
            ("scope", random.choice(SCOPES).text),
            ("user", "ada"),
            ("tenant", tenant),
        ]
        choices += [("entry", key.id)] * 6 if key is not None else []
        choices += [
            (hold.over, hold.of) for hold in self._told.holds if hold.tenant == tenant
        ] * 2  # as another case may
        over, of = random.choice(choices)
        await self.hold(tenant, label, over, of)

    async def hold(self, tenant: str, name: str, over: Over, of: str) -> None:
        with self._call(Kind.HOLD, tenant, of) as call:
            scope = await self.engine.entry_scopes.of_entry(tenant, of) if over == "entry" else None
            self._told.holds.append(Hold(name, tenant, over, of, call))
            await self.engine.erasure.holds.place(
                tenant, LegalHold(name, over, of, "a case", None, self._process.clock()), scope
            )
            call.came = Came.DONE

    async def _release(self, tenant: str, label: str, random: Random) -> None:
        """The one that was placed first or last, of those that nobody has released."""
        standing = [hold for hold in self._told.holds if hold.tenant == tenant and not hold.releases]
        if standing:
            await self.release(standing[random.choice((0, -1))])

    async def release(self, hold: Hold) -> None:
        with self._call(Kind.RELEASE, hold.tenant, hold.of) as call:
            hold.releases.append(call)
            await self.engine.erasure.holds.release(hold.tenant, hold.name)
            call.came = Came.DONE

    # -- maintenance -------------------------------------------------------------------

    async def _end(self, tenant: str, label: str, random: Random) -> None:
        await self.end(tenant, random.choice(SESSIONS))

    async def end(self, tenant: str, session: Scope) -> PromotionReport:
        stood = [
            record for record in self._world.watch.in_scope(tenant, session.text) if record.tier == "short"
        ]
        with self._call(Kind.END, tenant, session.text) as call:
            report = await self.engine.end_session(tenant, session)
            call.came = Came.DONE
        kept, copied = (
            frozenset(one.entry_id for one in report.kept),
            frozenset((one.entry_id, one.to_scope) for one in report.copied),
        )
        if not report.waiting:
            self._told.ends.append(EndTold(call, tuple(stood), kept, copied))
        return report

    async def _sweep(self, tenant: str, label: str, random: Random) -> None:
        with self._call(Kind.SWEEP, "") as call:
            call.came = _came_of(await self.engine.maintain())

    async def _meet(self, tenant: str, label: str, random: Random) -> None:
        """A sweep, while somebody edits what it may be about to delete."""

        async def edits() -> None:
            known = [
                key for key in self._told.acknowledged if key.tenant == "zeta" and key in self._told.entries
            ]
            for key in known[:4]:
                await asyncio.sleep(random.random() * 0.004)
                with suppress(MemoryTiersError):
                    await self.edit(key, label)

        await _both(self._sweep(tenant, label, random), edits())

    async def _maintain(self, tenant: str, label: str, random: Random) -> None:
        """Some small rounds, as a worker makes them."""
        for _ in range(1 + random.randrange(4)):
            await self.maintain(Allowance(LITTLE, rate=random.choice((None, 40.0))))

    async def maintain(self, allowance: Allowance) -> bool:
        """One round; whether there was more to do than it might, or somebody else was
        at it.
        """
        with self._call(Kind.SWEEP, "") as call:
            report = await self.engine.maintain(allowance)
            call.came = _came_of(report)
        self._told.rounds += report.more
        return report.more or not report.ran


async def _both(*acts: Coroutine[Any, Any, None]) -> None:
    """All of them at once; what refuses one does not end the others."""
    for came in await asyncio.gather(*acts, return_exceptions=True):
        if isinstance(came, BaseException) and not isinstance(came, MemoryTiersError):
            raise came


class _Calling:
    """One call: when it begins and ends, and how it was refused."""

    def __init__(self, world: Run, process: Process, call: Call) -> None:
        self._world, self._process, self._call = world, process, call

    def __enter__(self) -> Call:
        self._world.told.calls.append(self._call)
        return self._call

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._call.ended = self._world.told.now()
        if self._process.dead:
            self._call.came = Came.OPEN
        elif isinstance(error, MemoryTiersError) and not isinstance(error, StoreError):
            self._call.came = next(
                (came for refused, came in _CAME.items() if isinstance(error, refused)), Came.OPEN
            )


def _came_of(report: SweepReport) -> Came:
    """Of one that met a store which did not answer, something may come yet: what it
    asked for may arrive late.
    """
    return Came.OPEN if report.waiting else Came.DONE
