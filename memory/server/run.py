"""Run the application under uvicorn until a signal stops it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

from memory.domain.errors import ConfigError
from memory.server.connections import protocol_with
from memory.server.settings import ServerSettings


class _Server(uvicorn.Server):
    """A server that says when it listens, and leaves the process its signals."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        quiet = logging.getLogger("uvicorn.error")
        quiet.disabled = True  # the error says it
        try:
            await super().startup(sockets)
        except SystemExit as stopped:
            raise _explain_bind_error(self.config, stopped.__context__) from None
        finally:
            quiet.disabled = False
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            scheme = "https" if self.config.is_ssl else "http"
            self._ready(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}")


def _explain_bind_error(config: uvicorn.Config, cause: BaseException | None) -> ConfigError:
    reason = os.strerror(cause.errno) if isinstance(cause, OSError) and cause.errno else "uvicorn refused"
    if isinstance(cause, socket.gaierror):
        reason = "there is no such host"
    place = f"{config.host}:{config.port}"
    return ConfigError(f"memory serve: cannot listen on {place}: {reason}. Choose another --host or --port")


async def serve(app: FastAPI, settings: ServerSettings, ready: Callable[[str], None], **options: Any) -> None:
    """Serve an application until SIGTERM or SIGINT, then let running requests end.

    Args:
        app: The application.
        settings: Address, and how long a stop waits.
        ready: Called with the address, such as `http://127.0.0.1:8080`, once the server
            listens.
        **options: Further options of uvicorn, such as `ssl_certfile`.

    Raises:
        ConfigError: The address cannot be used.
    """
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        root_path=settings.root_path,
        http=protocol_with(settings.header_time.total_seconds()),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=max(1, round(settings.grace.total_seconds())),
        **options,
    )
    app.openapi()  # builds every route too, which the first requests would wait for
    server, loop = _Server(config, ready), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.handle_exit, number, None)
    try:
        await server.serve()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
