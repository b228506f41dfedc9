"""Export and import of records in their stored form.

The facade handles lines and files.
It imports `maintenance` and the packages below it.
"""

__all__ = [
    "artifact_import",
    "records",
    "session_import",
]
