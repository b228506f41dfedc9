"""Anyone runs the contract from the installed wheel: one command, a folder of their own, no checkout near."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import wheel as wheels

HERE = Path(__file__).parent
Run = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.skipif(not (wheels.ROOT / "memory").is_dir(), reason="the wheel is built from a checkout")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs the contract from the wheel, in a folder with nothing but the harnesses."""
    programs = wheels.install(wheels.build(tmp_path_factory.mktemp("dist")), tmp_path_factory.mktemp("env"))
    folder = tmp_path_factory.mktemp("theirs")
    for harnesses in ("example.py", "harnesses.py"):
        shutil.copy(HERE / harnesses, folder)

    def contract(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(programs / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=line", "--pyargs", "memory.ports.contract"]
        return subprocess.run([*command, *arguments], cwd=folder, env=wheels.environment(), capture_output=True, text=True, timeout=300)

    return contract


@pytest.mark.parametrize("harness", ["example:Mine", "harnesses:Sqlite"])
def test_the_installed_contract_passes_an_honest_store(run: Run, harness: str) -> None:
    result = run("--memory-harness", harness)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr
    passed = re.search(r"(\d+) passed, \d+ deselected in", result.stdout)
    assert passed is not None
    assert int(passed[1]) > 300


def test_the_installed_contract_fails_a_liar(run: Run) -> None:
    result = run("--memory-harness", "example:Lying", "-k", "flags")
    assert result.returncode == 1
    assert "test_an_opened_store_claims_what_its_harness_says[lying]" in result.stdout
    assert "test_what_was_acknowledged_survives_the_death_of_a_durable_store[lying]" in result.stdout


def test_harnesses_stand_side_by_side(run: Run) -> None:
    result = run("--memory-harness", "example:Mine", "--memory-harness", "harnesses:InMemoryServer", "-k", "limits")
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr
