"""What a model reads of a session: its window, its history and its compaction."""

__all__ = [
    "compaction",
    "history",
    "reading",
    "reads",
    "replacing",
    "streaming",
]
