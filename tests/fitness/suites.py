"""The tests that a framework's own source distribution has.

They are downloaded, and imported under a package name of their own: a package `tests`
would be ours. Nothing of them is kept in this repository.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

SUITES = Path(__file__).resolve().parents[2] / ".fitness" / "suites"


def unpack_tests(requirement: str, package: str, changes: Mapping[str, str] | None = None) -> None:
    """Make the tests of a source distribution importable as `package`.

    Args:
        requirement: The pinned distribution, such as `"openai-agents==0.24.0"`.
        package: The name of the package that takes the place of its `tests`.
        changes: Texts to replace in its modules, for the class under test.
    """
    folder = SUITES / requirement
    if not folder.exists():
        _download(requirement, package, {"from tests": f"from {package}", **(changes or {})}, folder)
    pytest.register_assert_rewrite(package)
    sys.path.insert(0, str(folder))


def _download(requirement: str, package: str, changes: Mapping[str, str], folder: Path) -> None:
    SUITES.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=SUITES) as place:
        source = ["--no-deps", "--no-binary", ":all:", "--dest", place]
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", *source, requirement], check=True)
        (archive,) = Path(place).glob("*.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(place, filter="data")
        (tests,) = Path(place).glob("*/tests")
        made = tests.rename(tests.parent / package)
        for module in made.rglob("*.py"):
            text = module.read_text()
            for before, after in changes.items():
                text = text.replace(before, after)
            module.write_text(text)
        for other in [one for one in tests.parent.iterdir() if one != made]:
            shutil.rmtree(other) if other.is_dir() else other.unlink()
        tests.parent.rename(folder)
