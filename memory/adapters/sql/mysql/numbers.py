"""The numbers of records: taken from the database many at a time, so that a row's number is known before it is stored."""

from __future__ import annotations

from memory.adapters.sql.mysql.connection import Connection

_TAKE = "UPDATE memory_numbers SET given = LAST_INSERT_ID(given + ?) WHERE name = 'records'"


class Numbers:
    """What this process may give out. Forgotten with every new connection: behind it may be a database brought back from a backup."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._left: list[int] = []

    def forget(self) -> None:
        self._left.clear()

    async def take(self, connection: Connection, count: int = 1) -> list[int]:
        """So many numbers that nobody else has. Never within a transaction: all others would wait for its end."""
        if len(self._left) < count:
            wanted = max(self._at_once, count)
            last = await connection.insert_id(_TAKE, wanted)
            self._left += range(last, last - wanted, -1)
        taken = self._left[-count:]
        del self._left[-count:]
        return taken[::-1]

    def give_back(self, numbers: list[int]) -> None:
        """Those that were not used after all."""
        self._left += reversed(numbers)
