"""The image of `memory worker` and `memory serve`: `python -m tools.image python:3.13-slim
memory-tiers:latest`. Needs Docker, and a base that has Python and glibc.

What is installed in it are the wheels that requirements/dev.lock pins, each held to its
hash, for the Python and the machine of the base; and this project's own. The build
itself fetches nothing: see compose/Dockerfile.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from tools import wheel as wheels

EXTRAS = ("redis", "postgresql", "mysql", "mongodb", "qdrant", "server", "mcp")
OLDEST = (3, 11)
LOCK = wheels.ROOT / "requirements" / "dev.lock"
DOCKERFILE = wheels.ROOT / "compose" / "Dockerfile"

_QUESTION = """
import json, os, platform, sys
print(json.dumps({"glibc": platform.libc_ver()[1], "markers": {
    "implementation_name": sys.implementation.name, "os_name": os.name, "platform_machine": platform.machine(),
    "platform_python_implementation": platform.python_implementation(), "platform_release": platform.release(), "platform_system": platform.system(),
    "platform_version": platform.version(), "python_full_version": platform.python_version(),
    "python_version": ".".join(platform.python_version_tuple()[:2]), "sys_platform": sys.platform}}))
"""


class Unfit(Exception):
    """No image can be made from this base; says why."""


@dataclass(frozen=True)
class Base:
    """An image with a Python to install into. `markers` are what requirements ask of an
    environment (`python_version`, `platform_machine`, …).
    """

    name: str
    markers: Mapping[str, str]
    glibc: int
    """2.x of its C library."""

    @classmethod
    def asked(cls, name: str) -> Base:
        """The image of that name, whose own Python tells the rest."""
        command = [
            "docker",
            "run",
            "--rm",
            "--network",
            "none",
            "--entrypoint",
            "python3",
            name,
            "-c",
            _QUESTION,
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Unfit(f"'{name}' runs no python3: {done.stderr.strip()}")
        said = json.loads(done.stdout)
        markers: dict[str, str] = said["markers"]
        if tuple(map(int, markers["python_version"].split("."))) < OLDEST:
            raise Unfit(
                f"the Python of '{name}' is {markers['python_full_version']}; it has to be"
                f" {'.'.join(map(str, OLDEST))} or newer"
            )
        if not (glibc := re.fullmatch(r"2\.(\d+)", said["glibc"])):
            raise Unfit(
                f"'{name}' has no glibc, for which there are wheels of every dependency: take a base of"
                " Debian, Ubuntu, Fedora or the like"
            )
        return cls(name, markers, int(glibc[1]))

    def platforms(self) -> list[str]:
        """The tags of wheels that run on it, newest first."""
        machine = self.markers["platform_machine"]
        return [f"manylinux_2_{minor}_{machine}" for minor in range(self.glibc, 4, -1)] + [
            f"{name}_{machine}" for name in ("manylinux2014", "linux")
        ]


def pinned(names: Collection[str], markers: Mapping[str, str], lock: str) -> str:
    """What the lock says of these distributions for such an environment, as pip reads
    it on any other.
    """
    found: dict[str, str] = {}
    for line, hashes in re.findall(r"(?m)^([a-z0-9][^\\\n]*) \\\n((?: +--hash=\S+(?: \\)?\n)+)", lock):
        wanted = Requirement(line)
        if wanted.name in names and (wanted.marker is None or wanted.marker.evaluate(dict(markers))):
            found[wanted.name] = f"{wanted.name}{wanted.specifier} \\\n{hashes}"
    if unknown := sorted(set(names) - set(found)):
        raise Unfit(f"{LOCK.name} pins no {', '.join(unknown)} for Python {markers['python_version']}")
    return "".join(found.values())


def gather(base: Base, folder: Path) -> None:
    """Fill the folder with the wheels that the Dockerfile installs on this base."""
    own = wheels.build(folder)
    names = wheels.brought(own, EXTRAS, markers=base.markers) | {"pip"}
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as wanted:
        wanted.write(pinned(names, base.markers, LOCK.read_text()))
        wanted.flush()
        choice = [
            "--only-binary",
            ":all:",
            "--implementation",
            "cp",
            "--python-version",
            base.markers["python_version"],
        ]
        choice += [word for platform in base.platforms() for word in ("--platform", platform)]
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "download",
            "--quiet",
            "--no-deps",
            "--require-hashes",
        ]
        subprocess.run([*pip, *choice, "--dest", str(folder), "--requirement", wanted.name], check=True)


def build(base: Base, image: str) -> None:
    """Make the image, and leave nothing else behind."""
    with tempfile.TemporaryDirectory(prefix="memory-image-") as name:
        context = Path(name)
        (context / "wheels").mkdir()
        gather(base, context / "wheels")
        arguments = {"BASE": base.name, "EXTRAS": ",".join(EXTRAS), "BUILD": context.name}
        given = [
            word for argument, value in arguments.items() for word in ("--build-arg", f"{argument}={value}")
        ]
        try:
            subprocess.run(
                [
                    "docker",
                    "build",
                    "--force-rm",
                    "--file",
                    str(DOCKERFILE),
                    "--tag",
                    image,
                    *given,
                    str(context),
                ],
                check=True,
            )
        finally:
            subprocess.run(
                [
                    "docker",
                    "image",
                    "prune",
                    "--force",
                    "--filter",
                    f"label=memory-tiers.build={context.name}",
                ],
                check=True,
            )


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print("usage: python -m tools.image BASE IMAGE", file=sys.stderr)
        return 2
    base, image = arguments
    try:
        build(Base.asked(base), image)
    except Unfit as unfit:
        print(unfit, file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as failed:
        return failed.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
