"""The gates of a manager. They work like those of a memory, for any kind of store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from memory.agents.manager.stores import NamedStore
from memory.domain.agent_results import StoreEntry
from memory.domain.conflicts import ConflictReport
from memory.domain.errors import RejectedByGate
from memory.domain.provenance import Provenance
from memory.facade.arguments import function
from memory.orchestrator.enrichment.conflicts import Resolver
from memory.orchestrator.storage.settings import EngineSettings
from memory.orchestrator.trust.gates import GateRunner, Verdict, changes_of, lets_out

StoreWriteGate: TypeAlias = Callable[[StoreEntry, Provenance], "Verdict | Awaitable[Verdict]"]
StoreRecallGate: TypeAlias = Callable[[StoreEntry], "bool | Awaitable[bool]"]
CHANGED = frozenset({"content", "metadata"})


class StoreGates:
    """Runs the write gate and the recall gate of a manager."""

    def __init__(self, write: StoreWriteGate | None = None, recall: StoreRecallGate | None = None) -> None:
        for name, gate in (("write_gate", write), ("recall_gate", recall)):
            if gate is not None:
                function(name, gate)
        self._write, self._recall = write, recall
        self._writing, self._recalling = (GateRunner(EngineSettings().deadline) for _ in range(2))

    async def add(
        self,
        store: NamedStore,
        content: str,
        metadata: Mapping[str, Any] | None,
        provenance: Provenance,
        *,
        key: str | None = None,
        detect_conflicts: bool = False,
        resolve: Resolver | None = None,
    ) -> ConflictReport | None:
        """Add a text to a store as the write gate allows; see `NamedStore.add`.

        Raises:
            RejectedByGate: If the gate rejects the text.
        """
        if self._write is not None:
            entry = StoreEntry(content, store.name, None if metadata is None else dict(metadata))
            [answer] = await self._writing.answers_of(self._write, [(entry, provenance)])
            changes = changes_of(answer)
            if changes.keys() - CHANGED:
                raise RejectedByGate("the write gate of a manager may change only content and metadata")
            content, metadata = changes.get("content", content), changes.get("metadata", metadata)
        return await store.add(
            content, metadata, provenance, key=key, detect_conflicts=detect_conflicts, resolve=resolve
        )

    async def let_out(self, entries: Sequence[StoreEntry]) -> list[StoreEntry]:
        """Return the entries that the recall gate allows."""
        if self._recall is None or not entries:
            return list(entries)
        answers = await self._recalling.answers_of(self._recall, [(entry,) for entry in entries])
        return [entry for entry, answer in zip(entries, answers, strict=True) if lets_out(answer)]
