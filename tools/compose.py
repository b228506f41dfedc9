"""Start and stop the servers of a topology: `python tools/compose.py up
redis-postgres-qdrant`. Needs Docker and nothing else.

`up` ends when every server answers its health check, or says which does not. With
`worker` or `serve` after it a worker or an HTTP server runs beside them, of the image
that `make image` makes. A worker has no health check, and is up when it runs. What they
keep stays in named volumes until `docker volume rm`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "compose"
PATIENCE = 120
OWN = ("worker", "serve")
"""The services of this project's own image."""
IMAGE = os.environ.get("MEMORY_WORKER_IMAGE") or "memory-tiers:latest"


def topologies() -> list[str]:
    return sorted(file.stem for file in FOLDER.glob("*.yaml"))


def compose(topology: str) -> list[str]:
    """The command of the compose that is here."""
    has_plugin = (
        shutil.which("docker")
        and subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
    )
    if not has_plugin and not shutil.which("docker-compose"):
        raise SystemExit("neither `docker compose` nor `docker-compose` is installed")
    program = ["docker", "compose"] if has_plugin else ["docker-compose"]
    return [*program, "-f", str(FOLDER / f"{topology}.yaml"), "-p", f"memory-{topology}"]


def wait(command: list[str]) -> int:
    """Until every container is healthy, or runs if it has no health check; 1 and the
    names of those that are not when it takes too long.
    """
    containers = subprocess.run(
        [*command, "ps", "-q"], capture_output=True, text=True, check=True
    ).stdout.split()
    state = "{{.Name}} {{if .State.Health}}{{.State.Health.Status}}{{else}}{{.State.Status}}{{end}}"
    inspect = ["docker", "inspect", "--format", state, *containers]
    ends = time.monotonic() + PATIENCE
    while True:
        states = [
            line.lstrip("/").split()
            for line in subprocess.run(
                inspect, capture_output=True, text=True, check=True
            ).stdout.splitlines()
        ]
        waiting = [f"{name} is {state}" for name, state in states if state not in ("healthy", "running")]
        if not waiting:
            print("\n".join(f"{name} is {state}" for name, state in states))
            return 0
        if time.monotonic() > ends:
            print("; ".join(waiting), file=sys.stderr)
            return 1
        time.sleep(0.5)


def main(arguments: list[str]) -> int:
    do, topology, *more = arguments if len(arguments) > 1 else ("", "")
    if do not in ("up", "down") or topology not in topologies() or not set(more) <= set(OWN):
        print(f"usage: tools/compose.py up|down {'|'.join(topologies())} [worker] [serve]", file=sys.stderr)
        return 2
    command = compose(topology)
    if do == "down":
        command += [word for service in OWN for word in ("--profile", service)]
        return subprocess.run([*command, "down"], check=False).returncode
    if more:
        if subprocess.run(["docker", "image", "inspect", IMAGE], capture_output=True, check=False).returncode:
            print(f"the image '{IMAGE}' is not here: `make image` makes it", file=sys.stderr)
            return 1
        command += [word for service in more for word in ("--profile", service)]
    if subprocess.run([*command, "up", "-d"], check=False).returncode:
        return 1
    if wait(command):
        if "serve" in more:
            print(f"see: {' '.join(command)} logs serve", file=sys.stderr)
        return 1
    print(f"memory --config compose/{topology}.toml doctor")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
