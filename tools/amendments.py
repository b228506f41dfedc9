"""Rows and decisions of the catalogue that no longer hold as they are written there, and why."""

from __future__ import annotations

AMENDED = {
    "A32": "Entries of one moment follow the order in which they were written, not their ids, which are hashes under a key. "
    "Entries of earlier releases have no sequence: they come first, by id.",
    "A36": "Expired entries are hidden at once, and a sweep deletes them 24 hours later (`durations.expired_grace`, decision 047; zero keeps them), "
    "since a life that was given to a text is a promise to whom it is about.",
    "A58": "The number of erased entries has `sessions_left`: the sessions of the user, or the conversation of the session, which the erasure of a "
    "scope does not reach.",
    "A81": "If the merged metadata are beyond the limits of an entry, the metadata given are taken alone. Without any, and for tags, it is "
    "refused before the callback is called: a model's work is not thrown away.",
    "B53": "A result without an id answers calls by the tool's name and in order. A context holds a stand-in for each missing result, "
    "since providers reject a call without one; `mend_tool_calls` stores it.",
    "D9": "Any number from 0 on is a moment, since a small one is as valid. As an expiry a number below 10^8 is still refused: "
    "it was meant as a length of time.",
    "D52": "Cursors carry the moment, the sequence and the id, since ties follow the sequence.",
}
"""The reason by the row's number."""
