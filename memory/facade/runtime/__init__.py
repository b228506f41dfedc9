"""A memory while it is open: built from its settings, opened, watched and closed.

`build` makes the engine, `lifecycle` opens and closes it, `background` runs
maintenance in the process.
"""
