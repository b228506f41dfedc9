"""Service objects of a memory beside `write` and `search`, one per resource.

Entries, relations, sessions, tasks, runs, artifacts, scratchpads, short ids and
administration. Each takes its tenant and scopes from the memory that made it.
"""
