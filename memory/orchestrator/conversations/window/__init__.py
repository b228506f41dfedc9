"""The reads of a model: a session's window, its history and its compaction."""

__all__ = [
    "compaction",
    "handle",
    "history",
    "reading",
    "reads",
    "replacing",
    "streaming",
]
