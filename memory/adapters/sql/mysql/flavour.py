"""The differences of MySQL and MariaDB, by the version string of the server.

All other statements are valid on both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from memory.domain.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Flavour:
    """One of the two products.

    `collation` compares text by its code points and does not pad it with spaces.
    `statement_limit` makes the server end a statement that nobody waits for any more,
    where it can.
    """

    product: str
    oldest: tuple[int, ...]
    collation: str
    statement_limit: str


MARIADB = Flavour("MariaDB", (10, 6, 0), "utf8mb4_nopad_bin", "SET SESSION max_statement_time = {seconds}")
MYSQL = Flavour("MySQL", (8, 0, 19), "utf8mb4_0900_bin", "SET SESSION max_execution_time = {milliseconds}")


def flavour_of(version: str, store: str) -> Flavour:
    """Return the product of a server.

    Raises:
        ConfigError: The server is too old.
    """
    flavour = MARIADB if "mariadb" in version.lower() else MYSQL
    numbers = tuple(map(int, re.findall(r"\d+", version.removeprefix("5.5.5-"))[:3]))
    if numbers < flavour.oldest:
        oldest = ".".join(map(str, flavour.oldest))
        raise ConfigError(
            f"store '{store}': the server is {flavour.product} {version}; version {oldest} or later is needed"
        )
    return flavour
