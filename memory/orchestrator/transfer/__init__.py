"""Export and import of records as they are stored.

Lines and files are the facade's affair.
It imports `maintenance` and the packages below it.
"""

__all__ = [
    "artifact_import",
    "records",
    "session_import",
]
