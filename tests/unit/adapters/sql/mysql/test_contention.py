"""Many callers about the same records."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from memory.adapters.sql.mysql.store import MySqlStore
from memory.ports.store import Store
from memory.ports.writes import Outcome, Write
from tests.unit.adapters.contention import (
    callers_about_the_same_records_all_get_an_answer_that_is_true,
    new_records_of_many_callers_at_once_are_each_answered_as_alone,
)
from tests.unit.adapters.sql.mysql.conftest import ON_SERVER

pytestmark = ON_SERVER


async def test_a_hundred_callers_about_the_same_records_all_get_an_answer_that_is_true(store: Store) -> None:
    await callers_about_the_same_records_all_get_an_answer_that_is_true(store)


async def test_new_records_of_many_callers_at_once_go_together_and_are_each_answered_as_alone(
    store: MySqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried_out: list[int] = []
    carry_out = store._carry_out

    async def counted(writes: Sequence[Write], together: bool) -> list[Outcome]:
        carried_out.append(len(writes))
        return await carry_out(writes, together)

    monkeypatch.setattr(store, "_carry_out", counted)
    await new_records_of_many_callers_at_once_are_each_answered_as_alone(store, carried_out)
