"""Records of operations over many records: a sweep completes them after a crash."""

from __future__ import annotations

from collections.abc import Mapping

from memory.domain import ids
from memory.domain.validation import SYSTEM_TENANT
from memory.orchestrator.storage.collections import OPERATIONS
from memory.orchestrator.storage.generations import OPERATIONS_SCOPE
from memory.orchestrator.storage.placement import Placement
from memory.ports.record import JsonValue, Key, PendingStep, Record
from memory.ports.writes import AtVersion, Delete


def new_operation(
    placement: Placement, step: str, subject: tuple[str, ...], data: Mapping[str, JsonValue], kind: str = ""
) -> Record:
    """Return the record of an operation that is about to begin.

    Its key depends on its kind and its subject, so another call of the same operation
    meets it. The kind is the name of the step unless it is given.
    """
    kind, now = kind or step, placement.now()
    return Record(
        Key(SYSTEM_TENANT, ids.derived_id(SYSTEM_TENANT, OPERATIONS_SCOPE, kind, *subject)),
        OPERATIONS_SCOPE,
        placement.next_version(),
        now,
        now,
        fields={"kind": kind},
        tier="mid",
        owed=(PendingStep(step, step, data),),
    )


async def end_operation(name: str, placement: Placement, operation: Record, step: str) -> None:
    """Delete the record of a finished operation, because it names its subject."""
    gone = Delete(
        OPERATIONS,
        operation.key,
        placement.next_version(operation.version),
        AtVersion(operation.version),
        discard_at=placement.tombstone_until(),
        settles=frozenset({step}),
    )
    await placement.write_one(name, placement.topology.archive, gone)
