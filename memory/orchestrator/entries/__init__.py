"""Entries: written, read, browsed, linked and derived from each other.

Also what belongs to entries: relations and their graph, short ids, access counts,
scratchpads. Writers ask for room by `admission`; quotas answer from `tiering`.
It imports `embeddings` and the packages below it.
"""

__all__ = [
    "accesses",
    "admission",
    "browsing",
    "derivation",
    "derivatives",
    "entries",
    "graph",
    "orphans",
    "relations",
    "scratchpads",
    "short_ids",
    "writing",
]
