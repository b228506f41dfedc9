"""Work that nobody waits for: sweeps, repair, reindexing, erasure of tenants.

It imports `tiering` and the packages below it.
"""

__all__ = [
    "reindexing",
    "repair",
    "sweeps",
]
