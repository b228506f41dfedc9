"""Anyone runs the contract from the installed wheel: one command, a folder of their
own, no checkout near.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import wheel as wheels

HERE = Path(__file__).parent
Run = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.skipif(
    not (wheels.ROOT / "memory").is_dir(), reason="the wheel is built from a checkout"
)


@pytest.fixture
def run(programs: Path, tmp_path: Path) -> Run:
    """Runs the contract from the wheel, in a folder with nothing but the harnesses."""
    folder = tmp_path / "theirs"
    for ours in (
        "support/quick_folders.py",
        "support/small_disk.py",
        "contract/in_a_folder.py",
    ):  # what the harnesses import
        (folder / "tests" / ours).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE.parent / ours, folder / "tests" / ours)
    for harnesses in ("example.py", "harnesses.py"):
        shutil.copy(HERE / harnesses, folder)

    def contract(*arguments: str) -> subprocess.CompletedProcess[str]:
        options = ("-q", "-p", "no:cacheprovider", "--tb=line", f"--basetemp={tmp_path / 'tests'}")
        command = [str(programs / "python"), "-m", "pytest", *options, "--pyargs", "memory.ports.contract"]
        return subprocess.run(
            [*command, *arguments],
            cwd=folder,
            env=wheels.environment(),
            capture_output=True,
            text=True,
            timeout=1200,
        )

    return contract


@pytest.mark.nightly
def test_the_installed_contract_passes_honest_stores_side_by_side(run: Run) -> None:
    result = run(
        "-rpfE",
        "--contract-depth",
        "quick",
        "--memory-harness",
        "example:Mine",
        "--memory-harness",
        "harnesses:Sqlite",
    )
    assert result.returncode == 0, (
        "\n".join(line for line in result.stdout.splitlines() if not line.startswith("PASSED"))[-3000:]
        + result.stderr
    )
    passed = Counter(re.findall(r"(?m)^PASSED .*?\[(mine|sqlite)\b", result.stdout))
    assert passed["mine"] > 200
    assert passed["sqlite"] > 200


@pytest.mark.thorough
def test_the_installed_contract_fails_a_faulty_adapter(run: Run) -> None:
    result = run("--memory-harness", "example:Lying", "-k", "flags")
    assert result.returncode == 1
    assert "test_an_opened_store_claims_what_its_harness_says[lying]" in result.stdout
    assert "test_what_was_acknowledged_survives_the_death_of_a_durable_store[lying]" in result.stdout


@pytest.mark.thorough
def test_harnesses_with_limits_stand_beside_those_without(run: Run) -> None:
    result = run(
        "--memory-harness", "example:Mine", "--memory-harness", "harnesses:InMemoryServer", "-k", "limits"
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr
