"""Mutations in what acts by rules that a run of rules must notice, by the name of what goes
wrong then.
"""

from __future__ import annotations

from memory.orchestrator.entries import derivation
from memory.orchestrator.erasure import erasure, legal_holds
from memory.orchestrator.maintenance import sweeps
from memory.orchestrator.storage import budgets, lease
from memory.orchestrator.tiering import promotion, quotas, retention
from memory.orchestrator.tiering import rules as judging
from memory.policies import promotion as promotion_rules
from memory.policies import retention as retention_rules
from memory.policies import single_conditions
from tests.support.mutations import Mutation

MUTATIONS: dict[str, Mutation] = {
    # rules of retention
    "age-is-counted-from-the-last-change": Mutation(
        judging, "facts_of", 'created_at=own["created_at"]', 'created_at=own["updated_at"]'
    ),
    "idleness-is-counted-from-the-beginning": Mutation(
        judging, "facts_of", 'updated_at=own["updated_at"]', 'updated_at=own["created_at"]'
    ),
    "a-rule-asks-an-hour-ahead": Mutation(
        retention,
        "Retention.by_sweep",
        "now = self._placement.now()",
        "now = self._placement.now() + timedelta(hours=1)",
    ),
    "a-rule-takes-what-was-edited-since-it-was-asked": Mutation(
        erasure, "Erasure._delete_at", " and row.version == at[row.key]", ""
    ),
    "a-rule-leaves-copies-versions-and-links": Mutation(
        erasure,
        "Erasure._delete_at",
        "deletions = [self.deletion(collection, record, store, self._placement.next_version(record.version))"
        " for record in going]",
        "deletions = [replace(self.deletion(collection, record, store,"
        " self._placement.next_version(record.version)), owed=()) for record in going]",
    ),
    "a-scope-keeps-one-too-few": Mutation(
        single_conditions,
        "ScopeExceeds.evaluate",
        "getattr(facts.rank, self.measure) > self.most",
        "getattr(facts.rank, self.measure) >= self.most",
    ),
    "a-rule-that-keeps-comes-last": Mutation(
        retention_rules,
        "decide_retention",
        "for rule in rules:",
        "for rule in sorted(rules, key=lambda rule: rule.then == 'keep'):",
    ),
    "one-kept-version-too-few-stays": Mutation(
        retention,
        "Retention._beyond",
        "self._judged_version(head, next(newer), now)",
        "self._judged_version(head, next(newer) + 1, now)",
    ),
    "a-grace-is-not-kept": Mutation(sweeps, "Maintenance._due_pages", "now - grace)", "now)"),
    "a-session-ends-without-its-entries": Mutation(
        retention,
        "Retention._end",
        "(await self._end_session(tenant, Scope.session(session_id))).waiting",
        "[]",
    ),
    # holds
    "a-hold-is-read-once": Mutation(
        legal_holds,
        "LegalHoldRecords._fetch_holds",
        '    found = await self._placement.read("hold.read", archive, HOLDS, list(dict.fromkeys(keys)))\n',
        "    read = self.__dict__.setdefault('read', {})\n"
        "    if tuple(keys) not in read:\n"
        '        read[tuple(keys)] = await self._placement.read("hold.read", archive, HOLDS, [*dict.fromkeys(keys)])\n'
        "    found = read[tuple(keys)]\n",
    ),
    "a-hold-is-read-before-and-not-when-something-is-deleted": Mutation(
        erasure, "Erasure._delete_at", "await self.holds.over(going)", "{}"
    ),
    "a-caller-deletes-what-is-held": Mutation(
        erasure, "Erasure._delete", "if not despite_holds:", "if False:"
    ),
    "a-scope-is-erased-though-it-is-held": Mutation(
        erasure, "Erasure.erase", "await self.holds.refuse_partition(partition)", "pass"
    ),
    "an-entry-that-is-held-goes-with-its-scope": Mutation(
        legal_holds, "LegalHoldRecords.refuse_partition", "if whole:", "if False:"
    ),
    "a-hold-over-a-user-is-not-over-their-sessions": Mutation(
        legal_holds, "LegalHoldRecords._subjects", "if of_sessions:", "if False:"
    ),
    "a-hold-over-an-entry-is-not-over-what-it-said": Mutation(
        legal_holds, "_of_entries", '("entry_id", "source_id", "target_id")', '("source_id", "target_id")'
    ),
    "a-second-hold-takes-the-place-of-the-first": Mutation(
        legal_holds,
        "LegalHoldRecords.place",
        "said if hold.name in said else {**said, hold.name: new}",
        "{hold.name: new}",
    ),
    "a-released-hold-holds-on": Mutation(
        legal_holds, "LegalHoldRecords.release", "if other != name", "if True"
    ),
    # quotas
    "writes-of-one-process-do-not-wait-for-each-other": Mutation(
        quotas,
        "Quotas.admit",
        "await turns.enter_async_context(self._locks.setdefault(place, asyncio.Lock()))",
        "pass",
    ),
    "a-quota-counts-what-was-there-alone": Mutation(
        quotas, "Quotas._count", "more and there + more > quota.most", "more and there > quota.most"
    ),
    "a-quota-counts-one-store": Mutation(
        quotas, "Quotas._usage", "self._placement.topology.homes:", "self._placement.topology.homes[-1:]:"
    ),
    "the-newest-is-evicted": Mutation(
        quotas, "Quotas._evict", "for store, head in candidates:", "for store, head in candidates[::-1]:"
    ),
    "nothing-is-evicted": Mutation(
        quotas, "Quotas._evict_behind", "await self._evict(place, written)", "pass"
    ),
    "too-many-are-evicted": Mutation(quotas, "Quotas._evict", "over -= size", "over -= size / 2"),
    # copies and moves
    "a-copy-is-another-each-time": Mutation(
        derivation,
        "_promoted_key",
        'ids.derived_id(tenant, target.text, "promote", entry_id)',
        'ids.derived_id(tenant, target.text, "promote", entry_id, repr(datetime.now()))',
    ),
    "a-copy-that-was-deleted-is-made-again": Mutation(
        promotion, "Promotion._copy", "revive=False", "revive=True"
    ),
    "everything-is-copied": Mutation(
        promotion_rules, "decide_copies", "rule.reason(facts, now)", "rule.describe()"
    ),
    "an-end-copies-the-first-of-a-page": Mutation(
        promotion, "Promotion._copy", "for one in judged for", "for one in judged[:1] for"
    ),
    "a-sweep-moves-what-its-filter-lets-through": Mutation(
        promotion_rules, "decide", "rule.reason(facts, now)", "rule.describe()"
    ),
    # rounds and workers
    "a-round-spends-itself-on-what-is-held": Mutation(
        retention, "Retention.by_sweep", "free = await self._free(portion)", "free = portion"
    ),
    "what-is-looked-at-counts-as-done": Mutation(budgets, "Allowance.over", "if not count:", "if False:"),
    "a-dead-worker-s-lease-lasts": Mutation(
        lease,
        "Lease._take",
        'now < stands.fields["until"] <= now + 2 * length',
        'now < stands.fields["until"] + 10_000 * length',
    ),
}
