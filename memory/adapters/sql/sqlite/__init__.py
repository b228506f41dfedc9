"""The SQL adapter on SQLite, under the scheme `sqlite`.

Importing this module loads neither SQLAlchemy nor a driver.
"""

from __future__ import annotations

from memory.adapters.sql.sqlite.config import CLAIMS
from memory.ports.adapter import Adapter, built_by

__all__ = ["adapter"]

adapter = Adapter(
    schemes=("sqlite",),
    claims=CLAIMS,
    build=built_by("memory.adapters.sql.sqlite.store", "SqliteStore", for_code=("thresholds",)),
    backup="memory.adapters.sql.sqlite.backup",
)
