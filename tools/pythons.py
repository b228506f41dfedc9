"""Installs the project with each newer Python at hand and writes and finds one entry
there: `python -m tools.pythons`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.12", "3.13")


def found(version: str) -> str | None:
    """A Python of this version that can make environments, on the path or under pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [
        shutil.which(f"python{version}"),
        *map(str, sorted((pyenv / "versions").glob(f"{version}.*/bin/python"))),
    ]
    for python in filter(None, candidates):
        if subprocess.run([python, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0:
            return python
    return None


def tried(python: str, folder: Path) -> None:
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run(
        [*pip, "--require-hashes", "--only-binary", ":all:", "-r", str(ROOT / "requirements" / "run.lock")],
        check=True,
    )
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", str(ROOT)], check=True)
    subprocess.run([str(folder / "bin" / "memory"), "--help"], cwd=folder, check=True, capture_output=True)
    subprocess.run([str(folder / "bin" / "python"), str(ROOT / "tools" / "smoke.py")], cwd=folder, check=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        for version in VERSIONS:
            if (python := found(version)) is None:
                print(f"Python {version}: not found, not tried")
            else:
                tried(python, Path(name) / version)


if __name__ == "__main__":
    main()
