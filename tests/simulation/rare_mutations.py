"""Mutations that show only where several things go wrong in their order: in the scenes that
runs end with, or after a setback.
"""

from __future__ import annotations

from memory.orchestrator.entries import browsing, derivation, entries, orphans, writing
from memory.orchestrator.erasure import erasure
from memory.orchestrator.retrieval import pool
from memory.orchestrator.retrieval import search as searching
from memory.orchestrator.storage import cache, generations, outbox, past_versions, split
from memory.orchestrator.tiering import moves as tiering
from memory.policies import visibility
from tests.support.mutations import Mutation

_SETBACK = ("generation.",)

RARE_MUTATIONS: dict[str, Mutation] = {
    # entries and their past
    "an-edit-undoes-a-relabel": Mutation(
        entries,
        "Entries.prepare_replacement",
        "AtVersion(old.version, tier=old.tier)",
        "AtVersion(old.version)",
        ("relabelled while it is edited",),
    ),
    "the-past-is-asked-of-the-cache": Mutation(
        entries,
        "Entries.get",
        "await self._read(key, self._first_store(kind)) if known_at is None"
        " else (await self._placement.locate(ENTRIES, key)).record",
        "await self._read(key, self._first_store(kind))",
        ("the past is asked for while it is owed",),
    ),
    "history-has-the-version-read-twice": Mutation(
        past_versions,
        "kept_versions",
        "if row.version < record.version and same_life(row, record)",
        "if same_life(row, record)",
        ("edited while its past is read",),
    ),
    "the-past-expires-by-today": Mutation(
        visibility,
        "filter_of",
        "unexpired_filter(asked.known_at or now)",
        "unexpired_filter(now)",
        ("an expiry is put off",),
    ),
    "home-is-read-before-the-cache": Mutation(
        entries,
        "Entries._read",
        "    seen = await self._cache.look(ENTRIES, key)\n"
        "    if seen.record is not None:\n"
        "        return seen.record\n"
        "    record = (await self._placement.locate(ENTRIES, key, born_in=born_in)).record\n",
        "    record = (await self._placement.locate(ENTRIES, key, born_in=born_in)).record\n"
        "    seen = await self._cache.look(ENTRIES, key)\n"
        "    if seen.record is not None:\n"
        "        return seen.record\n",
        ("slow to look into the cache",),
    ),
    "a-write-is-stamped-only-before": Mutation(
        entries,
        "Entries._replace",
        "    await self._cache.invalidate(ENTRIES, old.key)\n    await self._deliveries",
        "    await self._deliveries",
        ("slow to edit what fills the cache",),
    ),
    "a-cache-keeps-copies-for-ever": Mutation(
        cache,
        "Cache._is_fresh",
        " and abs(age) <= self._placement.settings.cache_max_age",
        "",
        ("edited while the cache is silent",),
    ),
    # keys and births
    "a-repeat-is-answered-the-last-kept-version": Mutation(
        writing,
        "EntryWriter._first_version",
        "next(iter(await kept_versions(self._placement, record)), record)",
        "next(reversed(await kept_versions(self._placement, record)), record)",
        ("version.read", "version."),
    ),
    "a-keyed-draft-looks-past-a-tombstone": Mutation(
        writing,
        "EntryWriter._meet_all",
        "if taken or there.record is not None or there.tombstone is not None:",
        "if taken or there.record is not None:",
        ("embedder.check", "write."),
    ),
    "fresh-replicas-forget-their-generation": Mutation(
        writing,
        "EntryWriter.mark_stored",
        "one.record = replace(one.record, generation=outcome.generation)",
        "pass",
        ("replica.", "erase."),
    ),
    "not-found-and-still-readable": Mutation(
        entries,
        "Entries.delete_if_scope_erased",
        'await self._erasure.delete(ENTRIES, old.key, at=old.version, held="deleted")',
        "pass",
        ("erase.",),
    ),
    # derivations
    "a-repeated-promotion-shows-a-retired-copy": Mutation(
        derivation,
        "Derivation._find_promoted",
        "await self._entries.live_record(tenant, _promoted_key(tenant, entry_id, target).id)",
        "(await self._placement.locate(ENTRIES, key := _promoted_key(tenant, entry_id, target))).record"
        " or await self._entries.live_record(tenant, key.id)",
        ("promoted again once the copy is retired",),
    ),
    "summaries-outlive-erased-sources": Mutation(
        derivation,
        "Derivation._compact",
        "replace(record, generation=generation, body=",
        "replace(record, body=",
        ("summed up while its scope is erased",),
    ),
    "sources-go-for-an-expired-copy": Mutation(
        derivation,
        "Derivation._made_before",
        "(is_expired(made, now) or not is_current(made, now))",
        "not is_current(made, now)",
        ("a copy expires before its original",),
    ),
    "an-edit-forgets-whose-deletion-is-owed": Mutation(
        outbox,
        "Outbox.remaining_steps",
        "> past)",
        "is StepLifetime.DELETED)",
        ("summed up, edited, and its sources still to be deleted",),
    ),
    # deletions
    "what-cannot-be-read-leaves-its-past": Mutation(
        erasure,
        "Erasure._delete_unreadable",
        "self._placement.kinds.of(collection), [])",
        "self._placement.kinds.of(collection), None)",
        ("delete.unreadable", "hanging."),
    ),
    "with-a-cache-later-stores-are-forgotten": Mutation(
        outbox,
        "elsewhere",
        "topology.later(store)]",
        "topology.later(store) if topology.cache is None]",
        ("delete.elsewhere",),
    ),
    "a-silent-cache-counts-as-cleared": Mutation(
        outbox,
        "Outbox._deliver",
        "[await self._cache.invalidate(pending.collection, pending.owner.key)",
        "[await self._cache.invalidate(pending.collection, pending.owner.key) or True",
        ("deleted while the cache is silent",),
    ),
    # setbacks
    "what-is-refused-for-its-generation-is-given-up": Mutation(
        outbox,
        "Outbox.is_settled",
        "return not (isinstance(pending.owner, Record) and await self._generations.lives_on(pending.owner,"
        " pending.store))",
        "return True",
        ("erased, and a store is set back",),
    ),
    "a-healer-erases-what-is-of-after": Mutation(
        generations,
        "Generations._erase_older",
        'And((behind, Lt("version", micros(before))))',
        "behind",
        _SETBACK,
    ),
    "a-move-from-a-store-behind-goes-nowhere": Mutation(
        tiering,
        "TierMover._handle_outcome",
        "await self._generations.lives_on(copy, source)",
        "pass",
        _SETBACK,
    ),
    # moves
    "a-move-within-a-store-clears-the-cache-only-before": Mutation(
        tiering,
        "TierMover._relabel",
        "    await self._cache.invalidate(collection, *[m.key for m in there])",
        "    pass",
        ("read by way of the cache while it moves",),
    ),
    "a-move-clears-the-cache-only-before": Mutation(
        tiering,
        "TierMover._release",
        "        await self._cache.invalidate(collection, *[mark.key for mark in moved])\n",
        "",
        ("read by way of the cache while it moves",),
    ),
    "a-mark-waits-for-what-is-forgotten": Mutation(
        outbox,
        "Outbox.is_settled",
        "        return False\n    return True",
        "        return False\n    return outcome.applied or outcome.stored is not None",
        ("an arrival is told of once its tombstone is forgotten",),
    ),
    "a-move-is-aborted-though-marked": Mutation(
        tiering,
        "TierMover.drop_arriving",
        "if released is not None and isinstance(released.stored, Mark):",
        "if False:",
        ("slow to let go of what another has let go of",),
    ),
    "marks-live-a-second": Mutation(
        outbox,
        "Outbox._mark_life",
        "else settings.mark_life",
        "else settings.mark_life / 3600",
        ("a write comes once more when it has moved",),
    ),
    # what is owed, and sweeps
    "one-step-done-and-all-are-settled": Mutation(
        outbox, "Outbox._finish_some", "(one, tuple(steps))", "(one, one.owner.owed)", ("owed.", "replica.")
    ),
    # browsing and searching
    "rows-that-do-not-count-take-places": Mutation(
        browsing,
        "EntryBrowser._read",
        "len(kept) > asked.limit",
        "len(page.records) > asked.limit",
        ("few are asked for beside a copy that does not count",),
    ),
    "a-hit-that-moved-on-is-lost": Mutation(
        searching,
        "_EntryReader._homes",
        "if measured.ids[row] not in homes and measured.ids[row] not in failed]",
        "if measured.roles[row] is not Role.HOME]",
        ("moved while it is searched for",),
    ),
    "a-search-goes-against-the-moves": Mutation(
        pool,
        "CandidateCollector.parts",
        "for store in self._placement.topology.homes:",
        "for store in reversed(self._placement.topology.homes):",
        ("moved between two answers to a search",),
    ),
    "an-export-goes-against-the-moves": Mutation(
        browsing,
        "EntryBrowser.every_record",
        "for store in self._placement.topology.homes:",
        "for store in reversed(self._placement.topology.homes):",
        ("moved while everything is read",),
    ),
    # split stores
    "a-tombstone-speaks-for-the-record": Mutation(
        split,
        "SplitStore._find",
        "counts = max(found",
        "counts = min(found",
        ("revived where a tier is split",),
    ),
    "the-first-part-speaks-for-all": Mutation(
        split,
        "SplitStore.get",
        "authoritative_copy(found.values()) if",
        "next(iter(found.values())) if",
        ("revived where a tier is split",),
    ),
    # what a later life, a healer and a silent store are for
    "unplacing-is-as-of-now": Mutation(
        outbox,
        "Outbox._write",
        "owner.key, version=owner.version, when=Newer()",
        "owner.key, version=self._placement.next_version(owner.version), when=Newer()",
        ("revived while a sweeper is frozen",),
    ),
    "a-silent-store-has-no-ends": Mutation(
        orphans,
        "existing_keys",
        " or at.unknown is not None",
        "",
        ("linked, and swept while a store is silent",),
    ),
}
"""Not listed: `tombstones-that-owe-are-purged`, `Maintenance._purge` without its
condition `Not(Eq("owing", True))`. Its `Purge` settles nothing, and every store refuses
one that would forget what owes (`memory.ports.write_decision`): without the condition a sweep
asks for more and forgets the same. Nor is `a-half-healed-store-stays-so`,
`Generations.lives_on` over `behind` alone: it showed within 300 seeds until erasures
asked only the kinds that a partition can hold; since then 3,000 runs pass with it.
`Generations.bring_up_the_rest` may back it by now: not looked into.
"""
