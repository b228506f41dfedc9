"""The log of a session: its events, their fold, and a process's cache of them."""

__all__ = [
    "events",
    "folding",
    "forks",
    "incarnation",
    "log",
    "passages",
    "previews",
    "seen",
    "session_state",
    "window_copies",
]
