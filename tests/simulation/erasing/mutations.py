"""Mutations in a tenant's erasure that a run must notice, by the name of what goes wrong
then.
"""

from __future__ import annotations

from memory.orchestrator.conversations import sessions
from memory.orchestrator.entries import scratchpads
from memory.orchestrator.erasure import erasure
from memory.orchestrator.maintenance import tenant_erasure
from memory.orchestrator.storage import operations, past_versions
from tests.support.mutations import Mutation

MUTATIONS: dict[str, Mutation] = {
    "nobody-goes-on-with-what-a-dead-eraser-left": Mutation(
        operations, "new_operation", "owed=(PendingStep(step, step, data),)", "owed=()"
    ),
    "what-a-clock-wrote-that-is-ahead-is-spared": Mutation(
        tenant_erasure, "TenantErasure._begin", "head.version + 1 for head", "0 for head"
    ),
    "an-erasure-is-over-though-a-store-was-away": Mutation(
        tenant_erasure, "TenantErasure._pages", "done.away[store.name] = error", "pass"
    ),
    "what-was-edited-since-stays": Mutation(
        tenant_erasure, "TenantErasure._round", "await self._delete(place, store, record, done)", "pass"
    ),
    "what-was-edited-since-is-in-no-receipt": Mutation(
        tenant_erasure, "TenantErasure._delete", "+= gone", "+= 0"
    ),
    "a-receipt-counts-what-was-found-only-once": Mutation(
        tenant_erasure, "TenantErasure._round", "done.counts += await", "done.counts = await"
    ),
    "scopes-are-erased-whole": Mutation(
        tenant_erasure, "TenantErasure._erase", "before=before, prefix", "prefix"
    ),
    "copies-of-what-was-before-stay": Mutation(
        past_versions, "is_older", "if int(str(record.body.get(MADE_OF, version))) < version:", "if False:"
    ),
    "a-session-of-before-is-spared": Mutation(
        sessions, "SessionRecords.erase_before", "is_of_before(stored, before)", "False"
    ),
    "a-session-goes-that-was-created-since": Mutation(
        sessions, "SessionRecords.erase_before", "is_of_before(stored, before)", "True"
    ),
    "what-forked-off-since-stays": Mutation(
        sessions,
        "_earliest_moment",
        "int(body.get(MADE_FROM, micros(record.created_at)))",
        "micros(record.created_at)",
    ),
    "a-session-that-was-named-since-stays": Mutation(
        tenant_erasure,
        "TenantErasure._scopes",
        "if isinstance(row, Record) and is_of_before(row, before)",
        "if False",
    ),
    "all-is-erased-that-is-of-a-lower-generation": Mutation(
        erasure, "Erasure._erase_in", "before is not None:\n        older =", "False:\n        older ="
    ),
    "what-is-spared-is-left-behind": Mutation(
        erasure,
        "Erasure._erase_in",
        "await self._generations.spare(store, partition, generation, before)",
        "pass",
    ),
    "notes-since-miss-those-that-went": Mutation(
        scratchpads, "Scratchpads._begin_anew", "if upto <= (await self._end(partition)).cleared:", "if True:"
    ),
    "a-note-follows-one-that-has-gone": Mutation(
        scratchpads, "Scratchpads._put", "generation=end.generation,", "generation=None,"
    ),
    "the-parts-of-a-note-are-older-than-it": Mutation(
        scratchpads, "Scratchpads._stand", "for part in parts:", "for part in ():"
    ),
}
