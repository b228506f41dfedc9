"""Settings of a memory: TOML, environment, URLs and arguments, checked before opening.

`settings` declares them, `sources` merges where they come from, `values` reads single
values.
"""
