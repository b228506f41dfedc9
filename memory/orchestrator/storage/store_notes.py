"""Notes in every store about which tiers it serves beside which other stores.

A configuration that omits a store hides what that store holds: nothing fails, and
searches find less. Each store therefore notes the stores beside it, by ids that are
kept in the stores themselves. If one of them is missing later, opening warns and
`memory doctor` fails.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection, Mapping
from typing import Any

from memory.domain import ids
from memory.domain.errors import MemoryTiersError, StoreError
from memory.domain.validation import SYSTEM_TENANT
from memory.orchestrator.storage.collections import ENTRIES, SETTINGS, SETTINGS_SCOPE
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.topology import leaves_of
from memory.policies.routing import TIERS
from memory.ports.query import Eq, Everywhere, Query
from memory.ports.record import Key, Record
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Put

log = logging.getLogger(__name__)

KEY = Key(SYSTEM_TENANT, ids.derived_id(SYSTEM_TENANT, SETTINGS_SCOPE, "stores"))


class StoreNotes:
    """Reads and writes the notes, and reports which data a configuration hides."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._some_are_empty = True

    async def on_open(self) -> None:
        """Warn about hidden stores, and note the stores as they are now.

        Never keeps a memory from opening.
        """
        try:
            for problem in await self.look():
                log.warning("%s", problem)
            await self.note()
        except MemoryTiersError as error:
            log.info("the note of which stores serve together was not written: %s", error)

    async def on_close(self) -> None:
        """Note which stores hold data now."""
        if self._some_are_empty:
            await self.note()

    async def look(self, absent: Collection[str] = ()) -> list[str]:
        """Return what the configuration hides, one sentence each.

        The list is empty if it hides nothing. Stores in `absent` do not exist yet.
        """
        notes = await self._read(absent)
        problems = [
            self._omission_message(
                other,
                next(
                    store.name
                    for store, note in notes.items()
                    if note is not None and other_id in note.body["beside"]
                ),
                notes,
            )
            for other_id, other in self._missing_stores(notes).items()
            if other["holds"]
        ]
        if len(self._stores) > 1:
            found = [
                await self._misplaced_tiers(store, note)
                for store, note in notes.items()
                if store.name not in absent
            ]
            problems += [sentence for one in found for sentence in one.values()]
        return problems

    async def note(self) -> None:
        """Write the notes that have changed. With only one store, write nothing."""
        notes = await self._read()
        if len(self._stores) < 2:
            return
        mine = {
            store: str(note.body["id"]) if note is not None else secrets.token_hex(8)
            for store, note in notes.items()
        }
        holding = {
            other
            for note in notes.values()
            if note is not None
            for other, one in note.body["beside"].items()
            if one["holds"]
        }
        said = {
            store: {
                "name": store.name,
                "tiers": self._tiers(store),
                "holds": mine[store] in holding or await self._holds(store),
            }
            for store in notes
        }
        self._some_are_empty = not all(one["holds"] for one in said.values())
        missing = self._missing_stores(notes)
        for store, note in notes.items():
            beside = {mine[other]: said[other] for other in notes if other is not store} | missing
            if note is not None:  # stores that are away now
                beside = {
                    **{other: one for other, one in note.body["beside"].items() if one["name"] in self._away},
                    **beside,
                }
            former = sorted(await self._misplaced_tiers(store, note))
            await self._write(
                store,
                note,
                {"id": mine[store], "tiers": self._tiers(store), "former": former, "beside": beside},
            )

    async def forget(self, name: str) -> int:
        """Remove a store that is not used any more from all notes.

        Returns the number of notes that named it.
        """
        return await self._forget({name})

    async def forget_healed(self) -> None:
        """Remove replaced stores from all notes.

        A replaced store has another store of the same name in its place, which was
        repaired from the other stores.
        """
        await self._forget({store.name for store in self._stores})

    async def _forget(self, names: Collection[str]) -> int:
        notes = await self._read()
        gone = {other for other, one in self._missing_stores(notes).items() if one["name"] in names}
        changed = 0
        for store, note in notes.items():
            if note is not None and not gone.isdisjoint(note.body["beside"]):
                left = {other: one for other, one in note.body["beside"].items() if other not in gone}
                await self._write(store, note, {**note.body, "beside": left})
                changed += 1
        return changed

    # -- parts -------------------------------------------------------------------------

    @property
    def _stores(self) -> tuple[Store, ...]:
        """The distinct durable stores."""
        homes = self._placement.topology.homes
        return tuple(
            dict.fromkeys(leaf for home in homes for leaf in leaves_of(home) if leaf.capabilities.durable)
        )

    @property
    def _away(self) -> Collection[str]:
        return self._placement.topology.away

    def _tiers(self, store: Store) -> list[str]:
        """Return the tiers whose homes are in the store, or in part."""
        return [tier for tier in TIERS if store in leaves_of(self._placement.topology.home(tier))]

    async def _read(self, absent: Collection[str] = ()) -> dict[Store, Record | None]:
        """Return the note of each store that answers; None if it has none."""
        found: dict[Store, Record | None] = {}
        for store in self._stores:
            if store.name in absent:
                found[store] = None
            elif store.name not in self._away:
                try:
                    row = await self._placement.read_one("stores.look", store, SETTINGS, KEY)
                except StoreError as error:
                    log.debug(
                        "the note of which stores serve together cannot be read from store '%s': %s",
                        store.name,
                        error,
                    )
                    continue
                found[store] = row if isinstance(row, Record) else None
        return found

    def _missing_stores(self, notes: Mapping[Store, Record | None]) -> dict[str, dict[str, Any]]:
        """Return the stores that a note names and that are not used now, by id.

        A store that does not answer is identified by its name.
        """
        used = {str(note.body["id"]) for note in notes.values() if note is not None}
        unread = {store.name for store in self._stores if store not in notes} | set(self._away)
        named: dict[str, dict[str, Any]] = {}
        for note in notes.values():
            beside: Mapping[str, Any] = {} if note is None else note.body["beside"]
            for other, one in beside.items():
                if other not in used and one["name"] not in unread:
                    named[other] = {**one, "holds": one["holds"] or named.get(other, {}).get("holds", False)}
        return named

    def _omission_message(
        self, other: Mapping[str, Any], beside: str, notes: Mapping[Store, Record | None]
    ) -> str:
        served = (
            f"store '{other['name']}' served {_tiers_text(other['tiers'])} beside store '{beside}' and holds"
            " data"
        )
        if other["name"] in {store.name for store in self._stores}:
            return (
                f"{served}, and another store now has its name and place. Restore the earlier store; or run"
                " `memory doctor --repair`, which restores what the other stores hold"
            )
        if other["name"] in {leaf.name for leaf in self._placement.topology.leaves}:
            return (
                f"{served}, and it is not durable any more. So it has only copies now, and its data is not"
                " found. Make it durable again, as the log and `memory doctor` say"
            )
        instead = [
            store.name
            for store, note in notes.items()
            if note is None and set(self._tiers(store)) & set(other["tiers"])
        ]
        replaced = f"; store '{instead[0]}', which serves it now, is new" if instead else ""
        return (
            f"{served}, and this configuration omits it, so its data is not found{replaced}. Put it back into"
            " the configuration; or, if its data was moved or is not needed, run `memory doctor"
            f" --forget-store {other['name']}`"
        )

    async def _misplaced_tiers(self, store: Store, note: Record | None) -> dict[str, str]:
        """Return the tiers whose entries a store has although it no longer serves them.

        Each comes with a sentence for people. Only the tiers that the store served
        before are checked; for a store without a note, all tiers.
        """
        before = TIERS if note is None else (*note.body["tiers"], *note.body["former"])
        found: dict[str, str] = {}
        for tier in before:
            if tier in self._tiers(store) or not (
                store.capabilities.tenant_wide and store.capabilities.filter
            ):
                continue
            page = await self._placement.page(
                "stores.look", store, Query(ENTRIES, Everywhere(), Eq("tier", tier), limit=1)
            )
            if page.records:
                found[tier] = (
                    f"store '{store.name}' holds entries of tier '{tier}', which store"
                    f" '{self._placement.topology.home(tier).name}' serves now, so they may not be found."
                    " Give the tier back to it; or move them: `memory export` with the configuration from"
                    " before, then `memory import --same-ids` with this one into new stores"
                )
        return found

    async def _holds(self, store: Store) -> bool:
        """Return whether a store has a tenant's data; true if that is unknown."""
        if not store.capabilities.tenant_wide:
            return True
        async for partition, _ in self._placement.partitions("stores.look", store, Everywhere()):
            if partition.tenant != SYSTEM_TENANT:
                return True
        return False

    async def _write(self, store: Store, note: Record | None, body: Mapping[str, Any]) -> None:
        if note is not None and note.body == body:
            return
        now, version = (
            self._placement.now(),
            self._placement.next_version(0 if note is None else note.version),
        )
        record = Record(KEY, SETTINGS_SCOPE, version, now, now, body=dict(body), tier="mid")
        condition = Absent() if note is None else AtVersion(note.version)
        await self._placement.write_one(
            "stores.note", store, Put(SETTINGS, record, condition)
        )  # a lost race is fine: the other process notes the same


def _tiers_text(tiers: Collection[str]) -> str:
    return f"tier{'s' * (len(tiers) != 1)} {', '.join(map(repr, tiers))}" if tiers else "no tier"
