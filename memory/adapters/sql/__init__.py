"""SQL databases: the code that their dialects share.

Each dialect is an adapter in a folder of its own. `server` holds the code that the
dialects reached over a network share.

`codec` lays out a row. `shapes` turns a query into a shape, `conditions` a shape into a
condition, and `questions` conditions into a statement. `reading` runs the statement
through the dialect's `table` and `partitions`, on the connection that `store` passes.
`memory.ports.write_decision` decides the outcome of a write.

Nothing here asks for its dialect, or awaits anything but a connection. On SQLite a
connection never lets it wait.
"""
