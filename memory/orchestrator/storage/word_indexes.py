"""Rebuilds word indexes of earlier library versions, in the background after opening.

Stores keep the words of each record beside it. When the tokenizer changes, records
written before are found by their old words only. Every store notes the version of the
tokenizer of its words. A store without that note is audited and repaired once.
"""

from __future__ import annotations

import logging

from memory.domain import ids
from memory.domain.errors import StoreError
from memory.domain.validation import SYSTEM_TENANT
from memory.orchestrator.storage.collections import SETTINGS, SETTINGS_SCOPE
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.steps import step
from memory.orchestrator.storage.topology import leaves_of
from memory.ports.record import Key, Record
from memory.ports.store import Store
from memory.ports.text import TOKENIZER
from memory.ports.writes import Absent, AtVersion, Put

log = logging.getLogger(__name__)

KEY = Key(SYSTEM_TENANT, ids.derived_id(SYSTEM_TENANT, SETTINGS_SCOPE, "words"))


class WordIndexes:
    """Compares the tokenizer's version with the note of each store."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement

    async def rebuild_outdated(self) -> list[str]:
        """Audit and repair the stores whose words another tokenizer made.

        Afterwards each of them notes the current version. The call may run in several
        processes at once, and may be repeated. A store that fails is left for the next
        call.

        Returns:
            The names of the stores that have been repaired.
        """
        done = []
        for store in self._stores:
            try:
                if await self._rebuild(store):
                    done.append(store.name)
            except StoreError as error:
                log.warning(
                    "the word index of store '%s' was not compared with its texts yet: %s", store.name, error
                )
        return done

    @property
    def _stores(self) -> list[Store]:
        """The stores that keep words on disk."""
        there = dict.fromkeys(leaf for home in self._placement.topology.homes for leaf in leaves_of(home))
        return [
            leaf
            for leaf in there
            if leaf.capabilities.lexical and (leaf.capabilities.durable or leaf.capabilities.shared)
        ]

    async def _rebuild(self, store: Store) -> bool:
        there = await self._placement.read_one("words.check", store, SETTINGS, KEY)
        note = there if isinstance(there, Record) else None
        if note is not None and note.body.get("tokenizer") == TOKENIZER:
            return False
        with step("words.rebuild"):
            found = await store.audit(repair=True)
        if found.problems:
            log.info("store '%s': the word index was rebuilt: %d problems", store.name, len(found.problems))
        now, over = self._placement.now(), getattr(there, "version", 0)
        record = Record(
            KEY,
            SETTINGS_SCOPE,
            self._placement.next_version(over),
            now,
            now,
            body={"tokenizer": TOKENIZER},
            tier="mid",
        )
        await self._placement.write_one(
            "words.note", store, Put(SETTINGS, record, AtVersion(over) if over else Absent())
        )
        return True
