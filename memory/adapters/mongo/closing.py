"""Closing the driver's client without leaving a socket open.

Its monitor of each server is a task that `close` cancels. One that is cancelled just while it connects leaves its socket to the garbage
collector (seen with pymongo 4.20), and because looking for a server gives up exactly when the monitor tries anew, closing after that would
meet it every time.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pymongo
from pymongo.asynchronous.mongo_client import AsyncMongoClient
from pymongo.monitoring import ServerHeartbeatFailedEvent, ServerHeartbeatListener, ServerHeartbeatStartedEvent, ServerHeartbeatSucceededEvent

_PATIENCE = 0.25
"""Seconds to wait for monitors that connect; on a server that is frozen they wait for an answer, and there cancelling does no harm."""
_NO_TIME = 1e-6


class Heartbeats(ServerHeartbeatListener):
    """Which servers are being connected to just now, and which could not be reached when last tried."""

    def __init__(self) -> None:
        self._connecting: set[Any] = set()
        self._lost: set[Any] = set()
        self._quiet = asyncio.Event()

    def started(self, event: ServerHeartbeatStartedEvent) -> None:
        if not event.awaited:  # an awaited one is a connection that listens
            self._connecting.add(event.connection_id)
            self._quiet.clear()

    def succeeded(self, event: ServerHeartbeatSucceededEvent) -> None:
        self._lost.discard(event.connection_id)
        self._over(event.connection_id)

    def failed(self, event: ServerHeartbeatFailedEvent) -> None:
        self._lost.add(event.connection_id)
        self._over(event.connection_id)

    def _over(self, server: Any) -> None:
        self._connecting.discard(server)
        if not self._connecting:
            self._quiet.set()

    async def close(self, client: AsyncMongoClient[Any]) -> None:
        """Close the client. With a server gone it says no goodbye: it would look for one to say it to, until that timed out."""
        if self._connecting:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._quiet.wait(), _PATIENCE)
        with pymongo.timeout(_NO_TIME) if self._lost else contextlib.nullcontext():
            await client.close()
