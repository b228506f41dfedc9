"""Bytes beside the log: large texts of messages, and artifacts with a path.

These modules hold uploads in chunks, the manifests that name them, and the accounting
of their bytes.
"""

__all__ = [
    "balances",
    "large_texts",
    "manifests",
    "reservations",
    "uploads",
]
