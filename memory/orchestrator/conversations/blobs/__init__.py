"""Bytes beside the log: large texts of messages, and artifacts with a path.

Uploads in chunks, the manifests that name them, and the room that they take.
"""

__all__ = [
    "balances",
    "large_texts",
    "manifests",
    "reservations",
    "uploads",
]
