"""An event loop in a thread of its own, which runs calls of any thread and any loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from memory.domain.errors import NotOpen, WrongEventLoop
from memory.orchestrator.conversations.window.reads import WindowReads, reads_of_caller, with_reads
from memory.ports.fork_guard import ForkGuard

log = logging.getLogger(__name__)

PATIENCE = 3.0
"""Seconds that a stop waits for calls under way, and again for those it cancels."""

Deliver = Callable[[Any, BaseException | None], None]
"""Hands the result or the error of a call to its caller. It runs on the private loop.
"""


class LoopThread:
    """An event loop in a daemon thread, started at the first call.

    Calls run in a copy of their caller's context, and with the caller's reads of
    windows. In a forked child of the process, calls raise `ForkedProcess`.

    Args:
        name: The name of the thread.
        is_needed: Whether the loop must go on once no call is under way. By default it
            goes on until `stop`.
    """

    def __init__(self, name: str, is_needed: Callable[[], bool] | None = None) -> None:
        self._name = name
        self._is_needed = is_needed
        self._life: _Life | None = None
        self._latest: _Life | None = None
        """The life of the thread, even when it is over."""
        self._lock = threading.RLock()
        self._forks = ForkGuard(self)

    @property
    def is_inherited(self) -> bool:
        """Whether this process inherited the running loop through `fork`."""
        return self._forks.is_inherited

    async def call(self, work: Any) -> Any:
        """Run an awaitable on the private loop, and return its result to this loop.

        A cancellation of the caller cancels the call, and reaches the caller once the
        call has ended.
        """
        try:
            self._forks.check()
            answer = _Answer(loop=asyncio.get_running_loop())
        except BaseException:
            work.close()
            raise
        answer.cancel_call = self._submit(work, answer.deliver)
        try:
            return await answer
        except GeneratorExit:  # the caller's loop has ended
            answer.cancel_call()
            raise
        finally:
            del answer  # an error's traceback holds this frame

    def run(self, work: Any) -> Any:
        """Run an awaitable on the private loop, and wait for it in this thread.

        A KeyboardInterrupt cancels the call.
        """
        answer: concurrent.futures.Future[Any] = concurrent.futures.Future()
        cancel = self._submit(work, partial(_settle, answer))
        try:
            return answer.result()
        except BaseException:
            cancel()
            raise
        finally:
            del answer

    async def close(self, work: Any) -> Any:
        """Run what closes a memory, once the other calls have ended.

        They get `PATIENCE` seconds. Then they are cancelled, and raise `NotOpen`.
        """
        return await self.call(self._close(work))

    def close_and_wait(self, work: Any) -> Any:
        """Run what closes a memory, as `close` does, from code that is not async."""
        return self.run(self._close(work))

    def finish(self, work: Any) -> None:
        """Run what ends an iteration.

        The garbage collector may call this on the private loop, where nothing may wait,
        or in a forked child, which has no such loop.
        """
        if self.is_inherited:
            work.close()
        elif self._life is not None and threading.current_thread() is self._life.thread:
            self._submit(work, lambda _value, _error: None, waits=False)
        else:
            self.run(work)

    async def stop(self) -> None:
        """End the calls under way, and the thread. The next call starts another.

        If the loop is needed again, such as by a memory that was opened meanwhile,
        nothing ends.
        """
        self._forks.check()
        if (life := self._life) is not None:
            await self.call(self._end_calls(life))
        if self._latest is not None and self._latest.is_ending:
            await asyncio.to_thread(self._latest.thread.join)

    def stop_and_wait(self) -> None:
        """Stop as `stop` does, from code that is not async."""
        self._forks.check()
        if (life := self._life) is not None:
            self.run(self._end_calls(life))
        if self._latest is not None and self._latest.is_ending:
            self._latest.thread.join()

    # -- calls -------------------------------------------------------------------------

    def _submit(self, work: Any, deliver: Deliver, *, waits: bool = True) -> Callable[[], None]:
        """Begin a call, and return the function that cancels it.

        A caller that waits must not be on the private loop.
        """
        try:
            self._forks.check()
            reads = reads_of_caller()
            with self._lock:
                life = self._life or self._start()
                if waits and threading.current_thread() is life.thread:
                    raise WrongEventLoop(in_callback=True)
                call = _Call(work, deliver)
                life.loop.call_soon_threadsafe(self._begin, life, call, reads)
                life.under_way += 1
        except BaseException:
            work.close()
            raise
        return partial(_cancel, life, call)

    def _start(self) -> _Life:
        self._forks.acquire()
        life = self._life = self._latest = _Life(self._name)
        life.thread.start()
        return life

    def _begin(self, life: _Life, call: _Call, reads: WindowReads) -> None:
        call.task = life.loop.create_task(with_reads(reads, _wait_for, call.work))
        call.task.add_done_callback(partial(self._finish, life, call))
        life.calls.add(call)

    def _finish(self, life: _Life, call: _Call, task: asyncio.Task[Any]) -> None:
        call.work.close()  # of a call that was cancelled before its first step
        try:
            value, error = task.result(), None
        except BaseException as raised:  # noqa: BLE001 - the caller gets it, whatever it is
            value, error = None, raised
        if call in life.calls:
            if call.is_evicted and isinstance(error, asyncio.CancelledError):
                error = NotOpen("this memory", closed_meanwhile=True)
            self._deliver(life, call, value, error)

    def _deliver(self, life: _Life, call: _Call, value: Any, error: BaseException | None) -> None:
        life.calls.discard(call)
        with self._lock:
            life.under_way -= 1
            over = life.is_stopping or (self._is_needed is not None and not self._is_needed())
            if over and not life.under_way:
                life.is_over, self._life = True, None
                self._forks.release()
                life.loop.stop()
        call.deliver(value, error)

    async def _close(self, work: Any) -> Any:
        life = self._life
        try:
            if life is not None:
                with life.not_waited_for():
                    await life.wait_for_calls()
                    await life.evict_calls()
                    return await work
            return await work
        finally:
            work.close()

    async def _end_calls(self, life: _Life) -> None:
        """Wait for the other calls, and cancel those that take too long."""
        with life.not_waited_for():
            await life.wait_for_calls()
            if self._is_needed is None or not self._is_needed():
                await life.evict_calls()
                for call in life.other_calls():
                    log.warning("a call did not end within %s seconds after the memory was closed", PATIENCE)
                    self._deliver(life, call, None, NotOpen("this memory", closed_meanwhile=True))
                life.is_stopping = self._is_needed is None


class _Call:
    """One call on the private loop."""

    __slots__ = ("deliver", "is_evicted", "task", "work")
    task: asyncio.Task[Any]

    def __init__(self, work: Any, deliver: Deliver) -> None:
        self.work = work
        self.deliver = deliver
        self.is_evicted = False


class _Life:
    """The thread and its loop, from a first call until the loop is no longer needed."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.under_way = 0
        """Calls that have no result yet; also those that the loop has not begun."""
        self.calls = set[_Call]()
        """The calls that the loop has begun."""
        self.ending = set[_Call]()
        """Calls of `stop` and `close`. They do not wait for each other."""
        self.is_stopping = False
        self.is_over = False

    def other_calls(self) -> set[_Call]:
        """Return the calls under way, without those of `stop`."""
        return self.calls - self.ending

    @contextmanager
    def not_waited_for(self) -> Iterator[None]:
        """Let nobody wait for the running call, which ends others."""
        ending = {call for call in self.calls if call.task is asyncio.current_task()}
        self.ending |= ending
        try:
            yield
        finally:
            self.ending -= ending

    async def evict_calls(self) -> None:
        """Cancel the other calls, and wait for their ends."""
        for call in self.other_calls():
            call.is_evicted = True
            call.task.cancel()
        await self.wait_for_calls()

    async def wait_for_calls(self) -> None:
        """Wait until no other call is under way, at most `PATIENCE`."""
        until = self.loop.time() + PATIENCE
        while (calls := self.other_calls()) and (left := until - self.loop.time()) > 0:
            await asyncio.wait([call.task for call in calls], timeout=left)
            await asyncio.sleep(0)  # their results are delivered

    @property
    def is_ending(self) -> bool:
        """Whether the loop is no longer needed, and the thread has not ended yet."""
        return self.is_over and self.thread.is_alive()

    def _run(self) -> None:
        while not self.is_over:
            try:
                self.loop.run_forever()
            except BaseException:  # SystemExit of a callback: its caller gets it
                log.info("a callback ended with SystemExit; the event loop goes on", exc_info=True)
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=PATIENCE))
        # Iterators that are half-way stay: closed, they would look as if complete.
        self.loop.close()


