"""Serve MCP over standard input and output."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from pydantic import ValidationError

from memory.mcp.callers import Caller, restrict_to_settings
from memory.mcp.server import ENDLESS, MemoryServer, create_server
from memory.mcp.settings import McpSettings

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp.shared._stream_protocols import WriteStream

    from memory.facade.memory import Memory

log = logging.getLogger(__name__)

_PAUSE = 0.1
"""The seconds between the first answer and the opening of the memory."""
LONGEST_WAIT = 60.0
"""The seconds for which calls may run on after standard input has ended."""


class LateMemory:
    """A memory that is loaded and opened after the first request is answered.

    The first call that needs it waits for it. A failed open raises its error there, and
    the next call tries again.
    """

    def __init__(self, make: Callable[[], Memory], settings: McpSettings) -> None:
        self._make = make
        self._settings = settings
        self._memory: Memory | None = None
        self._opening: asyncio.Task[Caller] | None = None

    async def caller(self, _: Any) -> Caller:
        """Return the caller of the settings, once the memory is open."""
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> Caller:
        if self._memory is None:
            self._memory = await asyncio.to_thread(self._make)
        await self._memory.open()
        return restrict_to_settings(self._memory, self._settings)

    async def open_after_answer(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Answer a request, then open the memory. A middleware of the SDK."""
        try:
            return await call_next(ctx)
        finally:
            if self._opening is None:
                self._opening = asyncio.create_task(self._open_soon())

    async def _open_soon(self) -> Caller:
        await asyncio.sleep(_PAUSE)
        try:
            return await self._open()
        except Exception as error:
            log.warning("the memory could not be opened; the next call tries again: %s", error)
            raise

    async def close(self) -> None:
        """Close the memory if it was opened."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._memory is not None:
            await self._memory.close()


async def serve_stdio(make: Callable[[], Memory], settings: McpSettings) -> None:
    """Serve until standard input ends, or until SIGTERM or SIGINT.

    Calls that run when standard input ends are answered first; see `LONGEST_WAIT`.

    Args:
        make: Makes the memory. It is called in a thread, behind the first answer.
        settings: The settings of the server.

    Raises:
        ConfigError: The settings name an unknown tool or profile.
        BrokenPipeError: The client has closed standard output.
    """
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(message)s")
    memory = LateMemory(make, settings)
    server = create_server(None, settings, callers=memory.caller)
    server.middleware.append(memory.open_after_answer)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    serving = asyncio.create_task(_run(server))
    stopping = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        await memory.close()
    if not serving.done():  # a thread still waits for a line, and would hold the process
        sys.stderr.flush()
        os._exit(0)
    failed = serving.exception()
    if isinstance(failed, BaseExceptionGroup) and failed.split(BrokenPipeError)[1] is None:
        raise BrokenPipeError  # the client went away before it read an answer
    await serving


async def _run(server: MemoryServer) -> None:
    """Serve until standard input ends, and answer what came before that.

    The SDK drops requests that are no JSON, and their clients would wait for ever.
    JavaScript sends one for a text that was cut within an emoji: it has half a
    surrogate pair. The SDK also cancels calls that run while the input ends.
    """
    async with stdio_server() as (lines, written), anyio.create_task_group() as tasks:
        readable, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        answers = PendingAnswers(written)

        async def relay() -> None:
            async with readable:
                async for line in lines:
                    if isinstance(line, Exception) and (refusal := refuse_line(line)) is not None:
                        await answers.send(SessionMessage(refusal))
                        continue
                    if isinstance(line, SessionMessage):
                        answers.note(line)
                    await readable.send(line)
                await answers.wait(LONGEST_WAIT)

        tasks.start_soon(relay)
        await server.run_streams(messages, answers)
        tasks.cancel_scope.cancel()


class PendingAnswers:
    """The stream of answers. It tracks the requests without an answer."""

    def __init__(self, written: WriteStream[SessionMessage]) -> None:
        self._written = written
        self._waiting: set[RequestId] = set()
        self._changed = anyio.Event()

    def note(self, line: SessionMessage) -> None:
        """Note a request that will be answered, or one that its client cancelled."""
        match line.message:
            case JSONRPCRequest(id=number, method=method) if method not in ENDLESS:
                self._waiting.add(number)
            case JSONRPCNotification(method="notifications/cancelled", params={"requestId": number}):
                self._settle(number)

    def _settle(self, number: object) -> None:
        self._waiting = {one for one in self._waiting if one != number}
        self._changed.set()
        self._changed = anyio.Event()

    async def wait(self, seconds: float) -> None:
        """Wait until every request is answered, but not longer than this."""
        with anyio.move_on_after(seconds):
            while self._waiting:
                await self._changed.wait()

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message."""
        await self._written.send(item)
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self._settle(item.message.id)

    async def aclose(self) -> None:
        """Close the stream."""
        await self._written.aclose()

    async def __aenter__(self) -> Self:
        await self._written.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._written.__aexit__(kind, error, trace)


def refuse_line(error: Exception) -> JSONRPCError | None:
    """Return the answer to a line that is no request; None if it has no id."""
    if not isinstance(error, ValidationError):
        return None
    wrong = error.errors(include_url=False)
    first = wrong[0]
    if first["type"] != "json_invalid":
        return _refuse_request(wrong)
    problem = first["msg"]
    if "escape" in problem or "surrogate" in problem:
        problem += ". Send whole characters: half of a surrogate pair is no character"
    try:
        number = json.loads(first["input"], parse_int=lambda digits: int(digits[:40]))["id"]
        answer = JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=PARSE_ERROR, message=problem))
        answer.model_dump_json()  # fails for an id that cannot be written
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return answer if answer.id is not None else None


def _refuse_request(wrong: Sequence[Mapping[str, Any]]) -> JSONRPCError | None:
    """Return the answer to JSON that is no request of JSON-RPC; None without an id."""
    lines = (one["input"] for one in wrong if one["type"] == "missing")  # no request has all fields
    line = next((one for one in lines if isinstance(one, dict) and "method" in one), {})
    told = next((one for one in wrong if one["loc"][0] == JSONRPCRequest.__name__), None)
    if told is None or type(line.get("id")) not in (int, str):
        return None
    place = ".".join(map(str, told["loc"][1:]))
    problem = ErrorData(code=INVALID_REQUEST, message=f"{place}: {told['msg']}")
    return JSONRPCError(jsonrpc="2.0", id=line["id"], error=problem)
