"""File adapter: one readable JSON file per record, under the scheme `file`.

It needs no driver and no server.
"""

from __future__ import annotations

from memory.adapters.file.config import CLAIMS
from memory.ports.adapter import Adapter, built_by

__all__ = ["adapter"]

adapter = Adapter(
    schemes=("file",),
    claims=CLAIMS,
    build=built_by("memory.adapters.file.store", "FileStore", for_code=("thresholds",)),
)