class _Answer(asyncio.Future[Any]):
    """The result of a call on the private loop, for a caller on another loop.

    Cancelling it cancels the call. It is done once the call has ended. Then the caller
    is cancelled even if the call was complete already, so no cancellation is lost.
    """

    cancel_call: Callable[[], None]
    _is_cancel_requested = False
    _message: Any | None = None
    """The message of the cancellation. By it anyio recognises those of its scopes."""

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the call."""
        if self.done():
            return False
        self._is_cancel_requested = True
        self._message = msg
        self.cancel_call()
        return True

    def deliver(self, value: Any, error: BaseException | None) -> None:
        """Set the result or the error, on the caller's loop."""
        try:
            self.get_loop().call_soon_threadsafe(self._settle, value, error)
        except RuntimeError:
            log.debug("the event loop of a caller was closed before its call ended")

    def _settle(self, value: Any, error: BaseException | None) -> None:
        if self.done():
            return
        if self._is_cancel_requested or isinstance(error, asyncio.CancelledError):
            super().cancel(self._message)
        elif error is not None:
            self.set_exception(error)
        else:
            self.set_result(value)


def _settle(answer: concurrent.futures.Future[Any], value: Any, error: BaseException | None) -> None:
    if isinstance(error, asyncio.CancelledError):
        answer.cancel()
    elif error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(value)


def _cancel(life: _Life, call: _Call) -> None:
    try:
        life.loop.call_soon_threadsafe(lambda: call.task.cancel())
    except RuntimeError:
        log.debug("a call was cancelled after its event loop had ended")


async def _wait_for(work: Any) -> Any:
    return await work
