"""The SQL adapter on MySQL and MariaDB, under the schemes `mysql` and `mariadb`.

Importing this module loads neither SQLAlchemy nor a driver.
"""

from __future__ import annotations

from memory.adapters.sql.mysql.config import CLAIMS, SCHEMES
from memory.ports.adapter import Adapter, built_by

__all__ = ["adapter"]

adapter = Adapter(
    schemes=SCHEMES,
    claims=CLAIMS,
    build=built_by("memory.adapters.sql.mysql.store", "MySqlStore", for_code=("thresholds",)),
    extra="mysql",
)
