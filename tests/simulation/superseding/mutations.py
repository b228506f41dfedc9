"""Mutations in how entries take the place of others that a run must notice, by the name of
what goes wrong then.
"""

from __future__ import annotations

from memory.orchestrator.enrichment import conflicts, superseding
from memory.orchestrator.entries import entries, upserts
from tests.support.mutations import Mutation

_STORED = "await self._entries.writer.put(one.store, [one], write.revive, write.consistency)"
_RETIRED = (
    "[await self._entries.retire(one.record.key.tenant, record.key.id, write.at) for record, _ in homes]"
)
_LINKED = """[
            await self._placement.write_one(
                "relate.home", archive, Put(RELATIONS, self._relations.link(one.record, "supersedes", record.key.id, made=write.at), Absent())
            )
            for record, _ in homes
        ]"""

MUTATIONS: dict[str, Mutation] = {
    "others-are-retired-before-the-entry-is-stored": Mutation(
        superseding,
        "SupersedeWriter._write_entry",
        f"    else:\n        {_STORED}\n",
        f"    else:\n        {_RETIRED}\n        {_STORED}\n",
    ),
    "a-link-comes-before-its-entry": Mutation(
        superseding,
        "SupersedeWriter._write_entry",
        f"    else:\n        {_STORED}\n",
        f"    else:\n        {_LINKED}\n        {_STORED}\n",
    ),
    "ids-are-checked-once-it-is-written": Mutation(
        superseding,
        "SupersedeWriter._attempt",
        "        homes = [home for at in located if (home := self._giving_way(write, at)) is not None]\n"
        "        write.retired, write.tried = [record.key.id for record, _ in homes], True\n"
        "        await self._write_entry(write, own, homes)\n",
        "        homes = [home for at in located if (home := at.home()) is not None]\n"
        "        write.retired, write.tried = [record.key.id for record, _ in homes], True\n"
        "        await self._write_entry(write, own, homes)\n"
        "        [self._giving_way(write, at) for at in located]\n",
    ),
    "what-is-not-there-is-passed-over": Mutation(
        superseding,
        "SupersedeWriter._giving_way",
        "if shown is not None:\n            return None\n        if write.tried",
        "if True:\n            return None\n        if write.tried",
    ),
    "what-remains-is-owed-to-nobody": Mutation(
        superseding,
        "SupersedeWriter._write_entry",
        "one.owe(PendingStep(",
        "one.steps and one.owe(PendingStep(",
    ),
    "what-remains-does-not-outlast-an-edit": Mutation(
        superseding, "SupersedeWriter.__init__", "StepLifetime.DELETED", "StepLifetime.EDITED"
    ),
    "a-step-is-done-once-one-of-several-is": Mutation(
        superseding,
        "SupersedeWriter._supersede",
        "        retired = await self._entries.retire(key.tenant, entry_id, at, version, origins=origins)\n",
        "        await self._entries.retire(key.tenant, entry_id, at, version, origins=origins)\n       "
        " return True\n",
    ),
    "a-link-is-made-and-nothing-retired": Mutation(
        superseding,
        "SupersedeWriter._supersede",
        "retired = await self._entries.retire(key.tenant, entry_id, at, version, origins=origins)",
        "retired = True",
    ),
    "others-are-retired-without-a-link": Mutation(
        superseding,
        "SupersedeWriter._supersede",
        'await self._relations.make(source, SUPERSEDES, entry_id, at, data.get("said"))',
        "pass",
    ),
    "others-are-retired-before-they-are-linked": Mutation(
        superseding,
        "SupersedeWriter._supersede",
        "        try:\n            source = ",
        "        await self._entries.retire(key.tenant, entry_id, at, version)\n        try:\n           "
        " source = ",
    ),
    "one-batch-is-kept-in-part": Mutation(
        superseding,
        "SupersedeWriter._write_at_once",
        'self._entries.write_replacements("supersede.home", store, puts)',
        'self._placement.write("supersede.home", store, *puts, together=False)',
    ),
    "two-that-supersede-the-same-both-do": Mutation(
        superseding,
        "SupersedeWriter._write_at_once",
        "puts += [*replacing, ",
        "puts += [*(__import__('dataclasses').replace(put,"
        " when=__import__('memory.ports.writes').ports.writes.Always()) for put in replacing), ",
    ),
    "each-of-the-three-has-a-moment-of-its-own": Mutation(
        superseding, "SupersedeWriter._supersede", 'moment(data["at"])', "self._placement.now()"
    ),
    "an-end-is-put-off": Mutation(
        entries, "retired_at", "end if before is None else min(before, end)", "end"
    ),
    "a-candidate-is-newer-than-the-entry": Mutation(
        conflicts, "ConflictDetector._near", " and one.created_at < new.created_at", ""
    ),
    "an-upsert-is-answered-though-another-was-faster": Mutation(
        upserts,
        "Upserts._try_upsert",
        "return None if replaced is None else (entry_of(replaced), False)",
        "return entry_of(replaced or new), False",
    ),
    "an-upsert-begins-a-new-life-over-what-is-there": Mutation(
        upserts,
        "Upserts._try_upsert",
        "home is not None and is_expired(home[0], now)",
        "home is not None and home[0].version % 2",
    ),
}
