"""A store with a prefix of its own, which `make nightly` asks all that the contract
asks: it differs in names alone.
"""

from __future__ import annotations

from typing import Any

from memory.adapters.sql.naming import LONGEST_PREFIX
from memory.ports.store import Store
from tests.contract.postgres_harnesses import Postgresql


class PostgresqlPrefixed(Postgresql):
    """Its tables have the longest prefix there is."""

    name = "postgresql_prefixed"
    primary = "postgresql"
    schema, prefix = "prefixed", "p" * LONGEST_PREFIX

    def store(self, **options: Any) -> Store:
        return super().store(schema=self.schema, prefix=self.prefix, **options)
