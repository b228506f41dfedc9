"""What a memory offers beside `write` and `search`: one service object per resource.

Entries, relations, sessions, tasks, runs, artifacts, scratchpads, short ids and
administration. Each takes its tenant and scopes from the memory that made it.
"""
