"""Disks of some megabytes that tests may fill: a mounted tmpfs, which takes root.
Elsewhere such tests are skipped, or left out.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    if not permitted():
        pytest.skip("mounting a small disk is not permitted here")
    mount(place)
    try:
        yield place
    finally:
        unmount(place)


@cache
def permitted() -> bool:
    """Whether this process may mount a disk."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            mount(Path(folder))
        except (subprocess.CalledProcessError, FileNotFoundError):
            return False
        unmount(Path(folder))
        return True


def mount(place: Path, megabytes: int = 3) -> None:
    """A small disk over this folder. Raises where that is not permitted."""
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place)],
        capture_output=True,
        check=True,
    )


def unmount(place: Path) -> None:
    """Take it away again, in use or not; a folder that is no disk stays as it is."""
    if place.is_mount():
        subprocess.run(["umount", "-l", str(place)], check=True)


def grow(disk: Path, megabytes: int = 32) -> None:
    """Make room."""
    subprocess.run(["mount", "-o", f"remount,size={megabytes}m", str(disk)], check=True)
