"""Export a tenant: yield its lines in the order in which an import can write them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from memory.domain.filters import Filter
from memory.domain.scope import Scope, Subtree
from memory.facade.transfer.artifact_lines import exported_artifact
from memory.facade.transfer.lines import (
    exported_document,
    exported_entry,
    exported_record,
    exported_relation,
    exported_scratchpad,
    exported_version,
)
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.collections import MANIFESTS, SESSIONS
from memory.orchestrator.storage.entry_records import entry_of, own_vector
from memory.orchestrator.storage.kinds import KINDS
from memory.orchestrator.transfer.records import noted_of

Line = dict[str, Any]


async def lines_of(
    engine: Engine, tenant: str, scope: Scope | Subtree | None, passing: Filter | None = None
) -> AsyncIterator[Line]:
    """Yield sessions and artifacts, then entries, then records that refer to these.

    With a filter, only entries that pass it, and records that refer to these.

    See `memory.admin.export`.
    """
    there = set[str]()
    await engine.conversations.sessions.catch_up()
    await engine.conversations.window_exit.finish_pending(tenant)
    if passing is None:
        async for line in _sessions(engine, tenant, scope, there):
            yield line
    async for record, versions in engine.transfer.entries(tenant, scope, passing):
        there.add(record.key.id)
        yield exported_entry(entry_of(record), noted_of(record), own_vector(record))
        for version in versions:
            yield exported_version(version)
    async for relation in engine.relations.everything(tenant):
        if relation.source_id in there and relation.target_id in there:
            yield exported_relation(relation)
    async for kind, record in engine.transfer.records(tenant, scope):
        named = {record.fields.get(field) for field in KINDS.parents(kind.collection)} - {None}
        if kind.conversational:  # the session is in the export, unless it expired or was created since
            named = {record.scope}
        if named <= there:
            there.add(record.key.id)
            yield exported_record(kind, record)
    if passing is None:
        async for line in _documents_and_notes(engine, tenant, scope):
            yield line


async def _documents_and_notes(
    engine: Engine, tenant: str, scope: Scope | Subtree | None
) -> AsyncIterator[Line]:
    """Yield documents and, of a whole tenant, scratchpads."""
    async for document in engine.documents.everything(tenant, scope):
        yield exported_document(document)
    if scope is None:
        async for agent in engine.scratchpads.agents(tenant):
            if (pad := await engine.scratchpads.read(tenant, agent)).content:
                yield exported_scratchpad(pad)


async def _sessions(
    engine: Engine, tenant: str, scope: Scope | Subtree | None, there: set[str]
) -> AsyncIterator[Line]:
    """Yield sessions and then their artifacts; add the sessions' scopes to `there`."""
    incarnations: dict[str, object] = {}
    async for record in engine.transfer.of_sessions(SESSIONS, tenant, scope):
        if not engine.conversations.sessions.is_over(record):
            incarnations[record.scope] = record.body["incarnation"]
            yield exported_record(KINDS.of(SESSIONS), record)
    there.update(incarnations)
    async for manifest in engine.transfer.of_sessions(MANIFESTS, tenant, scope):
        if manifest.fields["incarnation"] == incarnations.get(manifest.scope):
            async for line in exported_artifact(engine.conversations.manifests, manifest):
                yield line
