"""The format of stored data, and the upgrades between formats.

The whole library has one format number, noted in every store. A store keeps the note
beside the adapter's layout number. A store without the note was written before formats
had numbers, and has format 1. Stored strings (names of collections, fields, kinds,
steps, keys) change only together with `FORMAT` and an `Upgrade`.
`tests/unit/stored/test_stored_strings.py` freezes them.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from memory.domain.errors import FormatMismatch, MemoryTiersError, StoreError
from memory.ports.capabilities import Capabilities
from memory.ports.concurrency import outcomes_at_once

log = logging.getLogger(__name__)

FORMAT = 1
"""The format that this version of the library reads and writes."""

LEASE, LOOK_EVERY, REPORT_EVERY = 30.0, 1.0, 10.0
"""Seconds after which an upgrade's lease ends if nobody renews it.

Waiting processes check the lease at this interval. A long upgrade logs its progress at
the same interval.
"""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Brings a store to format `to` from the format before it.

    `run` gets the open store and a callback for the number of records done so far. An
    interrupted run starts again from its beginning, so each of its steps must be
    idempotent. It names stored strings literally, because the declarations in the code
    change in later versions.
    """

    to: int
    run: Callable[[Any, Callable[[int], None]], Awaitable[None]]


UPGRADES: tuple[Upgrade, ...] = ()
"""The upgrades in order, one for every format after the first."""


@dataclass(frozen=True, slots=True)
class FormatNote:
    """The note in a store: its format, and the state of a running upgrade.

    During an upgrade it has the target format, the process that upgrades, and the
    number of renewals. As text it is `1`, `1 to 2` (an upgrade was interrupted) or `1
    to 2 5f0c2a1b 7` (an upgrade is running).
    """

    format: int = 1
    to: int = 0
    holder: str = ""
    renewed: int = 0

    @classmethod
    def parse(cls, store: str, text: str | None) -> Self:
        """Parse a note.

        Raises:
            FormatMismatch: This version does not know the format.
        """
        number, _, to, holder, renewed = [*(text or "1").split(), "", "", "", "", ""][:5]
        try:
            note = cls(int(number), int(to or 0), holder, int(renewed or 0))
        except ValueError:
            raise FormatMismatch(store, str(text)[:40], FORMAT) from None
        if max(note.format, note.to) > FORMAT:
            raise FormatMismatch(store, str(max(note.format, note.to)), FORMAT)
        return note

    def __str__(self) -> str:
        parts = [
            self.format,
            *(["to", self.to] if self.to else []),
            *([self.holder, self.renewed] if self.holder else []),
        ]
        return " ".join(map(str, parts))


def current_note() -> str:
    """Return the note of a new store."""
    return str(FormatNote(FORMAT))


class FormatStore(Protocol):
    """A store with a format note; `BaseStore` is one."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def reads_only(self) -> bool: ...

    async def read_format(self) -> str | None: ...

    async def swap_format(self, before: str | None, after: str) -> bool: ...


async def bring_up_to_date(store: FormatStore, found: str | None) -> None:
    """Note the format if none is noted, and run the missing upgrades.

    One of several processes upgrades, and the others wait for it. If it dies, another
    takes over once its lease ends.

    Args:
        found: The note at opening.
    """
    if found is None and not store.reads_only:
        found = await _write_note(store)
    while (note := FormatNote.parse(store.name, found)).format < FORMAT:
        if store.reads_only:
            raise FormatMismatch(store.name, str(note.format), FORMAT, read_only=True)
        if not note.holder or await _is_over(store, found):
            mine = replace(note, to=note.format + 1, holder=secrets.token_hex(4), renewed=0)
            if await store.swap_format(found, str(mine)):
                await _Run(store, mine).to_the_end()
        found = await store.read_format()


async def _write_note(store: FormatStore) -> str | None:
    """Note format 1.

    A store that accepts no writes at the moment (full, a standby, missing rights) stays
    without the note.
    """
    try:
        await store.swap_format(None, str(FormatNote()))
        return await store.read_format() if FORMAT > 1 else str(FormatNote())
    except MemoryTiersError as error:
        log.info("store '%s': its format could not be noted; a later opening does it: %s", store.name, error)
        return None


async def _is_over(store: FormatStore, text: str | None) -> bool:
    """Return whether nobody renewed the lease for its length.

    A store with one opener at a time does not wait: its lease belongs to a dead
    process.
    """
    until = time.monotonic() + LEASE
    if store.capabilities.shared:
        log.info("store '%s': another process upgrades it; waiting", store.name)
        while time.monotonic() < until:
            await asyncio.sleep(min(LOOK_EVERY, LEASE / 4))
            if await store.read_format() != text:
                return False
    return True


class _Run:
    """One run of an upgrade, which holds the lease."""

    def __init__(self, store: FormatStore, note: FormatNote) -> None:
        self._store = store
        self._note = note
        self._turn = asyncio.Lock()
        self._reported = time.monotonic()

    async def to_the_end(self) -> None:
        """Run the upgrade, and raise the format number last.

        If it is interrupted, the next opening runs it again at once.
        """
        upgrade = next(one for one in UPGRADES if one.to == self._note.to)
        log.info(
            "store '%s': upgrading from format %d to %d", self._store.name, self._note.format, self._note.to
        )
        renewal = asyncio.ensure_future(self._renew())
        work = asyncio.ensure_future(upgrade.run(self._store, self._report))
        try:
            await asyncio.wait((renewal, work), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                renewal.result()  # raises what made it end
            work.result()
            await self._swap(FormatNote(self._note.to))
        except BaseException:
            await _stop(work)
            with suppress(MemoryTiersError):
                await self._swap(replace(self._note, holder="", renewed=0))
            raise
        finally:
            await _stop(renewal)
        log.info("store '%s': upgraded to format %d", self._store.name, upgrade.to)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(LEASE / 3)
            await self._swap(replace(self._note, renewed=self._note.renewed + 1))

    async def _swap(self, note: FormatNote) -> None:
        async with self._turn:
            if not await self._store.swap_format(str(self._note), str(note)):
                raise StoreError(
                    self._store.name,
                    "another process took over the upgrade of this store, which stood still too long; open it"
                    " again",
                )
            self._note = note

    def _report(self, done: int) -> None:
        if time.monotonic() - self._reported >= REPORT_EVERY:
            self._reported = time.monotonic()
            log.info(
                "store '%s': upgrading to format %d: %d records done", self._store.name, self._note.to, done
            )


async def _stop(task: asyncio.Future[None]) -> None:
    task.cancel()
    await outcomes_at_once([task])
