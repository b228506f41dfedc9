"""SQL databases: what their dialects share. Each dialect is an adapter in a folder of
its own; `server` is shared by those reached over a network.

A row is laid out in `codec`; what is asked becomes a shape in `shapes`, a shape a
condition in `conditions`, conditions a statement in `questions`; `reading` asks it,
through the dialect's `table` and `partitions`, on whatever `store` hands it as a
connection. What a write comes to is decided in `memory.ports.write_decision`. Nothing here
asks which dialect it is for, or waits for anything but a connection: on SQLite that
never lets it wait.
"""
