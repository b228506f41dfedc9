"""Servers that tests start in containers: which images, whether they can run here, and
one server's life.

Images are the official ones; each can be replaced through its environment variable,
which is also how other versions are tested. A server is the test process's own (one a
worker), starts when it is first asked for, keeps its port through a crash, and goes
with the process.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import shutil
import socket
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.support import quick_folders

os.environ.setdefault(
    "TESTCONTAINERS_RYUK_DISABLED", "true"
)  # its helper image cannot be had everywhere; see `_remove_orphans`


@dataclass(frozen=True)
class Image:
    """An image by its official name and the version tested, and the variable that names
    another.
    """

    default: str
    variable: str

    @property
    def name(self) -> str:
        return os.environ.get(self.variable) or self.default


IMAGES: Mapping[str, Image] = {
    "redis": Image("redis:7", "MEMORY_REDIS_IMAGE"),
    "postgres": Image("postgres:15", "MEMORY_POSTGRES_IMAGE"),
    "mysql": Image("mysql:8", "MEMORY_MYSQL_IMAGE"),
    "mongo": Image("mongo:6", "MEMORY_MONGO_IMAGE"),
    "qdrant": Image("qdrant/qdrant:v1.20.0", "MEMORY_QDRANT_IMAGE"),
}
"""The version matrix: what CI runs. Other versions are run by setting the variable."""

BASE = Image("python:3.13-slim", "MEMORY_BASE_IMAGE")
"""What the image of the worker is made from."""

OWNER = "memory-tests.owner"
DATA = "memory-tests.data"
START_SECONDS = 60.0
ATTEMPTS = 3
_BALLAST = "ballast"


@cache
def missing(server: str) -> str | None:
    """Why this server cannot be started on this machine, or None."""
    problem = _no_engine()
    if problem is None:
        import docker

        with contextlib.closing(docker.from_env(timeout=10)) as client:
            try:
                client.images.get(IMAGES[server].name)
            except docker.errors.ImageNotFound:
                problem = (
                    f"the image '{IMAGES[server].name}' is not here (pull it, or name another in"
                    f" {IMAGES[server].variable})"
                )
    return problem


@cache
def bases() -> tuple[str, ...]:
    """The images here that the worker's may be made from: the one that is named, else
    `BASE`, else a server's, which may have Python in it too.
    """
    import docker

    named = os.environ.get(BASE.variable)
    with contextlib.closing(docker.from_env(timeout=10)) as client:
        here = {tag for image in client.images.list() for tag in image.tags}
    return tuple(
        name
        for name in ([named] if named else [BASE.default, *(image.name for image in IMAGES.values())])
        if name in here
    )


@cache
def no_base() -> str | None:
    """Why the image of the worker cannot be made on this machine, or None where it may
    be: whether there is Python in a base, only it can tell.
    """
    if (problem := _no_engine()) is not None:
        return problem
    return (
        None
        if bases()
        else f"the image '{BASE.name}' is not here (pull it, or name another in {BASE.variable})"
    )


@cache
def _no_engine() -> str | None:
    """Why no server at all can be started on this machine, or None."""
    try:
        import docker  # type: ignore[import-untyped,unused-ignore]
        import testcontainers  # noqa: F401
    except ImportError:
        return "the package 'testcontainers' is not installed"
    problem = None
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ResourceWarning
        )  # a client that finds no engine leaves its socket open
        try:
            with contextlib.closing(docker.from_env(timeout=10)) as client:
                client.ping()
        except Exception as exc:  # noqa: BLE001  whatever keeps Docker from answering, the reason is what is reported
            problem = f"no Docker engine answers ({type(exc).__name__})"
        gc.collect()
    return problem


@cache
def shares_network() -> bool:
    """Whether a container on the host's network is reached on this process's loopback
    interface: the engine runs on this very machine, as root, and not in a virtual one.
    """
    import docker

    with contextlib.closing(docker.from_env(timeout=10)) as client:
        told = client.info()
    here = sys.platform == "linux" and told["KernelVersion"] == os.uname().release
    rootless = any("rootless" in option for option in told.get("SecurityOptions") or ())
    return here and not rootless and told["Name"] == socket.gethostname()


class Server:
    """One server in a container, on a fixed port of the loopback interface.

    `command` is given the port and returns the server's; `inside` is the port it
    listens on in the container, None for the same as outside. `ready(port)` raises as
    long as the server does not work yet. A `folder` stands at /given in the container.
    With `host_network` it reaches other servers on the loopback interface; None takes
    the host's network where the engine shares it, for Docker's proxy copies every
    byte otherwise. `small` is a folder in the container that is a disk of its own, of
    so many megabytes. `data` is where the server keeps its data, in one image or
    another: on a disk in memory where this process can remove them, so that no commit
    waits. They stay there when the server is killed.
    """

    def __init__(
        self,
        image: str,
        ready: Callable[[int], object],
        command: Callable[[int], Sequence[str]] = lambda _port: (),
        inside: int | None = None,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        host_network: bool | None = None,
        small: tuple[str, int] | None = None,
        data: Sequence[str] = (),
    ) -> None:
        self.image = image
        self._ready = ready
        self._command = command
        self._inside = inside
        self._environment = dict(environment or {})
        self._folder = folder
        self._host_network = host_network
        self._small = small
        self._data = tuple(data)
        self._data_folder: Path | None = None
        self._container: Any = None
        self._port = 0

    @property
    def port(self) -> int:
        """The port on 127.0.0.1; starts the server where it does not run yet."""
        if self._container is None:
            self._start()
        return self._port

    def kill(self) -> None:
        """The server dies without a goodbye (SIGKILL). Its disk stays."""
        self._running.kill(signal="SIGKILL")
        self._running.wait(timeout=START_SECONDS)

    def revive(self) -> None:
        """Start it again after `kill`, on the same port and disk."""
        self._running.start()
        self._wait()

    def freeze(self) -> None:
        """It stays connected and answers nothing."""
        self._running.pause()

    def thaw(self) -> None:
        self._running.unpause()

    def run(self, *command: str) -> str:
        """What a command prints in the container."""
        code, output = self._running.exec_run(list(command))
        assert code == 0, output
        return str(output.decode())

    def cramp(self, kilobytes: int) -> None:
        """Leave so much room on the small disk."""
        assert self._small is not None, "this server has no small disk"
        place = self._small[0]
        self.run(
            "sh",
            "-c",
            f"free=$(df -k --output=avail {place} | tail -1); head -c $(( (free - {kilobytes}) * 1024 ))"
            f" /dev/zero > {place}/{_BALLAST}",
        )

    def make_room(self) -> None:
        assert self._small is not None, "this server has no small disk"
        self.run("rm", "-f", f"{self._small[0]}/{_BALLAST}")

    @property
    def _running(self) -> Any:
        assert self._container is not None, "the server was not started"
        return self._container.get_wrapped_container()

    def _start(self) -> None:
        """Start it. Another process may get the port first: then try another one."""
        if reason := missing(self.image):
            raise RuntimeError(f"{self.image} cannot run: {reason}")
        _remove_orphans()
        for attempt in range(ATTEMPTS):
            try:
                self._start_on(free_port())
                return
            except Exception:
                self.stop()
                if attempt == ATTEMPTS - 1:
                    raise

    def _start_on(self, port: int) -> None:
        from testcontainers.core.container import DockerContainer

        self._port = port
        container = DockerContainer(IMAGES[self.image].name)
        for name, value in self._environment.items():
            container = container.with_env(name, value)
        if command := self._command(self._port):
            container = container.with_command(list(command))
        if self._folder is not None:
            container = container.with_volume_mapping(str(self._folder), "/given", "ro")
        if self._small is not None:
            container = container.with_tmpfs_mount(self._small[0], f"size={self._small[1]}m,mode=1777")
        labels = {OWNER: owner()}
        if self._data and quick_folders.servers_run_there():
            self._data_folder = quick_folders.new(otherwise=quick_folders.ON_DISK)
            for number, place in enumerate(self._data):
                (folder := self._data_folder / str(number)).mkdir()
                container = container.with_volume_mapping(str(folder), place, "rw")
            labels[DATA] = str(self._data_folder)
        on_host = self._host_network
        if on_host is None:
            on_host = self._inside is None and shares_network()
        if on_host:
            container = container.with_kwargs(labels=labels, network_mode="host")
        else:
            container = container.with_kwargs(labels=labels).with_bind_ports(
                self._inside or self._port, self._port
            )
        container.start()
        self._container = container
        atexit.register(self.stop)
        self._wait()

    def _has_ended(self) -> bool:
        self._running.reload()
        return self._running.status in ("exited", "dead")

    def stop(self) -> None:
        container, self._container = self._container, None
        if container is not None:
            with contextlib.suppress(Exception):
                container.stop()
        if self._data_folder is not None:
            shutil.rmtree(self._data_folder, ignore_errors=True)

    def _wait(self) -> None:
        self.wait_for(self._ready)

    def wait_for(self, works: Callable[[int], object]) -> None:
        """Ask until `works(port)` does not raise any more."""
        deadline = time.monotonic() + START_SECONDS
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", ResourceWarning
            )  # a client whom a starting server cut off leaves its socket open
            while True:
                try:
                    works(self._port)
                    break
                except Exception:
                    if time.monotonic() > deadline or self._has_ended():
                        raise
                    time.sleep(0.05)  # the only way to learn that a server is up is to ask again
            gc.collect()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def owner() -> str:
    """The label of what this process starts."""
    return f"{socket.gethostname()}:{os.getpid()}"


@cache
def _remove_orphans() -> None:
    """Containers of test processes that were killed before they could remove them."""
    import docker  # type: ignore[import-untyped,unused-ignore]

    with contextlib.closing(docker.from_env(timeout=30)) as client:
        # Another process may remove one of them meanwhile.
        for container in client.containers.list(all=True, filters={"label": OWNER}, ignore_removed=True):
            host, _, pid = container.labels[OWNER].rpartition(":")
            if host == socket.gethostname() and not os.path.exists(f"/proc/{pid}"):
                with contextlib.suppress(Exception):
                    container.remove(force=True, v=True)
                if (data := container.labels.get(DATA)) is not None:
                    shutil.rmtree(data, ignore_errors=True)
