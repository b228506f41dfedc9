"""The format of stored data: one number for the whole library, noted in every store,
and the upgrades between formats.

A store notes its format where its adapter keeps the layout number. A store without the
note was written before formats had numbers, and has format 1. Stored strings (names of
collections, fields, kinds, steps, keys) change only together with `FORMAT` and an
`Upgrade`; `tests/unit/stored/test_stored_strings.py` freezes them.
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

log = logging.getLogger(__name__)

FORMAT = 1
"""The format that this version of the library reads and writes."""

LEASE, LOOK_EVERY, REPORT_EVERY = 30.0, 1.0, 10.0
"""Seconds: a lease of an upgrade that nobody renews for so long is over; waiters look
at it, and a long upgrade logs its progress, so often.
"""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Brings a store to format `to` from the format before it.

    `run` gets the open store, and a function that it calls with the number of records
    done so far. It may be cut off at any point and is then run again from its
    beginning, so each of its steps must be idempotent. It names stored strings
    literally: the declarations in the code change with later versions.
    """

    to: int
    run: Callable[[Any, Callable[[int], None]], Awaitable[None]]


UPGRADES: tuple[Upgrade, ...] = ()
"""One for every format after the first, in order."""


@dataclass(frozen=True, slots=True)
class FormatNote:
    """The note in a store: its format, and while it is being upgraded to which, by
    whom, and how often that was renewed.

    As text `1`, `1 to 2` (an upgrade was interrupted) or `1 to 2 5f0c2a1b 7` (an
    upgrade is running).
    """

    format: int = 1
    to: int = 0
    holder: str = ""
    renewed: int = 0

    @classmethod
    def parse(cls, store: str, text: str | None) -> Self:
        """Read a note. Raises `FormatMismatch` for a format that this version does not
        know.
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
    """The note of a store that is made now."""
    return str(FormatNote(FORMAT))


class FormatStore(Protocol):
    """A store that notes its format; `BaseStore` is one."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def reads_only(self) -> bool: ...

    async def read_format(self) -> str | None: ...

    async def swap_format(self, before: str | None, after: str) -> bool: ...


async def bring_up_to_date(store: FormatStore, found: str | None) -> None:
    """Note the format where none is noted, and run the upgrades that are missing.
    `found` is the note as of the opening.

    Of several processes one upgrades, and the others wait for it. One that died is
    replaced once its lease is over.
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
    """Note format 1. A store that takes no writes just now (full, a standby, missing
    rights) stays without the note.
    """
    try:
        await store.swap_format(None, str(FormatNote()))
        return await store.read_format() if FORMAT > 1 else str(FormatNote())
    except MemoryTiersError as error:
        log.info("store '%s': its format could not be noted; a later opening does it: %s", store.name, error)
        return None


async def _is_over(store: FormatStore, text: str | None) -> bool:
    """Whether nobody renewed a lease for its length. Of a store that has one opener at
    a time it is that of a dead one.
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
    """One run of an upgrade, with the lease held."""

    def __init__(self, store: FormatStore, note: FormatNote) -> None:
        self._store = store
        self._note = note
        self._turn = asyncio.Lock()
        self._reported = time.monotonic()

    async def to_the_end(self) -> None:
        """Run the upgrade, and raise the number last. Where it is cut off, the next
        opening runs it again at once.
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
                    "another process took over the upgrade of this store, which stood still too long; open it again",
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
    await asyncio.gather(task, return_exceptions=True)
