"""Mutations in changes that expect a version that a run must notice, by the name of what
goes wrong then.
"""

from __future__ import annotations

from memory.orchestrator.entries import derivatives, entries, upserts, writing
from memory.orchestrator.storage import id_reuse
from tests.support.mutations import Mutation

MUTATIONS: dict[str, Mutation] = {
    "a-keyed-write-expects-nothing": Mutation(
        upserts,
        "Upserts._try_upsert",
        "call.expected is not None and call.expected != (stored or 0)",
        "call.expected and not stored",
    ),
    "an-update-expects-nothing": Mutation(
        entries, "check_expected_version", "if expected not in (None, record.version):", "if not record:"
    ),
    "an-update-compares-once": Mutation(
        upserts,
        "Upserts._try_upsert",
        "return None if replaced is None else (entry_of(replaced), False)",
        "return (entry_of(replaced or new), False)",
    ),
    "two-create-the-same": Mutation(
        upserts, "Upserts._create", "return None if replays else (entry, False)", "return (entry, False)"
    ),
    "who-finds-the-same-text-has-created-it": Mutation(
        writing,
        "EntryWriter._replay_write",
        "one.replayed = not is_same_write(one.record, there.record)",
        "one.replayed = False",
    ),
    "a-deletion-expects-nothing": Mutation(derivatives, "Derivatives.delete", "at=expected", "at=None"),
    "a-second-life-begins-beside-the-first": Mutation(
        id_reuse,
        "IdReuse._laid_to_rest",
        "row.role is Role.HOME and row.version > tombstone.version",
        "row.version < 0",
    ),
}
