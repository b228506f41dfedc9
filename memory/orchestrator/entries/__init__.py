"""Entries: written, read, browsed, linked and derived from each other.

The package also has relations and their graph, short ids, access counts and
scratchpads. Writers ask `admission` for room; the quotas in `tiering` answer. It
imports `embeddings` and the packages below it.
"""

__all__ = [
    "accesses",
    "admission",
    "browsing",
    "derivation",
    "derivatives",
    "entries",
    "orphans",
    "relations",
    "scratchpads",
    "short_ids",
    "upserts",
    "writing",
]
