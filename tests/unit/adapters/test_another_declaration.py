"""What becomes of a database that is there already when a collection declares one field more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memory.adapters.sql.sqlite.store import SqliteStore
from memory.domain.errors import ConfigError
from memory.ports.collections import Field, FieldType
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import asked, done, id_of, live, put, record
from memory.ports.query import Eq


@pytest.mark.xfail(strict=True, raises=ConfigError, reason="a file of another declaration is refused until the next issue")
async def test_a_file_is_opened_with_one_field_more_and_keeps_its_records(tmp_path: Path) -> None:
    """The records that are there have no value of it; new ones are found by theirs."""
    before = SqliteStore(f"sqlite:///{tmp_path / 'memory.db'}")
    await before.open(DECLARED)
    await done(before, put(record(1, fields={"type": "fact"})))
    await before.close()

    more = replace(SAMPLES, fields=(*SAMPLES.fields, Field("artifact_id", FieldType.TEXT)))
    after = SqliteStore(f"sqlite:///{tmp_path / 'memory.db'}")
    await after.open((more, *DECLARED[1:]))
    try:
        assert (await live(after, 1, collection=more)).fields == {"type": "fact"}
        await done(after, put(record(2, fields={"artifact_id": "a1"}), collection=more))
        assert await asked(after, part=Eq("artifact_id", "a1"), collection=more) == [id_of(2)]
    finally:
        await after.close()
