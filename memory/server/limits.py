"""Limits of requests: bodies, rates, requests at once, and clients that went away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import Message, Receive

from memory.server.problems import Problem
from memory.server.settings import ServerSettings

MOST_KEYS = 10_000
"""Keys whose rates are remembered. A key that is forgotten starts afresh."""


@dataclass(slots=True)
class _Bucket:
    """How many more requests a key may make now."""

    left: float
    at: float
    running: int = 0


class KeyLimits:
    """The rate and the number of requests at once, by key."""

    def __init__(self, settings: ServerSettings) -> None:
        self._rate, self._burst = settings.rate, float(settings.burst)
        self._concurrency = settings.concurrency
        self._buckets: dict[str, _Bucket] = {}

    @contextmanager
    def admit(self, key_id: str) -> Iterator[None]:
        """Count a request while it runs.

        Raises:
            Problem: 429: the key makes too many.
        """
        bucket, now = self._bucket(key_id), time.monotonic()
        bucket.left = min(self._burst, bucket.left + (now - bucket.at) * self._rate)
        bucket.at = now
        if bucket.running >= self._concurrency:
            raise _too_many(f"this key may run {self._concurrency} requests at once", 1)
        if bucket.left < 1:
            wait = (1 - bucket.left) / self._rate
            raise _too_many(f"this key may make {self._rate:g} requests a second", wait)
        bucket.left -= 1
        bucket.running += 1
        try:
            yield
        finally:
            bucket.running -= 1

    def _bucket(self, key_id: str) -> _Bucket:
        if (found := self._buckets.get(key_id)) is None:
            if len(self._buckets) >= MOST_KEYS:
                idle = [name for name, one in self._buckets.items() if not one.running]
                for name in idle[: MOST_KEYS // 2]:
                    del self._buckets[name]
            found = self._buckets[key_id] = _Bucket(self._burst, time.monotonic())
        return found


class AdviceBudget:
    """How many searches of a key may ask an advisor in a minute."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._asked: dict[str, list[float]] = {}

    def spend(self, key_id: str) -> None:
        """Count one search.

        Raises:
            Problem: 429: the budget of the key is spent.
        """
        now = time.monotonic()
        asked = [at for at in self._asked.get(key_id, ()) if at > now - 60]
        if len(asked) >= self._most:
            raise _too_many(f"this key may ask an advisor {self._most} times a minute", 60 - (now - asked[0]))
        if len(self._asked) >= MOST_KEYS:
            self._asked.clear()
        self._asked[key_id] = [*asked, now]


def _too_many(what: str, wait: float) -> Problem:
    seconds = max(1, round(wait + 0.5))
    return Problem(
        429,
        "too_many_requests",
        f"{what}. Repeat the request in {seconds} s",
        headers={"Retry-After": str(seconds)},
    )


class BodyReader:
    """Reads the body of a request within the limits, and notices a client that leaves.

    Routes that read streams lift the limit of bytes: set `limit` to None.
    """

    def __init__(self, receive: Receive, headers: Headers, settings: ServerSettings) -> None:
        self._receive = receive
        length = headers.get("content-length", "")
        self._length = int(length) if length.isdecimal() else 0
        self.limit: int | None = settings.body_bytes
        self.is_empty = not self._length and "transfer-encoding" not in headers
        self.is_read = self.is_empty
        self._patience = settings.header_time.total_seconds()
        self._bytes = 0
        self._first: Message | None = None
        self._gone = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self._handler: asyncio.Task[object] | None = None
        self._cancelled = False

    async def watch(self) -> None:
        """Cancel the task that calls this if the client leaves before the response."""
        self._handler = asyncio.current_task()
        if self.is_empty:
            first = await self._receive()
            while first["type"] == "http.request" and first.get("more_body"):
                first = await self._receive()
            self._first = first
            self._begin_watch()

    async def receive(self) -> Message:
        """Return the next part of the request, as a server's own `receive`.

        Raises:
            Problem: 413 for too large a body, and 408 for a client that is too slow.
        """
        if self._first is not None:
            first, self._first = self._first, None
            return {**first, "more_body": False}  # some servers say that more may follow
        if self.is_read:
            if self._watcher is None and self._handler is None:
                return await self._receive()
            await self._gone.wait()
            return {"type": "http.disconnect"}
        self._check(self._length)
        try:
            async with asyncio.timeout(self._patience):
                message = await self._receive()
        except TimeoutError:
            raise Problem(
                408, "too_slow", f"no further part of the body came within {self._patience:g} s"
            ) from None
        if message["type"] == "http.request":
            self._bytes += len(message.get("body", b""))
            self._check(self._bytes)
            if not message.get("more_body", False):
                self.is_read = True
                self._begin_watch()
        else:
            self._end_call()
            await asyncio.sleep(0)  # a call that reads its own body ends here
        return message

    def has_cancelled(self) -> bool:
        """Return whether the client left and the call was cancelled for that."""
        if self._cancelled and self._handler is not None:
            self._handler.uncancel()
        return self._cancelled

    def close(self) -> None:
        """Stop watching, because the response is complete."""
        self._handler = None
        if self._watcher is not None:
            self._watcher.cancel()

    def _check(self, size: int) -> None:
        if self.limit is not None and size > self.limit:
            raise Problem(413, "too_large", f"the body is larger than {self.limit:,} bytes")

    def _begin_watch(self) -> None:
        if self._handler is not None:
            self._watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._end_call()

    def _end_call(self) -> None:
        """Cancel the call of a client that left."""
        self._gone.set()
        if self._handler is not None:
            self._cancelled = True
            self._handler.cancel()
