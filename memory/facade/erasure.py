"""Count what an erasure would erase and leave, without erasing anything."""

from __future__ import annotations

import logging
from collections import Counter

from memory.domain.errors import StoreError
from memory.domain.scope import Scope, ScopeKind, Subtree
from memory.domain.session import ErasedScope, ErasedTenant, ErasedUser
from memory.orchestrator.conversations.redaction import is_counted, said_by
from memory.orchestrator.engine import Engine
from memory.orchestrator.erasure.erasure import count_of
from memory.orchestrator.storage.collections import DOCUMENTS, ENTRIES, MESSAGES
from memory.policies.entry_query import where_of
from memory.ports.query import Query, Tenant, Where, within
from memory.ports.record import Partition, Record

log = logging.getLogger(__name__)

PAGE = 200


async def sessions_left(engine: Engine, tenant: str, scope: Scope) -> list[str]:
    """Return the sessions that an erasure of the scope leaves.

    These are the sessions with the user of a `user:` scope, and the conversation of a
    `session:` scope.
    """
    try:
        return await _find_sessions_left(engine, tenant, scope)
    except StoreError as error:
        log.warning("the sessions that the erasure of %s left cannot be listed: %s", scope.kind, error)
        return []


async def _find_sessions_left(engine: Engine, tenant: str, scope: Scope) -> list[str]:
    if scope.kind is ScopeKind.USER:
        return [one.id for one in await engine.conversations.redaction.sessions_of(tenant, scope.id)]
    if scope.kind is ScopeKind.SESSION and await engine.conversations.find(tenant, scope.id) is not None:
        return [scope.id]
    return []


async def erase_scope(engine: Engine, tenant: str, scope: Scope | Subtree, *, dry_run: bool) -> ErasedScope:
    """Erase a scope or a subtree, or count what is there.

    Also list the sessions that stay.
    """
    if isinstance(scope, Subtree):
        if dry_run:
            return await would_erase_subtree(engine, tenant, scope)
        done = await engine.tenants.erase_subtree(tenant, scope)
        held = await engine.derivatives.held_derived(tenant, lambda text: text.startswith(scope.prefix))
        return ErasedScope(int(done), documents=done.documents, scopes=done.scopes, held=held)
    if dry_run:
        return await would_erase_scope(engine, tenant, scope)
    erased = await engine.erasure.erase(Partition(tenant, scope.text))
    left = await sessions_left(engine, tenant, scope)
    held = await engine.derivatives.held_derived(tenant, lambda text: text == scope.text)
    return ErasedScope(count_of(erased, ENTRIES), left, count_of(erased, DOCUMENTS), held=held)


async def would_erase_scope(engine: Engine, tenant: str, scope: Scope) -> ErasedScope:
    """Count the entries and documents that `admin.erase` would erase.

    Raises:
        LegalHoldActive: If `admin.erase` would raise it.
    """
    partition = Partition(tenant, scope.text)
    await engine.erasure.holds.refuse_partition(partition)
    entries, documents = await _count_within(engine, partition)
    return ErasedScope(entries, await sessions_left(engine, tenant, scope), documents)


async def _count_within(engine: Engine, partition: Partition) -> tuple[int, int]:
    """Return how many entries and documents a partition has."""
    entries = 0
    for store in engine.topology.homes:
        entries += (await store.count(Query(ENTRIES, within(partition)))).records
    return entries, await _count_documents(engine, within(partition))


async def _count_documents(engine: Engine, where: Where) -> int:
    homes = engine.topology.documents.stores
    return sum([(await store.count(Query(DOCUMENTS, where))).records for store in homes])


async def would_erase_subtree(engine: Engine, tenant: str, subtree: Subtree) -> ErasedScope:
    """Count what `admin.erase` would erase of a subtree.

    Raises:
        LegalHoldActive: If `admin.erase` would raise it.
    """
    entries = scopes = 0
    async for scope in engine.tenants.scopes_of(tenant, subtree):
        await engine.erasure.holds.refuse_partition(Partition(tenant, scope))
        scopes += 1
    for store in engine.topology.homes:
        entries += (await store.count(Query(ENTRIES, where_of(tenant, (subtree,))))).records
    documents = await _count_documents(engine, where_of(tenant, (subtree,)))
    return ErasedScope(entries, documents=documents, scopes=scopes)


async def would_erase_user(engine: Engine, tenant: str, user: str) -> ErasedUser:
    """Count what `admin.erase_user` would erase.

    Raises:
        LegalHoldActive: If `admin.erase_user` would raise it.
    """
    await engine.erasure.holds.refuse_user(tenant, user)
    sessions = await engine.conversations.redaction.sessions_of(tenant, user)
    own, messages = {session.id for session in sessions}, 0
    said = Query(MESSAGES, Tenant(tenant), said_by(user), limit=PAGE)
    async for page in engine.placement.pages("forget.messages", engine.topology.archive, said):
        records = [record for record in page.records if isinstance(record, Record) and is_counted(record)]
        messages += sum(record.fields.get("conversation_id") not in own for record in records)
    entries, documents = await _count_within(engine, Partition(tenant, Scope.user(user).text))
    return ErasedUser(len(sessions), messages, entries, documents=documents)


async def would_erase_tenant(engine: Engine, tenant: str) -> ErasedTenant:
    """Count the scopes and records that `admin.erase_tenant` would erase."""
    scopes, records = set[str](), Counter[tuple[str, str]]()
    for store in engine.topology.homes:
        async for partition, _ in engine.placement.partitions("forget.scopes", store, Tenant(tenant)):
            scopes.add(partition.scope)
        for collection in engine.placement.kinds.collections:
            records[collection.name, store.name] = (
                await store.count(Query(collection, Tenant(tenant)))
            ).records
    by_kind: dict[str, dict[str, int]] = {}
    for (collection_name, store_name), count in sorted(records.items()):
        if count:
            by_kind.setdefault(collection_name, {})[store_name] = count
    return ErasedTenant(len(scopes), by_kind)
