"""Tests of frameworks that are only in their source distributions.

`fetch_tests` downloads a pinned source distribution with pip, once. `run_tests` runs
some of its tests with a plugin that puts an adapter in the place of a framework's own
class, and returns the outcome of each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
FETCHED = ROOT / ".fitness" / "sources"


def fetch_tests(requirements: Path) -> Path:
    """Return the folder of the source distribution that a file of one line pins."""
    named = requirements.read_text().split()[0].replace("==", "-").replace("-", "_", 1)
    folder = FETCHED / named
    if folder.exists():
        return folder
    command = ["download", "-q", "--no-deps", "--no-binary", ":all:", "--require-hashes"]
    subprocess.run(
        [sys.executable, "-m", "pip", *command, "-d", str(FETCHED), "-r", str(requirements)], check=True
    )
    with tarfile.open(FETCHED / f"{named}.tar.gz") as archive:
        safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since Python 3.11.4
        archive.extractall(FETCHED, **safely)  # noqa: S202 - pinned by its hash
    return folder


def run_tests(
    folder: Path, tests: Sequence[str], *, plugin: Path, config: Mapping[str, Any], work: Path
) -> dict[str, str]:
    """Run tests of a source distribution with a plugin.

    Args:
        folder: The source distribution.
        tests: Files of tests in it.
        plugin: A module of pytest hooks. It finds the configuration of the memory in
            the environment, as JSON in MEMORY_FITNESS_CONFIG.
        config: The configuration of the memory.
        work: A folder for the report.

    Returns:
        For each test "passed", or the first line of its failure.
    """
    report = work / "report.xml"
    environment = os.environ | {
        "MEMORY_FITNESS_CONFIG": json.dumps(config),
        "PYTHONPATH": os.pathsep.join([str(folder), str(plugin.parent), str(ROOT)]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    flags = ["-q", "-p", plugin.stem, "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "-o", "addopts="]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *flags, f"--rootdir={folder}", f"--junitxml={report}", *tests],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    if not report.exists():
        raise AssertionError(f"no report:\n{ran.stdout}\n{ran.stderr}")
    return {case.get("name", ""): _outcome(case) for case in ElementTree.parse(report).iter("testcase")}  # noqa: S314


def _outcome(case: ElementTree.Element) -> str:
    for kind in ("failure", "error", "skipped"):
        found = case.find(kind)
        if found is not None:
            return f"{kind}: {(found.get('message') or '').splitlines()[0]}"
    return "passed"
