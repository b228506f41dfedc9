"""Documents: JSON or bytes under keys of scopes, in the order of the keys.

All documents of a scope have one home. They move only if the configuration gives the
scope another one (`relocation.py`). The package imports `erasure` and `storage`.
"""

__all__ = ["documents"]
