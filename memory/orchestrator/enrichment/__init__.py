"""What is found out about an entry: tags, conflicts, and the entries it replaces.

An advisor's answers behind a write, conflicts before it, and entries that supersede
others.
It imports `retrieval` and the packages below it.
"""

__all__ = [
    "conflicts",
    "enrichment",
    "superseding",
]
