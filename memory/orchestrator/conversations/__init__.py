"""Conversations: a session's history is a log of events in one home.

Every change (a message, an exclusion, a roll-back, a compaction, the end) is one
record, put `Absent` under a key computed from its place in the log. That one
conditional put is the append, the lock, the agreed order and the commit: whoever comes
second meets what came first, takes it in and tries the next place. Window, counts and
status are a fold of the log, and each event says what is true after it: so the newest
one is the head, and no second record has to agree with it.

`places`: ranges of places. `events`: what stands at one. `folding`: what events come to
(pure). `log`: reading and appending. `sessions`: each one's own record. `conversation`:
what one session can do. `history`: pages of it. `conversations`: made, opened, found.
"""
