"""What an adapter can do is read without its driver."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import importlib, sys
for package in ("file", "mongo", "qdrant", "redis", "sql.mysql", "sql.postgresql", "sql.sqlite"):
    importlib.import_module(f"memory.adapters.{package}").adapter.claims
    drivers = {"memory.adapters.file.store", "pymongo", "bson", "qdrant_client", "qdrant_edge", "redis",
               "asyncmy", "asyncpg", "sqlalchemy", "numpy"}
    print(package, *drivers.intersection(sys.modules))
"""


def test_reading_what_an_adapter_claims_loads_no_driver() -> None:
    answer = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert [line for line in answer.stdout.splitlines() if " " in line] == []
    assert answer.stdout.splitlines()[0] == "file"
