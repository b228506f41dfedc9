"""A configuration never hides data in silence: stores note which others serve beside
them.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from memory import BlockingMemory, ConfigError
from memory.facade.config.settings import MemoryConfig
from memory.facade.reports import examine
from memory.facade.runtime.build import build_engine
from memory.ports.clock import system_clock

pytestmark = pytest.mark.backend("sqlite")


def config(folder: Path, short: str, mid: str, long: str) -> dict[str, Any]:
    """A file for each name."""
    stores = {name: {"url": f"sqlite:///{folder / name}.db"} for name in {short, mid, long}}
    return {
        "stores": stores,
        "tiers": {"short": short, "mid": mid, "long": long},
        "embedder": {"use": "none"},
    }


def warned(given: Any, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What opening warns of."""
    caplog.clear()
    with caplog.at_level(logging.WARNING), BlockingMemory(given):
        pass
    return [record.getMessage() for record in caplog.records]


def doctor(given: Any) -> list[str]:
    """The problems that `memory doctor` fails for."""
    engine = build_engine(MemoryConfig.load(given), embedder=None, clock=system_clock)
    found = asyncio.run(examine(engine))
    assert found.ok is not bool(found.problems)
    return list(found.problems)


def filled(given: Any) -> None:
    with BlockingMemory(given) as memory:
        kept = memory.write("a fact", scope="user:ada")
        memory.write("of a session", scope="session:s")
        assert memory.admin.move([kept.id], to="long").moved


@pytest.mark.parametrize("instead", ["another", "mid"])
def test_a_store_that_holds_data_and_is_omitted_is_named_with_the_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, instead: str
) -> None:
    before, after = config(tmp_path, "short", "mid", "long"), config(tmp_path, "short", "mid", instead)
    filled(before)
    assert warned(before, caplog) == doctor(before) == []
    for is_new in (instead == "another", False):  # the note stays
        (said,) = warned(after, caplog)
        assert "store 'long' served tier 'long' beside store 'short'" in said
        assert "Put it back into the configuration" in said
        assert "memory doctor --forget-store long" in said
        assert ("store 'another', which serves it now, is new" in said) == is_new
        assert any("store 'long' served tier 'long'" in problem for problem in doctor(after))
    assert warned(before, caplog) == doctor(before) == []
    with BlockingMemory(after) as memory:
        assert memory.admin.forget_store("long") >= 1
    assert warned(after, caplog) == doctor(after) == []


def test_a_store_that_an_empty_one_replaced_under_its_name_is_named_until_it_is_healed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = config(tmp_path, "short", "mid", "long")
    filled(given)
    (tmp_path / "long.db").unlink()
    assert any(
        "store 'long' served tier 'long'" in problem and "doctor --repair" in problem
        for problem in doctor(given)
    )
    (said,) = warned(given, caplog)
    assert "another store now has its name and place. Restore the earlier store" in said
    engine = build_engine(MemoryConfig.load(given), embedder=None, clock=system_clock)
    asyncio.run(examine(engine, repair=True))
    assert warned(given, caplog) == []


