"""Runs the adapters of agent frameworks against the frameworks' own tests.

    python -m tools.fitness                    every framework under tests/fitness
    python -m tools.fitness --ci               the three that CI runs, without servers and nightly tests
    python -m tools.fitness NAME… [-- FLAGS]   these; flags go to pytest

Each framework has an environment of its own in `.fitness/NAME`: what this project pins
for its tests, then `tests/fitness/NAME/requirements.txt`. If there is a `sources.txt`, the
source archives that it pins are unpacked in `.fitness/NAME/sources`: they have tests
that wheels lack. The environment is made again when one of these files changes. The last lines are a table of what passed, failed and does not apply.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import venv
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tools import install

ROOT = Path(__file__).resolve().parent.parent
FITNESS = ROOT / "tests" / "fitness"
ENVIRONMENTS = ROOT / ".fitness"
LOCK = ROOT / "requirements" / "dev.lock"
CI = ("langgraph_store", "langgraph_checkpointer", "openai_session")
AT_ONCE = 2
"""How many frameworks are tested at the same time; what each says is printed at its end."""
BACKENDS = ("sqlite", "redis", "postgresql", "qdrant_edge")
"""Where every adapter runs: the default file, and Redis + PostgreSQL + Edge. CI takes the
file alone: adapters of frameworks are above the stores.
"""


def list_frameworks() -> list[str]:
    """Return the names of the folders that have requirements."""
    return sorted(found.parent.name for found in FITNESS.glob("*/requirements.txt"))


def make_environment(name: str) -> Path:
    """Return the Python of a framework's environment. Make the environment if needed."""
    folder, requirements = ENVIRONMENTS / name, FITNESS / name / "requirements.txt"
    python, stamp = folder / "bin" / "python", folder / ".made-from"
    sources = requirements.with_name("sources.txt")
    files = [LOCK, requirements, *([sources] if sources.exists() else [])]
    wanted = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    print(f"Making .fitness/{name} …", flush=True)
    venv.create(folder, with_pip=False)
    pinned = ("--require-hashes", "--only-binary", ":all:", "-r", str(LOCK))
    _install(python, *pinned)
    _install(python, "-r", str(requirements))
    _install(python, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    if sources.exists():
        _unpack(python, sources, folder / "sources")
    stamp.write_text(wanted)
    return python


def _unpack(python: Path, pinned: Path, folder: Path) -> None:
    options = ("--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--require-hashes")
    _pip(python, "download", *options, "-r", str(pinned), "-d", str(folder))
    safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # from 3.11.4 on
    for archive in folder.glob("*.tar.gz"):
        shutil.unpack_archive(archive, folder, **safely)


def _install(python: Path, *arguments: str) -> None:
    if not install.uv_install(0, *arguments, python=python):
        _pip(python, "install", *arguments)


def _pip(python: Path, *arguments: str) -> None:
    """Run this environment's pip for another, which has none of its own."""
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), "-q", *arguments], check=True)


@dataclass(frozen=True)
class Outcome:
    """What the tests of one framework came to."""

    passed: int = 0
    failed: int = 0
    skipped: tuple[str, ...] = ()
    not_applicable: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether tests passed and none failed."""
        return self.passed > 0 and self.failed == 0

    def row(self, name: str) -> str:
        """Return the line of the table."""
        reasons = [f"{count}: {reason}" for reason, count in Counter(self.not_applicable).items()]
        reasons += [f"{count} not run: {reason}" for reason, count in Counter(self.skipped).items()]
        return f"| {name} | {self.passed} | {self.failed} | {'; '.join(reasons) or '-'} |"


def read_outcome(report: Path, status: int = 0) -> Outcome:
    """Read what pytest wrote. A run that wrote nothing failed.

    A run with another exit status than 0 failed too, for example if a required backend
    did not run.
    """
    if not report.exists():
        return Outcome(failed=1)
    passed, failed = 0, 0
    skipped: list[str] = []
    not_applicable: list[str] = []
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif (found := case.find("skipped")) is not None:
            reasons = not_applicable if found.get("type") == "pytest.xfail" else skipped
            reasons.append(found.get("message", ""))
        else:
            passed += 1
    return Outcome(passed, failed or int(status != 0), tuple(skipped), tuple(not_applicable))


def run(name: str, flags: Sequence[str], *, in_ci: bool) -> Outcome:
    """Run the tests of one framework in its environment. CI leaves out nightly ones and
    servers.
    """
    report = ENVIRONMENTS / f"{name}.xml"
    report.unlink(missing_ok=True)
    python = make_environment(name)
    named = os.environ.get("MEMORY_REQUIRE", "").split(",")
    environment = os.environ | {
        "MEMORY_FITNESS": name,
        "MEMORY_REQUIRE": "sqlite" if in_ci else ",".join(one for one in BACKENDS if one in named),
        "PYTHONPATH": str(ROOT),
        **({} if in_ci else {"MEMORY_NIGHTLY": "1"}),
    }
    command = [str(python), "-m", "pytest", "-q", f"--junitxml={report}", "-o", "filterwarnings=default"]
    command += [str(FITNESS / name), *(["-m", "not server"] if in_ci else []), *flags]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    print(f"{name}:\n{ended.stdout}", flush=True)
    return read_outcome(report, ended.returncode)


def main(arguments: Iterable[str]) -> int:
    """Run the frameworks that are named, print the table, and return the exit status."""
    names, flags = list(arguments), []
    if "--" in names:
        names, flags = names[: names.index("--")], names[names.index("--") + 1 :]
    known = list_frameworks()
    if in_ci := names == ["--ci"]:
        names = [name for name in CI if name in known]
    if unknown := [name for name in names if name not in known]:
        print(f"{', '.join(unknown)}: no such framework. There are {', '.join(known)}")
        return 2
    names = names or known
    with ThreadPoolExecutor(AT_ONCE) as threads:
        outcomes = dict(
            zip(names, threads.map(lambda name: run(name, flags, in_ci=in_ci), names), strict=True)
        )
    print("\n| framework | passed | failed | not applicable (why) |\n|---|---|---|---|")
    for name, outcome in outcomes.items():
        print(outcome.row(name))
    return 0 if all(outcome.is_good for outcome in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
