"""Conversations: a session's history is a log of events in one store.

Every change (a message, an exclusion, a roll-back, a compaction, the end) is one
record, put `Absent` under a key computed from its place in the log. That conditional
put is the append, the lock, the agreed order and the commit: a second writer reads what
the first one stored and tries the next place. Window, counts and status are a fold of
the log. Each event carries the totals after it, so the newest event is the head. A
window never contains half of a tool call: it is cut between complete steps
(`memory.policies.window`).

`log` holds events and their fold, `window` what a model reads, `blobs` large texts and
artifacts, `tasks` what a session has to do. The modules beside them put these together.
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
