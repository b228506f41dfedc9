"""Background work: sweeps, repair, reindexing, and erasure of tenants.

It imports `tiering` and the packages below it.
"""

__all__ = [
    "repair",
    "sweeps",
]