def test_an_empty_store_that_is_omitted_is_no_problem(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with BlockingMemory(config(tmp_path, "short", "mid", "long")):
        pass
    assert warned(config(tmp_path, "short", "mid", "another"), caplog) == []


def test_entries_of_a_tier_that_another_store_serves_now_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alone, split = config(tmp_path, "one", "one", "one"), config(tmp_path, "one", "one", "two")
    filled(alone)
    for _ in range(2):
        (said,) = warned(split, caplog)
        assert "store 'one' holds entries of tier 'long', which store 'two' serves now" in said
        assert "memory export" in said
        assert any("holds entries of tier 'long'" in problem for problem in doctor(split))
    with BlockingMemory(alone) as memory:
        memory.admin.erase("user:ada")
    assert [one for one in doctor(split) if "holds entries" in one] == []


@pytest.mark.parametrize(
    ("given", "level", "said", "why"),
    [
        (
            {"tiers": {"long": "sqlite:///own.db"}},
            "WARNING",
            "tiers short, mid are",
            "the configuration names no other store",
        ),
        ({}, "INFO", "all tiers are", "the configuration names no other store"),
        (
            {
                "stores": {"mine": {"url": "sqlite:///own.db"}},
                "tiers": {"short": "main", "mid": "main", "long": "main"},
            },
            "WARNING",
            "all tiers are",
            "no tier and no route names 'mine'",
        ),
    ],
)
def test_a_tier_on_the_default_file_is_logged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    given: dict[str, Any],
    level: str,
    said: str,
    why: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("platformdirs.user_data_dir", lambda *_, **__: str(tmp_path / "data"))
    with caplog.at_level(logging.INFO, "memory.facade"), BlockingMemory(given, embedder="none"):
        pass
    (told,) = [record for record in caplog.records if "default file" in record.getMessage()]
    assert (told.levelname, told.getMessage()) == (
        level,
        f"{said} on the default file, {tmp_path / 'data' / 'memory.db'}: {why}",
    )


@pytest.mark.parametrize(
    ("tiers", "left"),
    [
        ({}, ("short", "mid", "long")),
        ({"mid": "memory://"}, ("short", "long")),
        ({"short": "main"}, ("mid", "long")),
    ],
)
def test_stores_that_no_tier_names_are_refused_while_a_tier_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiers: dict[str, str], left: tuple[str, ...]
) -> None:
    monkeypatch.setattr("platformdirs.user_data_dir", lambda *_, **__: str(tmp_path / "data"))
    given = {"stores": {"mine": {"url": f"sqlite:///{tmp_path}/own.db"}}, "tiers": tiers}
    with pytest.raises(ConfigError) as refused:
        BlockingMemory(given, embedder="none")
    assert "no tier and no route names 'mine'" in str(refused.value)
    assert ", ".join(f'{tier} = "mine"' for tier in left) in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_one_of_several_stores_is_not_used_alone_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(config(tmp_path, "one", "two", "two"))
    (said,) = warned(config(tmp_path, "one", "one", "one"), caplog)
    assert "store 'two' served tiers 'mid', 'long' beside store 'one'" in said


@pytest.mark.parametrize("is_routed", [False, True])
def test_a_memory_of_one_tier_alone_warns_of_nothing_and_leaves_the_notes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_routed: bool
) -> None:
    given = config(tmp_path, "short", "mid", "long")
    if is_routed:
        given["stores"]["other"] = {"url": f"sqlite:///{tmp_path / 'other'}.db"}
        given["routes"] = [{"tiers": ["mid"], "store": "other", "tenants": ["globex"]}]
    filled(given)
    with BlockingMemory(given) as memory:
        memory.for_tenant("globex").documents.put("path:keys/", "a", {"n": 1})
    part = MemoryConfig.load(given).only_tier("mid")
    assert warned(MemoryConfig.load(part), caplog) == []
    with BlockingMemory(part) as memory:
        found = memory.for_tenant("globex").documents.get("path:keys/", "a")
        assert found is not None
        assert found.value == {"n": 1}
    assert warned(given, caplog) == doctor(given) == []


def test_a_store_that_is_not_durable_any_more_is_told_from_one_that_is_omitted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = config(tmp_path, "short", "mid", "mid")
    given["stores"]["short"] = {"url": f"file://{tmp_path / 'short'}"}
    with BlockingMemory(given) as memory:
        memory.write("of a session", scope="session:s")
    given["stores"]["short"]["options"] = {"fsync": False}
    said = [one for one in warned(given, caplog) if "beside" in one]
    assert said == [one for one in doctor(given) if "beside" in one]
    (one,) = said
    assert "store 'short' served tier 'short' beside store 'mid'" in one
    assert "not durable any more" in one
    assert "omits" not in one
    given["stores"]["short"]["options"] = {"fsync": True}
    assert warned(given, caplog) == doctor(given) == []
