"""The example of docs/adapters.md is what it says: complete, right, and found by its
URL where it is installed beside the wheel.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tools import wheel as wheels

EXAMPLE = wheels.ROOT / "docs" / "example_adapter"

pytestmark = pytest.mark.skipif(not EXAMPLE.is_dir(), reason="the example is in a checkout")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example where an install would put it: its module, and what tells Python of
    its entry points.
    """
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for file in EXAMPLE.glob("*.py"):
        shutil.copy(file, theirs)
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    info = theirs / f"memory_one_file-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    points = [f"{name} = {place}" for name, place in project["entry-points"]["memory.adapters"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[memory.adapters]", *points, ""]))
    return theirs


def _run(programs: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(programs / "python"), *arguments]
    return subprocess.run(
        command, cwd=folder, env=wheels.environment(), capture_output=True, text=True, timeout=300
    )


@pytest.mark.nightly
def test_the_example_passes_the_whole_contract(programs: Path, folder: Path, tmp_path: Path) -> None:
    options = ("-q", "-p", "no:cacheprovider", "--tb=line", f"--basetemp={tmp_path / 'tests'}", "-rp")
    result = _run(
        programs,
        folder,
        "-m",
        "pytest",
        *options,
        "--pyargs",
        "memory.ports.contract",
        "--memory-harness",
        "harness:OneFile",
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr
    assert len(re.findall(r"(?m)^PASSED .*?\[one_file\b", result.stdout)) > 200


@pytest.mark.thorough
def test_the_example_serves_all_three_tiers_by_its_url(programs: Path, folder: Path) -> None:
    script = """
from memory import BlockingMemory
for _ in range(2):
    with BlockingMemory("one-file:memory.json", embedder="none") as memory:
        memory.write("Ada prefers tea", scope="user:ada", key="tea")
        print([hit.entry.content for hit in memory.search("tea", scope="user:ada")], memory.admin.check()[0].durable)
"""
    result = _run(programs, folder, "-c", script)
    assert (result.stdout, result.stderr) == ("['Ada prefers tea'] True\n" * 2, "")


def test_the_example_has_under_150_lines_of_code() -> None:
    lines = (EXAMPLE / "file_store.py").read_text().splitlines()
    code = [line for line in lines if line.strip() and not line.startswith(("from ", "import ", '"""', "#"))]
    assert len(code) < 150
