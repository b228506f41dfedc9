"""Slips of the pen, each a few words changed in one function of the engine: what a careless edit might do, by the name of what goes wrong then.

The text to be replaced must be there exactly once: a slip that changes nothing, since the function was rewritten, fails by name.
"""

from __future__ import annotations
import __future__

import inspect
import textwrap
from dataclasses import dataclass
from typing import Any

from memory.orchestrator import (
    asked,
    births,
    browsing,
    cache,
    derivation,
    entries,
    entry_records,
    erasure,
    generations,
    lives,
    maintenance,
    owed,
    past,
    placement,
    promotion,
    relations,
    searching,
    split,
    tiering,
    topology,
    versions,
)


@dataclass(frozen=True, slots=True)
class Slip:
    """In a function of a module, `old` text and the `new` one; and the steps near which that shows."""

    module: Any
    function: str
    old: str
    new: str
    near: tuple[str, ...] = ()

    def patch(self) -> tuple[object, str, Any]:
        """The function's owner, its name there, and the function with the slip."""
        owner: Any = self.module
        *path, name = self.function.split(".")
        for part in path:
            owner = getattr(owner, part)
        there = inspect.getattr_static(owner, name)
        source = textwrap.dedent(inspect.getsource(getattr(there, "__func__", there)))
        if source.count(self.old) != 1:
            raise LookupError(f"{self.function} has {source.count(self.old)} times: {self.old!r}")
        found: dict[str, Any] = {}
        code = compile(source.replace(self.old, self.new), f"<{self.function} with a slip>", "exec", flags=__future__.annotations.compiler_flag)
        exec(code, self.module.__dict__, found)  # noqa: S102 - the engine's own source
        return owner, name, found[name]


_DERIVE, _KEEP, _ERASE, _LINK, _CACHE, _SWEEP = ("derive.",), ("version.",), ("erase.",), ("relat",), ("cache.",), ("sweep.",)

SLIPS: dict[str, Slip] = {
    # derivations
    "sources-are-deleted-before-the-result-is-stored": Slip(
        derivation,
        "Derivation._store",
        "    store = self._placement.topology.home(record.tier)\n",
        "    store = self._placement.topology.home(record.tier)\n    for source in to_delete:\n"
        "        await self._erasure.delete(ENTRIES, source.key, at=source.version)\n",
        _DERIVE,
    ),
    "sources-are-deleted-though-edited-since": Slip(erasure, "Erasure._delete_noted", ", at=version)", ")", ("derive.",)),
    "summaries-outlive-erased-sources": Slip(
        derivation, "Derivation.compact", "replace(record, generation=generation)", "record", ("erase.", "derive.")
    ),
    "sources-are-never-deleted": Slip(derivation, "Derivation._store", "if to_delete else []", "if False else []", ("delete.home",)),
    "a-second-life-begins-before-the-first-is-settled": Slip(
        lives, "Lives._laid_to_rest", "isinstance(row, Tombstone) and row.owed", "False", ("version.walk",)
    ),
    "a-copy-is-taken-for-one-of-the-latest-text": Slip(
        derivation, "Derivation.promote", "delete_original and there.body.get(COPIED_VERSION) != source.version", "False", ("delete.home",)
    ),
    "a-promotion-made-before-is-refused": Slip(derivation, "Derivation._store", "if there.record is not None:", "if False:", _DERIVE),
    "a-derived-entry-owes-no-replica": Slip(
        derivation, "Derivation._store", "(*owed_replicas(self._placement, ENTRIES, born.store, born.record.tier), *debts)", "(*debts,)", _DERIVE
    ),
    "a-copy-forgets-when-it-expires": Slip(derivation, "Derivation.promote", "expires_at=origin.expires_at, ", ""),
    "a-copy-forgets-its-tags": Slip(derivation, "Derivation.promote", '"tags": origin.tags}', '"tags": []}', _DERIVE),
    # changes
    "debts-are-dropped-by-an-edit": Slip(entries, "Entries._replace", "*carried_over(old), ", "", ("version.keep",)),
    "an-edit-owes-its-kept-version-to-nobody": Slip(
        entries, "Entries._replace", 'keep = () if beside else (Owed(KEEP, {"record": codec.to_json(kept)}),)', "keep = ()", _KEEP
    ),
    "an-edit-beside-the-archive-keeps-no-version": Slip(entries, "Entries._replace", "if beside:\n", "if False:\n", ("update.",)),
    "an-update-of-what-was-erased-is-acknowledged": Slip(
        entries, "Entries._replace", "if not all(o.applied for o in outcomes):\n        return None\n", "", ("update.",)
    ),
    "what-is-retired-is-changed": Slip(entries, "Entries._attempt", " or not is_current(home[0], now)", "", ("update.", "cache.invalidate")),
    "what-has-expired-is-changed": Slip(entries, "Entries._attempt", "is_expired(home[0], now) or ", "", ("update.",)),
    "a-window-is-ended-twice": Slip(
        entries, "Entries.invalidate", 'if record.fields.get("valid_to") is not None:', "if False:", ("cache.invalidate", "update.")
    ),
    "an-edit-keeps-its-old-vector": Slip(entries, "Entries._attempt", 'if changes.keys() & {"content", "title"}:', "if False:", ("update.",)),
    "an-edit-forgets-its-generation": Slip(entry_records, "changed", "generation=record.generation,", "", ("erase.delete",)),
    "an-edit-breaks-the-chain-of-kept-versions": Slip(entry_records, "changed", "previous=record.version,", "", _KEEP),
    "an-edit-leaves-the-tags": Slip(entry_records, "changed", 'if "tags" in changes:', "if False:", ("update.",)),
    "an-edit-leaves-the-words-it-is-found-by": Slip(
        entry_records,
        "changed",
        'texts=texts_of(body.get("title"), body["content"], list(fields.get("tags") or ()), fields.get("source")),',
        "texts=record.texts,",
        ("update.",),
    ),
    "a-kept-version-outlives-its-scope": Slip(
        owed, "OwedWork._keep", "generation=debt.holder.generation", "generation=None", ("version.keep", "erase.")
    ),
    "a-kept-version-overwrites-the-one-before": Slip(versions, "kept_version", "record.key.id, record.version)", "record.key.id, 0)", _KEEP),
    # keys
    "another-text-under-a-key-is-answered-the-first": Slip(
        births, "Births._repeated", "there.record.fields.get(DIGEST) != one.record.fields[DIGEST]", "False", ("write.",)
    ),
    "a-repeated-key-is-answered-the-latest-version": Slip(
        births,
        "Births._first_version",
        "return next(iter(await kept_versions(self._placement, record)), record)",
        "return record",
        ("version.read", "write."),
    ),
    "an-unasked-key-is-revived": Slip(births, "Births._meet", "revive and there.record is None", "there.record is None", ("write.", "life")),
    "a-revived-key-owes-no-replica": Slip(
        births, "Births._revive", "owed=owed_replicas(self._placement, ENTRIES, born.store, born.record.tier)", "owed=()", ("write.revive", "life")
    ),
    "what-was-deleted-under-a-key-is-written-again": Slip(
        births, "Births._look_for_repeats", " or there.tombstone is not None", "", ("embedder.check",)
    ),
    # deletions
    "deletion-leaves-relations": Slip(owed, "OwedWork._unrelate", "if tombstones:", "if False:", ("derive.",)),
    "deletion-forgets-what-was-owed-to-the-archive": Slip(
        erasure, "Erasure._grave", "for o in record.owed if o.kind == KEEP]", "for o in record.owed if False]", ("version.keep", "delete.")
    ),
    "deletion-forgets-the-last-kept-version": Slip(erasure, "Erasure._grave", "versions = [record.previous, ", "versions = [", _KEEP),
    "only-the-last-kept-version-is-erased": Slip(
        owed, "OwedWork._unkeep", "chain |= {row.version for row in page.records if isinstance(row, Record)}", "break", _KEEP
    ),
    "deletion-drops-debts": Slip(erasure, "Erasure._grave", "[o for o in carried_over(record) if o.kind != KEEP]", "[]", ("derive.", "delete.")),
    "deletion-at-any-version": Slip(erasure, "Erasure._grave", "when=AtVersion(record.version),", "when=Newer(),", ("delete.",)),
    "a-noted-version-is-not-asked-for": Slip(erasure, "Erasure.delete", " or (at is not None and home[0].version != at)", "", ("derive.",)),
    "deletion-is-acknowledged-though-refused": Slip(erasure, "Erasure.delete", "if outcome.applied:", "if True:", ("delete.",)),
    "a-tombstone-lives-no-moment": Slip(
        placement, "Placement.tombstone_until", "self.settings.tombstone_life", "self.settings.lease * 0", ("delete.", "sweep.purge")
    ),
    "deletion-stamps-no-cache": Slip(
        erasure, "Erasure._owed_elsewhere", "return owed if topology.cache is None else", "return owed if True else", _CACHE
    ),
    "an-unreadable-entry-keeps-its-past": Slip(
        erasure, "Erasure._owed_blindly", 'Owed(UNKEEP, {"versions": []}), ', "", ("version.find", "delete.unreadable")
    ),
    # scopes
    "erasure-skips-the-cache": Slip(
        erasure, "Erasure._stores", "*self._placement.topology.stores", "*self._placement.topology.homes", ("erase.", "cache.")
    ),
    "erasure-leaves-copies": Slip(erasure, "Erasure._erase_in", "(frozenset({Role.HOME}), OTHER_ROLES)", "(frozenset({Role.HOME}),)", _ERASE),
    "erasure-leaves-kept-versions": Slip(
        erasure, "Erasure._erase_in", "for collection in SCOPED:", "for collection in (SCOPED[0], SCOPED[2]):", _ERASE
    ),
    "erasure-leaves-relations": Slip(erasure, "Erasure._erase_in", "for collection in SCOPED:", "for collection in SCOPED[:2]:", _ERASE),
    "erasure-counts-copies-too": Slip(erasure, "Erasure._erase_in", "if collection is ENTRIES and Role.HOME in roles else 0", "", _ERASE),
    "erasure-counts-no-arrivals": Slip(erasure, "Erasure._erase_in", "entries += arriving", "entries += 0", ("move.arrive", "erase.")),
    "erasure-forgets-its-operation": Slip(erasure, "Erasure._operation", "owed=(Owed(ERASE, data),),", "", _ERASE),
    "erasure-never-ends-its-operation": Slip(erasure, "Erasure._becomes", "AtVersion(operation.version)", "AtVersion(0)", ("erase.end",)),
    "erasure-takes-what-was-written-since": Slip(erasure, "Erasure._erase_in", 'Lt("generation", generation)  #', "None  #", ("erase.",)),
    "erasure-begins-at-the-same-generation": Slip(erasure, "Erasure.erase_scope", "1 + await", "await", _ERASE),
    # what is owed
    "a-kept-version-is-settled-unpaid": Slip(
        owed, "OwedWork._keep", "await self._placement.write_one", "False and await self._placement.write_one", _KEEP
    ),
    "a-replica-is-settled-unpaid": Slip(
        owed, "OwedWork._replicate", "await self._placement.write_one", "False and await self._placement.write_one", ("replica.",)
    ),
    "replicas-in-batches-are-settled-though-not-delivered": Slip(
        owed,
        "OwedWork.replicate_many",
        "puts = [self._replica(debt, owed) for debt, owed in group]",
        "puts = [self._replica(*group[0])] * len(group)",
        ("replica.",),
    ),
    "a-mark-is-settled-before-its-copy-arrived": Slip(
        owed, "OwedWork._arrive", "outcome.applied or outcome.stored is not None", "True", ("move.arrive",)
    ),
    "an-arrival-is-flagged-as-nothing": Slip(owed, "OwedWork._arrive", "role=Role.HOME)", "role=Role.ARRIVING)", ("move.arrive",)),
    "marks-live-a-second": Slip(owed, "OwedWork._mark_life", "else settings.mark_life", "else settings.mark_life / 3600", ("move.", "sweep.purge")),
    "what-is-done-stays-owed": Slip(owed, "OwedWork.finish", "if done:", "if False:", ("owed.",)),
    "what-failed-is-taken-for-done": Slip(owed, "OwedWork._tried", "return False\n    if done:", "return True\n    if done:", ("owed.", "replica.")),
    "an-edit-carries-replicas-and-nothing-else": Slip(
        owed, "carried_over", "o.kind != REPLICATE", "o.kind == REPLICATE", ("version.keep", "update.")
    ),
    # moves
    "a-move-is-aborted-though-marked": Slip(
        tiering,
        "Tiering.drop_arriving",
        "if released is not None and isinstance(released.stored, Mark):",
        "if False:",
        ("move.release", "move.abort"),
    ),
    "a-move-drops-what-it-owes": Slip(tiering, "Tiering._attempt", "if record.owed:", "if False:", ("move.", "version.keep")),
    "a-move-goes-back": Slip(tiering, "Tiering._attempt", "if not is_onward(record.tier, to):", "if record.tier == to:", ("move.",)),
    "a-move-within-a-store-at-any-version": Slip(
        tiering, "Tiering._relabel", "AtVersion(record.version, Role.HOME, record.tier)", "Newer()", ("move.relabel",)
    ),
    "a-move-within-a-store-from-any-tier": Slip(tiering, "Tiering._relabel", ", Role.HOME, record.tier)", ", Role.HOME)", ("move.relabel",)),
    "a-move-within-a-store-owes-no-replica": Slip(
        tiering, "Tiering._relabel", "owed=self._replicas(collection, store, to)", "owed=()", ("move.relabel",)
    ),
    "a-move-owes-no-replica": Slip(tiering, "Tiering._carry", "owed=self._replicas(collection, target, to)", "owed=()", ("move.copy", "replica.")),
    "a-move-is-not-verified": Slip(
        tiering,
        "Tiering._carry",
        "if not isinstance(arrived, Record) or arrived.role is not Role.ARRIVING or not arrived.same_content(record):",
        "if False:",
        ("move.verify",),
    ),
    "a-move-stamps-no-cache": Slip(tiering, "Tiering._attempt", "await self._cache.invalidate(collection, key)", "pass", _CACHE),
    "a-replica-is-taken-for-a-copy-unflagged": Slip(
        tiering, "Tiering._meet", "return None if adopted.applied else AGAIN", "return None", ("move.adopt",)
    ),
    "a-grave-in-the-target-ends-a-move": Slip(
        tiering, "Tiering._meet", "if isinstance(stands, Tombstone | Mark):", "if False:", ("move.", "delete.")
    ),
    # reading
    "arriving-copies-count-for-readers": Slip(
        placement, "Placement._is_home", "return row.role is Role.ARRIVING and marked", "return row.role is Role.ARRIVING", ("move.",)
    ),
    "arriving-copies-never-count": Slip(
        placement, "Placement._is_home", "return row.role is Role.ARRIVING and marked", "return False", ("move.arrive",)
    ),
    "a-tombstone-hides-nothing-further-on": Slip(
        placement,
        "Placement._is_home",
        "located.tombstone is not None and located.tombstone.version >= row.version",
        "False",
        ("delete.elsewhere", "move.release"),
    ),
    "a-tombstone-ends-the-search": Slip(placement, "Placement._meet", "return False  # of an", "return True  # of an", ("move.", "delete.")),
    "marks-end-the-search": Slip(
        placement,
        "Placement._meet",
        "located.mark, located.marked_in = row, store\n        return False",
        "located.mark, located.marked_in = row, store\n        return True",
        ("move.",),
    ),
    "versions-go-back": Slip(versions, "version_at", "max(stored + 1, micros(now))", "micros(now)", ("update.",)),
    "pages-after-the-first-are-not-read": Slip(
        browsing, "Browsing._gather", "if page.cursor is None or len(kept) >= asked.limit:", "if True:", ("browse",)
    ),
    "a-walk-shows-entries-twice": Slip(browsing, "Browsing.everything", "row.key.id not in seen and ", "", ("browse.everything",)),
    "a-walk-shows-what-has-expired": Slip(browsing, "Browsing.everything", "not is_expired(row, now) and ", "", ("browse.everything",)),
    "hits-are-not-confirmed": Slip(searching, "Searching._confirmed", "if accepts(home, asked, now)", "", ("search",)),
    "hits-of-moved-entries-are-lost": Slip(
        searching,
        "Searching._homes",
        "elsewhere = [Key(tenant, i) for i in candidates if i not in homes and i not in failed]",
        "elsewhere = []",
        ("search", "move."),
    ),
    "what-has-expired-is-found": Slip(asked, "accepts", "and not is_expired(record, asked.known_at or now)", "", ("search",)),
    "filters-are-forgotten-by-the-home": Slip(asked, "accepts", "and all(tag in tags for tag in asked.tags)", "", ("search",)),
    # the past
    "versions-on-their-way-are-forgotten": Slip(
        past, "on_their_way", "if was_stored(v, known_at, now)", "if False", ("version.owed", "version.keep")
    ),
    "the-past-forgets-what-is-on-its-way": Slip(past, "kept_versions", " + list(_owed_by([record]))", "", ("version.keep", "version.read")),
    "the-first-version-was-always-known": Slip(
        entries, "Entries._as_known", "in reversed(versions) if was_stored", "in versions if True or was_stored", ("version.read", "version.keep")
    ),
    # the cache
    "a-cache-ignores-the-restart": Slip(cache, "Cache._is_fresh", "row.epoch == store.epoch and ", "", _CACHE),
    "a-fill-ignores-the-restart": Slip(cache, "Cache.fill", " or seen.epoch != store.epoch:", ":", _CACHE),
    "a-cache-keeps-copies-for-ever": Slip(cache, "Cache._is_fresh", " and abs(age) <= self._placement.settings.cache_max_age", "", _CACHE),
    "a-stamp-yields-to-a-newer-copy": Slip(
        cache, "Cache.invalidate", 'version=self._placement.next_version(getattr(row, "version", 0)),', "version=1,", _CACHE
    ),
    "a-write-is-stamped-only-before": Slip(
        entries,
        "Entries._replace",
        "    await self._cache.invalidate(ENTRIES, old.key)\n    await self._owed",
        "    await self._owed",
        ("cache.fill", "cache.invalidate"),
    ),
    "a-cached-copy-is-kept-past-its-age": Slip(
        maintenance, "Maintenance._clear_cache", "r.cached_at is None or r.cached_at < oldest", "False", ("sweep.cache",)
    ),
    # relations
    "relations-of-erased-ends-are-shown": Slip(relations, "Relations._ends_there", "if at.record is not None or at.corrupt is not None", "", _LINK),
    "relations-are-made-with-what-is-retired": Slip(
        relations, "Relations.relate", "target_id, active=restored_from is None)", "target_id, active=False)", _LINK
    ),
    "an-end-deleted-meanwhile-leaves-a-relation": Slip(
        relations, "Relations._check_ends", "if any(at.record is None for at in located):", "if False:", _LINK
    ),
    "a-relation-outlives-its-scope": Slip(relations, "Relations._record", "generation=source.generation,", "", _LINK),
    "dangling-relations-are-left": Slip(relations, "Relations.drop_dangling", "if not _ends(row) <= there:", "if False:", _LINK),
    "a-relation-cut-once-is-cut-for-ever": Slip(
        relations, "Relations._put", "isinstance(outcome.stored, Record) or outcome.version is None", "True", _LINK
    ),
    "the-same-relation-is-made-again": Slip(
        relations, "Relations._put", 'raise Conflict("relation already exists", record.key.id)', "return record", _LINK
    ),
    "relations-are-listed-backwards": Slip(
        relations, "Relations.related", '{"source_id": source_id, "target_id": target_id,', '{"source_id": target_id, "target_id": source_id,', _LINK
    ),
    # sweeps
    "a-sweep-forgets-what-owes": Slip(
        maintenance, "Maintenance._purge", 'And((Lt("discard_at", self._placement.now()), Not(Eq("owing", True))))', 'Not(Eq("owing", None))', _SWEEP
    ),
    "graves-are-forgotten-early": Slip(
        maintenance, "Maintenance._purge", 'Lt("discard_at", self._placement.now())', 'Not(Lt("discard_at", self._placement.now()))', ("sweep.purge",)
    ),
    "graves-are-never-forgotten": Slip(
        maintenance, "Maintenance._purge", "await self._forget(store, collection, rows, report)", "pass", ("sweep.purge",)
    ),
    "a-sweep-leaves-debts": Slip(maintenance, "Maintenance._jobs_of", "lambda: self._finish_owed(store, report, away),", "", ("sweep.owed", "owed.")),
    "a-sweep-leaves-arriving-copies": Slip(
        maintenance, "Maintenance._jobs_of", "lambda: self._settle_arriving(store, report),", "", ("sweep.arriving", "move.")
    ),
    "a-lease-is-never-given-up": Slip(
        maintenance, "Maintenance._take_lease", 'now < stands.fields["until"] <= now + 2 * self._placement.settings.lease', "True", ("lease.",)
    ),
    "what-has-expired-is-promoted": Slip(promotion, "Promotion._run", "if is_expired(record, now):", "if False:", ("promotion.",)),
    "a-store-behind-is-not-healed": Slip(
        generations, "Generations.lives_on", 'operation is not None and operation.fields["kind"] == UNDER_WAY', "True", ("generation.",)
    ),
    "an-erasure-under-way-is-taken-for-a-store-behind": Slip(
        generations, "Generations.lives_on", 'operation is not None and operation.fields["kind"] == UNDER_WAY', "False", ("erase.",)
    ),
    "an-erasure-takes-the-lowest-generation": Slip(generations, "Generations.highest", "return max(found)", "return min(found)", _ERASE),
    "erased-scopes-are-never-forgotten": Slip(erasure, "Erasure.forget_idle", "if not free:", "if True:", ("partition.",)),
    "erasures-are-remembered-for-ever": Slip(erasure, "Erasure._operations", "return [row async", "return [] and [row async", ("erase.",)),
    # more reading
    "the-older-copy-counts": Slip(
        browsing, "Browsing.browse", "outranks(row, there, asked.known_at)", "not outranks(row, there, asked.known_at)", ("browse.", "move.")
    ),
    "a-failed-store-is-not-named": Slip(browsing, "Browsing.guarded", "lacking.say(str(answer))", "pass", ("browse",)),
    "the-past-of-the-dead-is-shown": Slip(
        past, "still_living", "home is not None and not is_expired(home, now) and same_life(row, home)", "True", ("version.", "delete.")
    ),
    # stores
    "a-split-store-asks-one-part": Slip(
        split, "SplitStore._parts_of", "return tuple(dict.fromkeys(reached))", "return tuple(dict.fromkeys(reached))[:1]"
    ),
    "later-stores-are-forgotten": Slip(topology, "Topology.later", "+ 1 :]", "+ 2 :]", ("delete.elsewhere",)),
}
