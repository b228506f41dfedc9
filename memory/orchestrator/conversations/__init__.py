"""Conversations: a session's history is a log of events in one store.

Every change (a message, an exclusion, a roll-back, a compaction, the end) is one
record. It is put `Absent` under a key computed from its place in the log. That
conditional put appends, locks, orders and commits at once. A second writer reads the
stored record and tries the next place. Window, counts and status are a fold of the log.
Each event carries the totals after it, so the newest event is the head. A window never
contains half of a tool call: it is cut between complete steps
(`memory.policies.window`).

`log` holds the events and their fold, and `window` the reads of a model. `blobs` holds
large texts and artifacts, and `tasks` the tasks and runs of a session. The modules
beside them combine these.
It imports `entries` and the packages below it.
"""

__all__ = [
    "blobs",
    "conversation",
    "conversations",
    "log",
    "redaction",
    "sessions",
    "tasks",
    "window",
    "window_exits",
]
