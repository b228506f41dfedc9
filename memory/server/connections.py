"""Connections: limited time for headers, and an answer also for who is still sending.

An answer may come before the body of its request, such as 401 or 413. A socket that
is closed while data arrives is reset, and the client might lose the answer. So the
server ends its own side only, and discards the rest of the body for a while.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from http import HTTPStatus
from typing import Any, ClassVar, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from memory.server.problems import render

_DROP = struct.pack("ii", 1, 0)
"""The socket option by which the kernel drops what it has not sent yet."""


class _LingeringTransport:
    """A transport that is closed after the client could read the answer."""

    def __init__(self, transport: asyncio.Transport, protocol: PatientProtocol) -> None:
        self._transport = transport
        self._protocol = protocol

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        if self._protocol.is_receiving():
            self._protocol.linger()
        elif not self._protocol.is_lingering:
            self._transport.close()

    def is_closing(self) -> bool:
        return self._protocol.is_lingering or self._transport.is_closing()


class PatientProtocol(H11Protocol):
    """HTTP/1.1 with limits for headers, and for what follows a refusal."""

    header_time: ClassVar[float] = 10.0
    idle_linger, longest_linger = 5.0, 30.0
    """Seconds without data, and in all, after which a refused client is cut off."""
    most_discarded = 1 << 30
    """Bytes of a refused body after which its client is cut off."""
    is_lingering = False
    """Whether the answer was sent, and what still comes is discarded."""
    _timer: asyncio.TimerHandle | None = None
    _end_of_linger: asyncio.TimerHandle | None = None
    _began = False
    _discarded = 0
    _ends_at_stop = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._socket = transport
        super().connection_made(cast("asyncio.Transport", _LingeringTransport(transport, self)))
        self._await_header()

    def data_received(self, data: bytes) -> None:
        if self.is_lingering:
            self._discard(data)
            return
        before = self.cycle
        self._began = True
        if self._timer is None and (before is None or before.response_complete):
            self._await_header()
        super().data_received(data)
        if self.cycle is not before:
            self._stop_timer()

    def handle_events(self) -> None:
        """Let the application end a request; see `cut_off` and `end_at_stop`."""
        super().handle_events()
        if self.cycle is not None and "cut_off" not in self.cycle.scope:
            self._ends_at_stop = False
            ways = {"cut_off": self.cut_off, "end_at_stop": self.end_at_stop}
            self.cycle.scope.update(ways)  # type: ignore[typeddict-item]

    def cut_off(self) -> None:
        """End the connection at once. Data that the client has not got is dropped."""
        if (connection := self.transport.get_extra_info("socket")) is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DROP)
        self._socket.abort()

    def end_at_stop(self) -> None:
        """Let a stop of the server not wait for this answer, because it has no end."""
        self._ends_at_stop = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._end_of_linger is not None:
            self._end_of_linger.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close at a stop of the server, at once if there is nothing to wait for."""
        super().shutdown()
        if self.is_lingering or self._ends_at_stop:
            self._socket.close()

    def send_400_response(self, msg: str) -> None:
        self._answer(HTTPStatus.BAD_REQUEST, "invalid_input", "this is not valid HTTP")

    def is_receiving(self) -> bool:
        """Return whether the client may still be sending a body that nobody reads."""
        return not self.is_lingering and self.conn.their_state is h11.SEND_BODY

    def linger(self) -> None:
        """End this side of the connection, and discard what the client still sends."""
        self.is_lingering = True
        self._stop_timer()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self._socket.can_write_eof():
            self._socket.write_eof()
        self.flow.resume_reading()
        self._timer = self.loop.call_later(self.idle_linger, self._socket.abort)
        self._end_of_linger = self.loop.call_later(self.longest_linger, self._socket.abort)

    def _discard(self, data: bytes) -> None:
        self._stop_timer()
        self._discarded += len(data)
        if self._discarded > self.most_discarded:
            self._socket.abort()
        else:
            self._timer = self.loop.call_later(self.idle_linger, self._socket.abort)

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
            self._answer(HTTPStatus.REQUEST_TIMEOUT, "too_slow", text)
        else:
            self.transport.close()

    def _answer(self, status: HTTPStatus, code: str, text: str) -> None:
        """Answer a request in place of the application, and close."""
        if self.transport.is_closing():
            return
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self._socket.abort()  # the client is reading another answer
            return
        response = render(status, code, text)
        headers = [*response.raw_headers, (b"connection", b"close")]
        lines = [b"HTTP/1.1 %d %s" % (status, status.phrase.encode()), *map(b": ".join, headers)]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(response.body)]))
        self.linger()


def protocol_with(header_time: float) -> type[PatientProtocol]:
    """Return the protocol with this limit in seconds."""
    return type("_Protocol", (PatientProtocol,), {"header_time": header_time})
