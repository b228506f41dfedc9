"""Makes the project's own environment: `python3 tools/install.py run|dev`.

Run by the machine's Python, so it needs nothing but the standard library. Packages come
from the lock file, each held to its hash, all as wheels: no compiler is needed. uv
installs them in a quarter of pip's time; where uv cannot, pip does. The project itself
is installed editable.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import sysconfig
import time
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
PIP = (str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--no-input")
KINDS = ("run", "dev")
UV = PYTHON.with_name("uv.exe" if os.name == "nt" else "uv")
UV_LOCK = ROOT / "requirements" / "uv.lock"

SELDOM = (
    "fsspec",
    "huggingface_hub",
    "mypy",
    "mypyc",
    r"onnxruntime[/\\](quantization|tools|transformers)",
    "pip",
    "pkg_resources",
    r"pygments[/\\](lexers|styles)",
    "setuptools",
)
"""Packages of which little or nothing is imported: a quarter of all there is to compile."""


def stamp(kind: str) -> Path:
    return VENV / f".installed-{kind}"


def make_environment() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 - an older Python runs this file before any metadata is read
        sys.exit(
            f"This needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}. Try: make"
            " PYTHON=python3.11 …"
        )
    if PYTHON.exists():
        return
    print(f"Making {VENV.name}/ with Python {sys.version.split()[0]} …", flush=True)
    done = subprocess.run([sys.executable, "-m", "venv", str(VENV)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(
            f"{done.stdout}{done.stderr}\nPython could not make an environment. On Debian and Ubuntu: apt-get"
            " install python3-venv"
        )


def pip_install(what: str, total: int, *arguments: str) -> None:
    """Run pip, showing how far it is; all it said, if it fails."""
    begun = time.monotonic()
    on_terminal = sys.stdout.isatty()
    said: list[str] = []
    seen = 0
    with subprocess.Popen(
        [*PIP, "install", "--progress-bar", "off", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            said.append(line)
            if re.match(r"(Collecting|Requirement already satisfied:) ", line):
                seen += 1
                if on_terminal:
                    print(f"\rInstalling {what}: {min(seen, total)} of {total} ", end="", flush=True)
                elif seen == 1 and total > 1:
                    print(f"Installing {what}: {total} packages …", flush=True)
    if on_terminal:
        print("\r\033[K", end="")
    if pip.returncode:
        sys.exit(f"{''.join(said)}\nInstalling {what} failed.")
    print(f"Installed {what} in {time.monotonic() - begun:.0f} s.", flush=True)


def uv_install(total: int, *arguments: str, python: Path = PYTHON) -> bool:
    """Run `uv pip install` with pip's package index, for this or another environment.
    False where uv cannot be had or fails; pip, which reads all its settings, may still
    succeed.
    """
    begun = time.monotonic()
    if not _has_uv():
        return False
    if total:
        print(f"Installing {total} packages …", flush=True)
    configured = _pip_settings()
    index = ("--default-index", configured["index-url"]) if "index-url" in configured else ()
    certificates = {"SSL_CERT_FILE": configured["cert"]} if "cert" in configured else {}
    command = [str(UV), "pip", "install", "-q", "--python", str(python), *index, *arguments]
    if subprocess.run(command, env={**os.environ, **certificates}, capture_output=True).returncode:
        return False
    if total:
        print(f"Installed them in {time.monotonic() - begun:.0f} s.", flush=True)
    return True


@cache
def _has_uv() -> bool:
    """Install uv where it is missing; False where it cannot be had."""
    install = [*PIP, "install", "-q", "--require-hashes", "--only-binary", ":all:", "-r", str(UV_LOCK)]
    return subprocess.run(install, capture_output=True).returncode == 0


@cache
def _pip_settings() -> dict[str, str]:
    """What pip is told by the environment or by a configuration file."""
    told = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True).stdout
    settings = dict(line.split("=", 1) for line in told.splitlines())
    return {
        name.removeprefix(f"{place}."): str(ast.literal_eval(settings[name]))
        for place in ("install", "global", ":env:")  # the last counts
        for name in settings
        if name.startswith(f"{place}.")
    }


def compile_all(kind: str) -> None:
    """What was installed and what is here, on every processor; pip would take one file
    after the other. Other packages' tests, what is `SELDOM` imported and what fails are
    left: they are compiled when they are imported. Test modules are compiled for pytest,
    which rewrites their assertions.
    """
    site = sysconfig.get_path("purelib", "venv", vars={"base": str(VENV), "platbase": str(VENV)})
    ours = [
        str(ROOT / name) for name in ("memory", "memory_tiers", "tests", "tools") if (ROOT / name).is_dir()
    ]
    subprocess.run(
        [
            str(PYTHON),
            "-m",
            "compileall",
            "-qq",
            "-j",
            "0",
            "-x",
            rf"site-packages([/\\]({'|'.join(SELDOM)})[/\\]|.*[/\\]tests?[/\\])|[/\\](test_\w+|conftest)\.py$",
            site,
            *ours,
        ],
        capture_output=True,
    )
    if kind == "dev":
        subprocess.run([str(PYTHON), "-m", "tools.compile_tests"], cwd=ROOT, capture_output=True)


def main() -> None:
    kind = sys.argv[1] if len(sys.argv) == 2 else ""
    if kind not in KINDS:
        sys.exit(__doc__)
    make_environment()
    lock = ROOT / "requirements" / f"{kind}.lock"
    total = len(re.findall(r"(?m)^[A-Za-z0-9]", lock.read_text()))
    pinned = ("--require-hashes", "--only-binary", ":all:", "-r", str(lock))
    if not uv_install(total, *pinned):
        pip_install(f"what requirements/{lock.name} pins", total, "--no-compile", *pinned)
    pip_install("the project", 1, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    compile_all(kind)
    for covered in KINDS[: KINDS.index(kind) + 1]:
        stamp(covered).touch()


if __name__ == "__main__":
    main()
