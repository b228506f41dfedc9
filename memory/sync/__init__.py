"""The blocking version of the public API: each call runs on a background event loop.

`wrapper` makes a blocking class from an async class, `blocking` lists the classes, and
`blocking.pyi` is written by `python -m tools.blocking_stub` for type checkers.
"""
