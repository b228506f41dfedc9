"""The blocking twin of the public API: each call runs on a background event loop.

`wrapper` makes a twin from an async class, `blocking` lists the classes, and
`blocking.pyi` is written by `python -m tools.blocking_stub` for type checkers.
"""
