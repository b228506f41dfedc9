"""The wheel as its users get it: built, installed beside nothing of the checkout, and
tested there.

    python -m tools.wheel smoke       the command line and one written and found entry
    python -m tools.wheel contract    the tests that an installed wheel may answer otherwise, from a folder that holds the tests and no sources

The environment borrows the dependencies that are already installed here, so nothing is
fetched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Collection, Iterable, Mapping
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROVES = (
    "tests/contract/test_built_ins.py",
    "tests/contract/test_in_memory.py",
    "tests/unit/cli",
    "tests/topologies",
    "tests/acceptance/test_backends.py",
)
"""What may be otherwise where nothing but the wheel is there: adapters are found by
their entry points, the contract by its plugin, migrations, the model and the command
line by their files. The wheel's own tests (what is in it, snippets, a suite of somebody
else's) are in `tests/meta/test_wheel.py` and `tests/contract/test_installed.py`; what
the code does is proven in the checkout.
"""
LEFT_OUT = ("meta", "faults", "test_faulty_adapters.py", "test_plugin.py", "test_installed.py")
"""Tests that judge the checkout or the contract suite itself, or run the same code at
length: the wheel gains nothing from them.
"""


def build(folder: Path) -> Path:
    """Build the wheel into the folder."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path, only: Iterable[str] | None = None) -> Path:
    """Make an environment in the folder with the wheel and all of this environment's
    distributions, or some; returns its directory of programs.
    """
    venv.create(folder, with_pip=False)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    if only is None:
        (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    else:
        _link(only, site)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(programs / "python")]
    subprocess.run(
        [*pip, "install", "--quiet", "--no-deps", "--no-index", "--ignore-installed", str(wheel)],
        check=True,
        capture_output=True,
    )
    return programs


def _link(names: Iterable[str], site: Path) -> None:
    for distribution in map(metadata.distribution, names):
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            (site / top).symlink_to(str(distribution.locate_file(top)))


def brought(
    wheel: Path,
    extras: Iterable[str] = (),
    *,
    leaves: Collection[str] = (),
    markers: Mapping[str, str] | None = None,
) -> set[str]:
    """The distributions that pip brings with the wheel and its extras, as what is
    installed here says; not those that only `leaves` ask for. `markers` are those of
    another environment than this one; what it alone needs is not installed here, and
    taken to need nothing itself.
    """
    (own,) = metadata.distributions(path=[str(wheel)])
    met: set[tuple[str, str]] = set()
    ahead = [(own, extra) for extra in ("", *extras)]
    while ahead:
        distribution, extra = ahead.pop()
        for wanted in map(Requirement, distribution.requires or ()):
            if wanted.marker is not None and not wanted.marker.evaluate({**(markers or {}), "extra": extra}):
                continue
            name = canonicalize_name(wanted.name)
            new = {(name, asked) for asked in ("", *wanted.extras)} - met
            met |= new
            found = (
                own if name == canonicalize_name(own.name) else _installed(name, or_not=markers is not None)
            )
            ahead += [(found, asked) for _, asked in new if found is not None and name not in leaves]
    return {name for name, _ in met} - {canonicalize_name(own.name)}


def _installed(name: str, *, or_not: bool) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        if or_not:
            return None
        raise


def environment() -> dict[str, str]:
    """This process's environment without what would let the checkout in."""
    left_out = ("PYTHONPATH", "VIRTUAL_ENV", "MEMORY_REQUIRE")
    return {
        name: value
        for name, value in os.environ.items()
        if name not in left_out and not name.startswith(("COVERAGE_", "COV_", "PYTEST_"))
    }


def main() -> int:
    kind, *options = sys.argv[1:] or ["smoke"]
    if kind not in ("smoke", "contract"):
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = install(build(folder / "dist"), folder / "env")
        place = folder / "tests-only"
        place.mkdir()
        python = str(programs / "python")
        where = subprocess.check_output(
            [python, "-c", "import memory; print(memory.__file__)"], cwd=place, env=environment(), text=True
        ).strip()
        if not Path(where).is_relative_to(folder / "env"):
            print(f"this would test {where}, not the wheel", file=sys.stderr)
            return 1
        return _smoke(programs, place) if kind == "smoke" else _contract(python, place, options)


def _smoke(programs: Path, place: Path) -> int:
    commands = (
        [str(programs / "memory"), "--help"],
        [str(programs / "memory"), "demo"],
        [str(programs / "python"), str(ROOT / "tools" / "smoke.py")],
    )
    for command in commands:
        done = subprocess.run(command, cwd=place, env=environment(), capture_output=True, text=True)
        if done.returncode:
            print(done.stdout + done.stderr, file=sys.stderr)
            return done.returncode
    print(done.stdout, end="")
    return 0


def _contract(python: str, place: Path, options: list[str]) -> int:
    shutil.copytree(ROOT / "tests", place / "tests", ignore=shutil.ignore_patterns("__pycache__", *LEFT_OUT))
    for part in ("tools", "examples"):
        shutil.copytree(ROOT / part, place / part, ignore=shutil.ignore_patterns("__pycache__"))
    (place / "docs" / "guide").mkdir(parents=True)
    for file in (
        "pyproject.toml",
        "README.md",
        "docs/backends.md",
        "docs/guide/errors.md",
    ):  # what tests read beside the code
        shutil.copy(ROOT / file, place / file)
    spread = ("--numprocesses", "3", "--dist", "loadgroup", "--no-loadscope-reorder")
    command = [python, "-m", "pytest", "--quiet", *spread, "-p", "no:cacheprovider", *PROVES, *options]
    return subprocess.run(command, cwd=place, env=environment()).returncode


if __name__ == "__main__":
    sys.exit(main())
