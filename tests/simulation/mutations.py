"""Mutations in the engine, by the name of what goes wrong then (see `tests.support.mutations`)."""

from __future__ import annotations

from memory.orchestrator.embeddings import passages
from memory.orchestrator.entries import browsing, derivation, entries, orphans, relations, writing
from memory.orchestrator.erasure import erasure
from memory.orchestrator.maintenance import sweeps as maintenance
from memory.orchestrator.retrieval import pool
from memory.orchestrator.storage import (
    cache,
    deliveries,
    entry_records,
    id_reuse,
    lease,
    outbox,
    placement,
    versions,
)
from memory.orchestrator.tiering import moves as tiering
from memory.policies import visibility
from memory.ports import due
from tests.support.mutations import Mutation

_DERIVE, _KEEP, _ERASE, _LINK, _CACHE, _SWEEP = (
    ("derive.",),
    ("version.",),
    ("erase.",),
    ("relat",),
    ("cache.",),
    ("sweep.",),
)
_PASSAGES, _DELIVER = ("passages.",), ("replica.", "version.")

MUTATIONS: dict[str, Mutation] = {
    # derivations
    "sources-are-deleted-before-the-result-is-stored": Mutation(
        derivation,
        "Derivation._put_record",
        "    store = self._placement.topology.home(record.tier)\n",
        "    store = self._placement.topology.home(record.tier)\n    for source in to_delete:\n"
        "        await self._erasure.delete(ENTRIES, source.key, at=source.version)\n",
        _DERIVE,
    ),
    "sources-are-deleted-though-edited-since": Mutation(
        erasure, "Erasure._delete_noted", ", at=version, ", ", ", ("derive.",)
    ),
    "sources-are-never-deleted": Mutation(
        derivation, "Derivation._put_record", "if to_delete else []", "if False else []", ("delete.home",)
    ),
    "a-second-life-begins-before-the-first-is-settled": Mutation(
        id_reuse,
        "IdReuse._laid_to_rest",
        "isinstance(row, Tombstone) and row.owed",
        "False",
        ("hanging.walk",),
    ),
    "a-copy-is-taken-for-one-of-the-latest-text": Mutation(
        derivation,
        "Derivation.promote",
        "delete_original and there.body.get(COPIED_VERSION) != source.version",
        "False",
        ("delete.home",),
    ),
    "a-promotion-made-before-is-refused": Mutation(
        derivation, "Derivation._put_record", "if there.record is not None:", "if False:", _DERIVE
    ),
    "a-derived-entry-owes-no-replica": Mutation(
        derivation,
        "Derivation._put_record",
        "*write_steps(self._placement, ENTRIES, born.record, born.store), *pending",
        "*pending",
        _DERIVE,
    ),
    "a-copy-forgets-when-it-expires": Mutation(
        derivation, "Derivation._copy_of", "expires_at=origin.expires_at, ", ""
    ),
    "a-copy-forgets-its-tags": Mutation(
        derivation, "Derivation._copy_of", '"tags": origin.tags,', '"tags": [],', _DERIVE
    ),
    # changes
    "debts-are-dropped-by-an-edit": Mutation(
        entries, "Entries.prepare_replacement", "*carried, ", "", ("version.keep",)
    ),
    "a-kept-version-outlives-its-scope": Mutation(
        outbox, "Outbox._copy", "generation=owner.generation", "generation=None", ("version.keep", "erase.")
    ),
    "an-edit-owes-its-kept-version-to-nobody": Mutation(
        entries,
        "Entries.prepare_replacement",
        "keep = () if beside else (keep_version_step(replaced, ENTRY_VERSIONS),)",
        "keep = ()",
        _KEEP,
    ),
    "an-edit-beside-the-archive-keeps-no-version": Mutation(
        entries, "Entries.prepare_replacement", "if beside:\n", "if False:\n", ("update.",)
    ),
    "an-update-of-what-was-erased-is-acknowledged": Mutation(
        entries,
        "Entries._replace",
        "if not all(o.applied for o in outcomes):\n        return None\n",
        "",
        ("update.",),
    ),
    "what-is-retired-is-changed": Mutation(
        entries,
        "Entries._attempt",
        "if not is_current(record, now)",
        "if False",
        ("update.", "cache.invalidate"),
    ),
    "what-has-expired-is-changed": Mutation(
        entries, "Entries._attempt", " or is_expired(home[0], now)", "", ("update.",)
    ),
    "a-window-is-ended-twice": Mutation(
        entries,
        "Entries.invalidate",
        'if record.fields.get("valid_to") is not None:',
        "if False:",
        ("cache.invalidate", "update."),
    ),
    "an-edit-keeps-its-old-vector": Mutation(
        entries,
        "Entries._attempt",
        'if changes.keys() & {"content", "title", "searchable"} or',
        "if False and",
        ("update.",),
    ),
    "an-edit-forgets-its-generation": Mutation(
        entry_records, "apply_changes", "generation=record.generation,", "", ("erase.delete",)
    ),
    "an-edit-breaks-the-chain-of-kept-versions": Mutation(
        entry_records, "apply_changes", "previous=record.version,", "", _KEEP
    ),
    "an-edit-leaves-the-tags": Mutation(
        entry_records, "apply_changes", 'if "tags" in changes:', "if False:", ("update.",)
    ),
    "an-edit-leaves-the-words-it-is-found-by": Mutation(
        entry_records,
        "apply_changes",
        'texts = texts_of(title, content or "", list(fields.get("tags") or ()), fields.get("source"))',
        "texts = dict(record.texts)",
        ("update.",),
    ),
    "a-kept-version-overwrites-the-one-before": Mutation(
        versions, "kept_version", "record.key.id, record.version)", "record.key.id, 0)", _KEEP
    ),
    # keys
    "another-text-under-a-key-is-answered-the-first": Mutation(
        writing,
        "EntryWriter._replay_write",
        "(conflict := _conflict(one, there.record)) is not None",
        "False",
        ("write.",),
    ),
    "a-repeated-key-is-answered-the-latest-version": Mutation(
        writing,
        "EntryWriter._first_version",
        "return next(iter(await kept_versions(self._placement, record)), record)",
        "return record",
        ("version.read", "write."),
    ),
    "an-unasked-key-is-revived": Mutation(
        writing,
        "EntryWriter.meet",
        "(revive or was_expired(there))",
        "True",
        ("write.", "life"),
    ),
    # long texts
    "a-long-text-owes-no-passages": Mutation(
        outbox, "write_steps", "(*owed, PendingStep(MAKE_PASSAGES, MAKE_PASSAGES))", "owed", _PASSAGES
    ),
    "an-edit-keeps-its-passages": Mutation(
        entry_records, "apply_changes", "fields.pop(SAID, None)", "fields[SAID] = said_at(record)", _PASSAGES
    ),
    "a-passage-forgets-its-generation": Mutation(
        passages, "PassageBuilder._passage", "generation=record.generation,", "", _PASSAGES
    ),
    # deletions
    "deletion-drops-debts": Mutation(
        erasure,
        "Erasure.deletion",
        "*self._outbox.remaining_steps(record, past=StepLifetime.DELETED), ",
        "",
        ("summed up, edited, and its sources still to be deleted",),
    ),
    "deletion-leaves-relations": Mutation(
        outbox, "deletion_steps", "kind.named_by.items()", "()", ("derive.",)
    ),
    "deletion-forgets-the-last-kept-version": Mutation(
        erasure, "Erasure.deletion", "versions = [record.previous, ", "versions = [", _KEEP
    ),
    "a-noted-version-is-not-asked-for": Mutation(
        erasure, "Erasure._delete", " or (at is not None and home[0].version != at)", "", ("derive.",)
    ),
    "deletion-leaves-passages": Mutation(
        erasure, "Erasure.deletion", "*passages_left(kind, record)", "", _PASSAGES
    ),
    "a-tombstone-lives-no-moment": Mutation(
        placement,
        "Placement.tombstone_until",
        "self.settings.tombstone_life",
        "self.settings.lease * 0",
        ("delete.", "sweep.purge"),
    ),
    # scopes
    "erasure-skips-the-cache": Mutation(
        erasure,
        "Erasure._stores",
        "*self._placement.topology.stores",
        "*self._placement.topology.homes",
        ("cache.look",),
    ),
    "erasure-leaves-copies": Mutation(
        erasure,
        "Erasure._erase_in",
        "await self._leave_tombstones(store, kind, [partition], older, OTHER_ROLES, version)",
        "pass",
        _ERASE,
    ),
    "erasure-leaves-kept-versions": Mutation(
        erasure,
        "Erasure._erase_in",
        "in self._placement.kinds.within(partition):",
        "in self._placement.kinds.within(partition)[::2]:",
        _ERASE,
    ),
    "erasure-counts-copies-too": Mutation(
        erasure,
        "Erasure._erase_in",
        "HOMES if has_copies else frozenset(Role)",
        "frozenset(Role)",
        _ERASE,
    ),
    "erasure-forgets-its-operation": Mutation(
        erasure,
        "Erasure._operation",
        "owed=(PendingStep(ERASE_SCOPE, ERASE_SCOPE, data), *then),",
        "",
        _ERASE,
    ),
    "erasure-never-ends-its-operation": Mutation(
        erasure, "Erasure._becomes", "AtVersion(operation.version)", "AtVersion(0)", ("erase.end",)
    ),
    "erasure-begins-at-the-same-generation": Mutation(erasure, "Erasure.erase", "1 + await", "await", _ERASE),
    "erasure-takes-what-was-written-since": Mutation(
        erasure, "Erasure._erase_in", 'Lt("generation", generation)  #', "None  #", ("erase.delete",)
    ),
    # what is owed
    "a-kept-version-is-settled-unpaid": Mutation(
        outbox,
        "Outbox._write",
        "return self._copy(pending.collection, owner, owed)",
        "return owed.step == KEPT_VERSION or self._copy(pending.collection, owner, owed)",
        _KEEP,
    ),
    "a-replica-is-settled-unpaid": Mutation(
        outbox,
        "Outbox._write",
        "return self._copy(pending.collection, owner, owed)",
        "return owed.step == REPLICA or self._copy(pending.collection, owner, owed)",
        ("replica.",),
    ),
    "an-arrival-is-flagged-as-nothing": Mutation(
        outbox, "Outbox._write", "role=Role.HOME)", "role=Role.ARRIVING)", ("move.arrive",)
    ),
    "what-is-done-stays-owed": Mutation(
        outbox, "Outbox._finish_some", "dict.fromkeys(one.store for one in done)", "()", ("owed.",)
    ),
    "what-failed-is-taken-for-done": Mutation(
        outbox,
        "Outbox._each",
        "return [error] * len(items)",
        "return [True] * len(items)",
        ("owed.", "replica."),
    ),
    "an-edit-carries-replicas-and-nothing-else": Mutation(
        outbox,
        "Outbox.remaining_steps",
        "StepLifetime.ERASED) > past",
        "StepLifetime.ERASED) <= past",
        ("version.keep", "update."),
    ),
    # what is delivered behind the write
    "a-delivery-is-taken-for-done": Mutation(
        deliveries,
        "Deliveries._deliver_some",
        "left = await self._outbox.finish_all(",
        "left = [()] * len(self._under_way) or await self._outbox.finish_all(",
        _DELIVER,
    ),
    "the-first-version-waits-for-all": Mutation(
        deliveries,
        "Deliveries._queue",
        "there.pending.owner.version <= one.owner.version",
        "there.pending.owner.version > one.owner.version",
        _DELIVER,
    ),
    "flushing-waits-for-nothing": Mutation(
        deliveries, "Deliveries.flush", "any(waits.place <= last for waits in self._all())", "False", _DELIVER
    ),
    "a-search-looks-past-what-is-queued": Mutation(
        pool, "CandidateCollector._answers", "(queued, *copied)", "copied", _DELIVER
    ),
    "queued-work-that-deletes-is-put-off-for-ever": Mutation(
        deliveries, "Deliveries.deliver", "await self._outbox.finish_all(now)", "pass", ("derive.",)
    ),
    # moves
    "a-move-within-a-store-at-any-version": Mutation(
        tiering,
        "TierMover._relabel",
        "AtVersion(record.version, Role.HOME, record.tier)",
        "Newer()",
        ("move.relabel",),
    ),
    "a-move-within-a-store-owes-no-replica": Mutation(
        tiering,
        "TierMover._relabel",
        "owed=replicas(self._placement, collection, store, to)",
        "owed=()",
        ("move.relabel",),
    ),
    "a-move-owes-no-replica": Mutation(
        tiering,
        "TierMover._carry",
        "owed = replicas(self._placement, collection, target, to)",
        "owed = ()",
        ("move.copy", "replica."),
    ),
    "a-move-goes-back": Mutation(
        tiering,
        "TierMover._prepare",
        "if not is_later_tier(record.tier, to):",
        "if record.tier == to:",
        ("move.",),
    ),
    "a-copy-for-an-earlier-tier-is-taken-as-it-is": Mutation(
        tiering,
        "TierMover._take_over",
        "if not is_later_tier(there.tier, copy.tier) and _lasts_as_long(there, copy):",
        "if _lasts_as_long(there, copy):",
        ("sweep.due",),
    ),
    "a-release-is-taken-for-done": Mutation(
        tiering, "TierMover._release", "if outcome.applied:", "if True:", ("move.release",)
    ),
    "a-mark-to-elsewhere-settles-an-arrival": Mutation(
        maintenance,
        "Maintenance._sources",
        "stands is not None and not elsewhere",
        "stands is not None",
        ("sweep.source",),
    ),
    # reading
    "arriving-copies-count-for-readers": Mutation(
        placement,
        "Placement._is_home",
        "return row.role is Role.ARRIVING and marked",
        "return row.role is Role.ARRIVING",
        ("move.",),
    ),
    "arriving-copies-never-count": Mutation(
        placement,
        "Placement._is_home",
        "return row.role is Role.ARRIVING and marked",
        "return False",
        ("move.arrive",),
    ),
    "marks-end-the-search": Mutation(
        placement,
        "Placement._meet",
        "located.mark, located.marked_in = row, store\n        return False",
        "located.mark, located.marked_in = row, store\n        return True",
        ("move.",),
    ),
    "a-new-life-begins-at-the-last-tombstone": Mutation(
        placement, "Placement._meet", "if located.tombstone is None:", "if True:", ("life", "write.revive")
    ),
    "what-is-ahead-of-the-clock-is-not-known-now": Mutation(
        visibility,
        "is_past",
        " or (_asks_for_the_present(at, now) and moment > micros(now))",
        "",
        ("read.", "browse"),
    ),
    "versions-go-back": Mutation(
        versions, "version_at", "max(stored + 1, micros(now))", "micros(now)", ("update.",)
    ),
    "a-walk-shows-what-has-expired": Mutation(
        browsing, "EntryBrowser.every_record", " or is_expired(row, now)", "", ("browse.everything",)
    ),
    # the past
    # the cache
    "a-cache-ignores-the-restart": Mutation(
        cache,
        "Cache._is_fresh",
        "row.epoch == store.epoch and ",
        "",
        ("the cache is rolled back to before an edit",),
    ),
    "a-cache-takes-what-is-of-other-tiers": Mutation(
        cache, "Cache.fill", ' or record.tier != "short"', "", _CACHE
    ),
    # relations
    "relations-of-erased-ends-are-shown": Mutation(
        orphans,
        "existing_keys",
        "if at.record is not None or at.corrupt is not None or at.unknown is not None",
        "",
        _LINK,
    ),
    "relations-are-made-with-what-is-retired": Mutation(
        relations,
        "Relations.relate",
        "target_id, active=restored_from is None)",
        "target_id, active=False)",
        _LINK,
    ),
    "the-same-relation-is-made-again": Mutation(
        relations,
        "Relations._put",
        'raise Conflict("relation already exists", record.key.id)',
        "return record",
        _LINK,
    ),
    "relations-are-listed-backwards": Mutation(
        relations,
        "Relations.find",
        '{"source_id": source_id, "target_id": target_id,',
        '{"source_id": target_id, "target_id": source_id,',
        _LINK,
    ),
    # sweeps
    "graves-are-forgotten-early": Mutation(
        due, "_question", 'Lt("discard_at", now)', 'Not(Lt("discard_at", now))', ("sweep.purge",)
    ),
    "graves-are-never-forgotten": Mutation(
        maintenance, "Maintenance._forget", "if not rows:", "if True:", ("sweep.purge",)
    ),
    "a-sweep-leaves-debts": Mutation(
        maintenance,
        "Maintenance._do_due",
        "(DueReason.OWES, self._finish_owed), ",
        "",
        ("sweep.owed", "owed."),
    ),
    "a-sweep-leaves-arriving-copies": Mutation(
        maintenance,
        "Maintenance._do_due",
        "(DueReason.ARRIVING, self._settle_arriving), ",
        "",
        ("sweep.source", "move."),
    ),
    "a-lease-is-never-given-up": Mutation(
        lease, "Lease._take", 'now < stands.fields["until"] <= now + 2 * length', "True", ("lease.",)
    ),
    # more reading
    # stores
    # what a second life owes
    "a-revived-key-owes-no-replica": Mutation(
        writing,
        "EntryWriter._revive",
        "(*write_steps(self._placement, ENTRIES, born.record, born.store), *one.steps)",
        "()",
        ("write.revive", "life"),
    ),
    # what moves together
    "replicas-are-adopted-one-at-a-time": Mutation(
        tiering, "TierMover._copy", "if flags:", "if len(flags) == 1:", ("move.adopt",)
    ),
}
