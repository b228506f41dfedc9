"""Deletion of records and of whole scopes, and the legal holds that forbid it.

The code here deletes one record, or a scope's records in every store, or an expired
record. It imports `storage`.
"""

__all__ = [
    "erasure",
    "legal_holds",
]
