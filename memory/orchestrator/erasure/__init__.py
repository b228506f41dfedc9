"""Deletion of records and of whole scopes, and the legal holds that forbid it.

What deletes one record, a scope's records in every store, or an expired record.
It imports `storage`.
"""

__all__ = [
    "erasure",
    "legal_holds",
]
