"""The command `memory serve`, which runs the HTTP API."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from memory.cli.command import Cli, add_commands, log_tracebacks

EXTRA = ("fastapi", "uvicorn", "jwt", "prometheus_client")
"""Packages of the extra `server`."""


def register(app: typer.Typer) -> None:
    add_commands(app, {"serve": serve})


async def serve(
    cli: Cli,
    dev: Annotated[
        bool, typer.Option("--dev", help="Serve without keys, on this machine only, for development.")
    ] = False,
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="The address.", show_default="127.0.0.1"),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65_535, metavar="N", help="The port; 0 takes a free one.", show_default="8080"
        ),
    ] = None,
    grace: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long a stop waits for running requests.", show_default="20s"),
    ] = None,
    tls_cert: Annotated[
        str | None, typer.Option(metavar="FILE", help="The certificate for HTTPS, with its chain.")
    ] = None,
    tls_key: Annotated[str | None, typer.Option(metavar="FILE", help="The key of the certificate.")] = None,
    behind_proxy: Annotated[
        bool | None,
        typer.Option("--behind-proxy", help="A proxy in front terminates TLS: any address is allowed."),
    ] = None,
    access_log: Annotated[
        bool | None,
        typer.Option(
            "--access-log/--no-access-log",
            help="Write a line for each request to standard error: no query, body or key.",
            show_default="--no-access-log",
        ),
    ] = None,
) -> None:
    """Serve the memory over HTTP until stopped.

    Without --dev, callers need a key (`memory keys create`) or a token of your identity
    provider (`server.jwt` in the configuration).
    An address that other machines reach needs TLS or --behind-proxy.

    The API is under /v1, and its description at /openapi.json. One line with the
    address is printed once the server listens. SIGTERM or Ctrl-C stops it: running
    requests may end, for as long as --grace says.
    """
    require_extra()
    from memory.domain.errors import ConfigError
    from memory.domain.scope import Scope
    from memory.server.app import create_app
    from memory.server.callers import DevAuthenticator
    from memory.server.identity import check_tenant
    from memory.server.identity.start import check_exposure, create_keyed_app, tls_options
    from memory.server.run import serve as run
    from memory.server.settings import with_options

    log_tracebacks()
    memory = cli.build_memory()
    cli.announce_new(memory.config)
    settings = with_options(
        memory.config.server,
        host=host,
        port=port,
        grace=grace,
        tls_cert=tls_cert,
        tls_key=tls_key,
        behind_proxy=behind_proxy,
        access_log=access_log,
    )
    if settings.models:
        raise ConfigError(
            f"server.models names {', '.join(settings.models)}, which mean the advisor of the memory, and the"
            " command has none: an advisor is a function of a program. Remove the setting, or serve from a"
            " program that passes advisor= to Memory (docs/guide/server.md shows one)"
        )
    check_exposure(settings, dev=dev)
    check_tenant(memory.tenant)
    scope = None if settings.default_scope is None else Scope.parse(settings.default_scope)
    async with memory:
        if dev:
            app = create_app(memory, settings, DevAuthenticator(memory, scope), local_only=True)
        else:
            app = await create_keyed_app(memory, settings, scope)

        def tell(address: str) -> None:
            sys.stdout.write(f"serving {address}\n")
            sys.stdout.flush()

        try:
            with _access_log(shown=settings.access_log):
                await run(app, settings, tell, **tls_options(settings))
        finally:
            await app.state.audit.close()


@contextmanager
def _access_log(*, shown: bool) -> Iterator[None]:
    """Write the log of requests to standard error, if it is to be shown."""
    log, handler = logging.getLogger("memory.server.access"), logging.StreamHandler()
    if not shown:
        yield
        return
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def _missing_packages() -> list[str]:
    return [name for name in EXTRA if importlib.util.find_spec(name) is None]


def has_extra() -> bool:
    """Return whether the packages of the extra are installed."""
    return not _missing_packages()


def require_extra() -> None:
    """Raise `ConfigError` unless the packages of the extra are installed."""
    from memory.domain.errors import ConfigError

    if missing := _missing_packages():
        raise ConfigError(
            f"memory serve needs {', '.join(missing)}, which the extra brings:"
            " pip install 'memory-tiers[server]'"
        )
