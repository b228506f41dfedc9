"""What a session has to do: its tasks and its runs, by names of the caller's."""

__all__ = [
    "runs",
    "tasks",
]
