"""MariaDB on a disk without room.

Not by the contract's harness: where the last write of a larger call finds no room,
InnoDB may find none for the roll-back either ("Out of disk space in rollback"), and the
server ends itself. Nothing acknowledged is lost by that, and the store says that its
server is gone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.adapters.sql.mysql.store import MySqlStore
from memory.ports.contract.collections import DECLARED
from memory.ports.contract.test_full import fills_up_and_works_again
from memory.ports.store import Store
from tests.contract.mysql_harnesses import MariaDb
from tests.contract.served import ROOM
from tests.support import mysql_servers
from tests.unit.adapters.sql.mysql.conftest import ON_SERVER

pytestmark = ON_SERVER


class OnASmallDisk(MariaDb):
    async def make_room(self, store: Store) -> None:
        mysql_servers.with_small_disk().make_room()


async def test_a_database_without_room_says_so_keeps_what_it_has_and_works_again_with_room(
    tmp_path: Path,
) -> None:
    if mysql_servers.product() != "MariaDB":
        pytest.skip("no folder of a database may be a link in MySQL")
    server = await mysql_servers.on_small_disk("small")
    store = MySqlStore(server.url("small"))
    try:
        await store.open(DECLARED)
        server.cramp(ROOM)
        await fills_up_and_works_again(OnASmallDisk(tmp_path), store)
    finally:
        await store.close()
