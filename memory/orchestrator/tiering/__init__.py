"""The work of rules: moves between tiers, promotion, retention, quotas, session ends.

It also holds the dry run, which plans the same without writing.
It imports `enrichment` and the packages below it.
"""

__all__ = [
    "after_writes",
    "moves",
    "promotion",
    "quotas",
    "retention",
]
