"""Enrichment of entries: tags, conflicts, and superseded entries.

An advisor's answers are applied after a write, and conflicts are detected before it.
Entries can supersede others. The package imports `retrieval` and the packages below it.
"""

__all__ = [
    "conflicts",
    "enrichment",
    "superseding",
]
