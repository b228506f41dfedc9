"""Strands' own tests of sessions and snapshots, over the adapters, on every topology."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.fitness.upstream import fetch_tests, run_tests

HERE = Path(__file__).parent
OTHER_STORAGES = {
    "test_save_writes_external_ref_for_durable_storage": "asks for the name of the class LocalFileStorage",
}
"""Tests of snapshots that cannot pass, and why."""


def test_repository_session_manager(config: dict[str, Any], tmp_path: Path) -> None:
    """The suite of `RepositorySessionManager`, over our repository."""
    ran = _run("tests/strands/session/test_repository_session_manager.py", config, tmp_path)
    assert len(ran) == 51
    assert {name: outcome for name, outcome in ran.items() if outcome != "passed"} == {}


def test_snapshot_session_manager(config: dict[str, Any], tmp_path: Path) -> None:
    """The suite of `SnapshotSessionManager`, over our storage."""
    ran = _run("tests/strands/session/test_snapshot_session_manager.py", config, tmp_path)
    assert len(ran) == 117
    failed = {name: outcome for name, outcome in ran.items() if outcome != "passed"}
    assert failed.keys() == OTHER_STORAGES.keys(), failed


def _run(tests: str, config: dict[str, Any], work: Path) -> dict[str, str]:
    folder = fetch_tests(HERE / "upstream.txt")
    return run_tests(folder, [tests], plugin=HERE / "upstream_plugin.py", config=config, work=work)
