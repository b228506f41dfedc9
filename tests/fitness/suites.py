"""The tests that a framework's own source archive has, importable beside ours.

`tools/fitness.py` unpacks the archives that a `sources.txt` pins. Their package `tests`
gets another name, because `tests` is ours. Nothing of them is in this repository.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

SOURCES = Path(sys.prefix) / "sources"


def name_tests(distribution: str, package: str) -> None:
    """Make the tests of an unpacked source archive importable as a package.

    Args:
        distribution: The name of the archive without its version.
        package: The name that replaces `tests`.
    """
    made = SOURCES / package
    if not made.exists():
        (tests,) = SOURCES.glob(f"{distribution}-*/tests")
        copy = Path(shutil.copytree(tests, SOURCES / f"{package}.new", dirs_exist_ok=True))
        for module in copy.rglob("*.py"):
            module.write_text(module.read_text().replace("from tests", f"from {package}"))
        copy.rename(made)
    pytest.register_assert_rewrite(package)
    sys.path.insert(0, str(SOURCES))
