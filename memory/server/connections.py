"""Connections: a client has a limited time for the header of a request."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from memory.server.problems import MEDIA_TYPE

_DROP = struct.pack("ii", 1, 0)
"""The socket option by which the kernel drops what it has not sent yet."""


class PatientProtocol(H11Protocol):
    """HTTP/1.1 that ends a connection whose header does not come in time."""

    header_time: ClassVar[float] = 10.0
    _timer: asyncio.TimerHandle | None = None
    _began = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_header()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        self._began = True
        if self._timer is None and (before is None or before.response_complete):
            self._await_header()
        super().data_received(data)
        if self.cycle is not before:
            self._stop_timer()

    def handle_events(self) -> None:
        """Let the application cut a request off; see `cut_off`."""
        super().handle_events()
        if self.cycle is not None:
            self.cycle.scope["cut_off"] = self.cut_off  # type: ignore[typeddict-unknown-key]

    def cut_off(self) -> None:
        """End the connection at once. Data that the client has not got is dropped."""
        if (connection := self.transport.get_extra_info("socket")) is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DROP)
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._answer(400, "Bad Request", "invalid_input", "this is not valid HTTP")

    def _await_header(self) -> None:
        self._timer = self.loop.call_later(self.header_time, self._give_up)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self._began:
            text = f"the header did not come within {self.header_time:g} s"
            self._answer(408, "Request Timeout", "too_slow", text)
        else:
            self.transport.close()

    def _answer(self, status: int, title: str, code: str, text: str) -> None:
        """Answer a request that never reaches the application, and close."""
        if self.transport.is_closing():
            return
        document: dict[str, Any] = {"type": "about:blank", "title": title, "status": status}
        document |= {"detail": text, "error": text, "code": code, "errors": []}
        body = json.dumps(document).encode()
        head = (
            f"HTTP/1.1 {status} {title}\r\ncontent-type: {MEDIA_TYPE}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


def protocol_with(header_time: float) -> type[PatientProtocol]:
    """Return the protocol with this limit in seconds."""
    return type("_Protocol", (PatientProtocol,), {"header_time": header_time})
