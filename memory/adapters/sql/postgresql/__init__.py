"""The SQL adapter on PostgreSQL, under the schemes `postgresql` and `postgres`.

Importing this module loads neither SQLAlchemy nor a driver.
"""

from __future__ import annotations

from memory.adapters.sql.postgresql.config import CLAIMS, SCHEMES
from memory.ports.adapter import Adapter, built_by

__all__ = ["adapter"]

adapter = Adapter(
    schemes=SCHEMES,
    claims=CLAIMS,
    build=built_by("memory.adapters.sql.postgresql.store", "PostgresStore", for_code=("thresholds",)),
    extra="postgresql",
)
