"""Rows and decisions of the catalogue that no longer hold as they are written there, and why."""

from __future__ import annotations

AMENDED = {
    "A32": "Entries of one moment follow the order in which they were written, not their ids, which are hashes under a key. "
    "Entries of earlier releases have no sequence: they come first, by id.",
    "B53": "A result without an id answers calls by the tool's name and in order. A context holds a stand-in for each missing result, "
    "since providers reject a call without one; `mend_tool_calls` stores it.",
    "D9": "Any number from 0 on is a moment, since a small one is as valid. As an expiry a number below 10^8 is still refused: "
    "it was meant as a length of time.",
    "D52": "Cursors carry the moment, the sequence and the id, since ties follow the sequence.",
}
"""The reason by the row's number."""
