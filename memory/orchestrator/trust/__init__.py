"""Decides which entries may be written and shown: gates and blocked sources.

It imports `storage` and the packages below it.
"""

__all__ = [
    "blocked_sources",
    "gates",
    "trust",
]
