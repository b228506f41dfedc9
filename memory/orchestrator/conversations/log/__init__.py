"""The log of a session: its events, their fold, and what a process has seen."""

__all__ = [
    "events",
    "folding",
    "forks",
    "incarnation",
    "log",
    "passages",
    "previews",
    "seen",
]
