"""What an adapter can do is read without its driver."""

from __future__ import annotations

import subprocess
import sys

import pytest

DRIVERS = {
    "file": ("memory.adapters.file.store", "numpy"),
    "mongo": ("pymongo", "bson"),
    "qdrant": ("qdrant_client", "qdrant_edge"),
    "redis": ("redis",),
    "sql.mysql": ("asyncmy", "sqlalchemy", "numpy"),
    "sql.postgresql": ("asyncpg", "sqlalchemy", "numpy"),
    "sql.sqlite": ("sqlalchemy", "numpy"),
}


@pytest.mark.parametrize("package", DRIVERS)
def test_reading_what_an_adapter_claims_loads_no_driver(package: str) -> None:
    program = (
        f"import sys; from memory.adapters.{package} import adapter; adapter.claims;"
        f" print([name for name in {DRIVERS[package]} if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"
