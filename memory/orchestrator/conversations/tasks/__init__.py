"""The tasks and runs of a session, under names that the caller gives."""

__all__ = [
    "named_records",
    "runs",
    "tasks",
]
