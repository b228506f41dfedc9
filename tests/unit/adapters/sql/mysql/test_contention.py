"""Many callers about the same records."""

from __future__ import annotations

from memory.ports.store import Store
from tests.unit.adapters.contention import callers_about_the_same_records_all_get_an_answer_that_is_true
from tests.unit.adapters.sql.mysql.conftest import ON_SERVER

pytestmark = ON_SERVER


async def test_a_hundred_callers_about_the_same_records_all_get_an_answer_that_is_true(store: Store) -> None:
    await callers_about_the_same_records_all_get_an_answer_that_is_true(store)
