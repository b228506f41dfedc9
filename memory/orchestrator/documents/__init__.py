"""Documents: JSON or bytes under keys of scopes, in the order of the keys.

They have one home, the archive, and never move. The package imports `erasure` and
`storage`.
"""

__all__ = ["documents"]
