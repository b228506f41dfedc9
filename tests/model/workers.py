"""Who calls: a memory of this process, or one of another process on the same stores."""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from memory import Memory
from memory.facade.runtime.access import engine_of
from tests.model.clock import ModelClock
from tests.model.rules import Seen
from tests.model.said import Failure
from tests.model.sessions.calls import Handles, as_told, noted
from tests.model.words import embed

LENGTH = 8


class Worker(Protocol):
    """One memory, for every tenant. A call's answer is its value or its failure, and
    what it yields is one list.
    """

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def reopen(self) -> None: ...
    async def call(self, tenant: str, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any: ...
    async def dies(self, name: str, turns: int) -> None:
        """Begin a call, and end in the middle of it, after some turns of the loop or as
        many half milliseconds; then begin anew.
        """


class Here:
    """A memory of this process."""

    def __init__(self, config: dict[str, Any], clock: ModelClock) -> None:
        self._config = config
        self._clock = clock
        self.memory = self._new()

    def _new(self) -> Memory:
        self._handles = Handles(self._clock)
        return Memory(
            self._config,
            tenant="acme",
            embedder=embed,
            clock=self._clock,
            on_window_exit=noted,
            policies=[Seen()],
        )

    async def open(self) -> None:
        await self.memory.open()

    async def close(self) -> None:
        await self.memory.close()

    async def reopen(self) -> None:
        await self.memory.close()
        self.memory = self._new()
        await self.memory.open()

    async def call(self, tenant: str, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        memory = self.memory if tenant == self.memory.tenant else self.memory.for_tenant(tenant)
        try:
            answer = self._handles.method(memory, name, args)(**kwargs)
            found = [one async for one in answer] if hasattr(answer, "__aiter__") else as_told(await answer)
            await (
                engine_of(memory).conversations.window_exit.drain()
            )  # a sweep does not wait for what the callback is asked; who judges it does
            return found
        except Exception as error:  # noqa: BLE001 - the judge says which may be
            return Failure(type(error).__name__, str(error), getattr(error, "written", None))

    async def dies(self, name: str, turns: int) -> None:
        begun = asyncio.create_task(self.call("acme", name, (), {}))
        for _ in range(turns):
            await asyncio.sleep(0)
        begun.cancel()
        await asyncio.wait([begun])


class Elsewhere:
    """A memory of another process. It is told the time with every call, and tells it
    back.
    """

    def __init__(self, config: dict[str, Any], clock: ModelClock) -> None:
        self._config = config
        self._clock = clock
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.model.workers", stdin=pipe, stdout=pipe
        )
        await self._exchange(self._config)

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            await process.wait()

    async def reopen(self) -> None:
        await self.close()
        await self.open()

    async def call(self, tenant: str, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        async with self._turn:
            now, answer = await self._exchange(
                (self._clock.now, self._clock.ticking, tenant, name, args, kwargs)
            )
            self._clock.now = max(self._clock.now, now)
            return answer

    async def dies(self, name: str, turns: int) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(_framed((self._clock.now, self._clock.ticking, "acme", name, (), {})))
        await asyncio.sleep(turns / 2_000)
        self._process.kill()
        await self._process.wait()
        await self.open()

    async def _exchange(self, message: Any) -> Any:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(_framed(message))
        await self._process.stdin.drain()
        size = int.from_bytes(await self._process.stdout.readexactly(LENGTH))
        return pickle.loads(await self._process.stdout.readexactly(size))  # noqa: S301 - from our own process


def _framed(message: Any) -> bytes:
    sent = pickle.dumps(message)
    return len(sent).to_bytes(LENGTH) + sent


async def _serve() -> None:
    """The other process: one call after the other, until nothing more is asked."""
    clock = ModelClock()
    worker = Here(_received(), clock)
    await worker.open()
    _send(None)
    try:
        while True:
            clock.now, clock.ticking, tenant, name, args, kwargs = await asyncio.to_thread(_received)
            answer = await worker.call(tenant, name, args, kwargs)
            _send((clock.now, answer))
    except EOFError:
        await worker.close()


def _received() -> Any:
    size = sys.stdin.buffer.read(LENGTH)
    if not size:
        raise EOFError
    return pickle.loads(sys.stdin.buffer.read(int.from_bytes(size)))  # noqa: S301 - from our own process


def _send(message: Any) -> None:
    try:
        sent = pickle.dumps((message[0], message[1]) if message else None)
    except Exception as error:  # noqa: BLE001 - whatever cannot be sent is an answer too
        sent = pickle.dumps((message[0], Failure("Unsendable", repr(error))))
    sys.stdout.buffer.write(len(sent).to_bytes(LENGTH) + sent)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(_serve())
