"""New records of many callers, put in calls that they share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.sql.server.pool import PoolTimeout
from memory.adapters.sql.server.sharing import AT_ONCE, PutBatcher, is_fresh
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import delete, key_of, put, record
from memory.ports.writes import Absent, Newer, Outcome, Put

MOST = 4


class Refused(Exception):
    """The server refused the call, and kept nothing of it."""


class Lost(Exception):
    """The connection was lost: nobody knows what was kept."""


class Server:
    """A store, the calls that were made of it, by the numbers of their records, and
    what goes wrong in those that hold a certain one.

    Calls wait for the gate, and those that hold a certain one for a gate of its own.
    """

    def __init__(self) -> None:
        self.store = InMemoryStore("server")
        self.calls: list[list[int]] = []
        self.fails: dict[int, Exception] = {}
        self.gate = asyncio.Event()
        self.gates: dict[int, asyncio.Event] = {}
        self.sharing = PutBatcher(self.carry_out, lambda error: isinstance(error, Refused), MOST)

    async def carry_out(self, puts: Sequence[Put]) -> Sequence[Outcome]:
        numbers = [int(one.record.texts["content"]) for one in puts]
        self.calls.append(numbers)
        await self.gate.wait()
        for number in numbers:
            if number in self.gates:
                await self.gates[number].wait()
            if number in self.fails:
                raise self.fails[number]
        return await self.store.apply(puts)

    async def begun(self, numbers: Iterable[int]) -> list[asyncio.Task[Outcome]]:
        """A caller for each, all of whom wait."""
        tasks = [asyncio.create_task(self.sharing.put(new(number))) for number in numbers]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return tasks

    async def stand(self, numbers: Iterable[int]) -> list[bool]:
        return [one is not None for one in await self.store.get(SAMPLES, [key_of(n) for n in numbers])]


@pytest.fixture
async def server() -> Server:
    server = Server()
    await server.store.open(DECLARED)
    return server


def new(number: int) -> Put:
    return put(record(number, texts={"content": str(number)}), Absent())


def test_only_a_single_put_where_nothing_stands_goes_with_others() -> None:
    assert is_fresh([new(1)])
    for others in ([new(1), new(2)], [put(record(1), Newer())], [put(record(1))], [delete(1)], []):
        assert not is_fresh(others)


async def test_those_who_wait_go_together_in_the_order_they_came_and_each_is_answered_for_itself(
    server: Server,
) -> None:
    await server.store.apply([new(5)])
    tasks = await server.begun(range(14))
    assert len(server.calls) == AT_ONCE
    server.gate.set()
    outcomes = await asyncio.gather(*tasks)
    assert server.calls == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13]]
    assert [n for n, outcome in enumerate(outcomes) if not outcome.applied] == [5]
    assert (await server.sharing.put(new(20))).applied, (
        "whoever comes when nobody waits any more is not left waiting"
    )


async def test_who_is_cancelled_before_it_is_sent_leaves_nothing_and_later_nobody_else_is_cut_off(
    server: Server,
) -> None:
    tasks = await server.begun(range(12))
    for number in (1, 8, 11):
        tasks[number].cancel()
    server.gate.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [n for n, one in enumerate(answers) if isinstance(one, asyncio.CancelledError)] == [1, 8, 11]
    assert all(one.applied for one in answers if isinstance(one, Outcome))
    assert await server.stand(range(12)) == [n not in (8, 11) for n in range(12)], "1 had been sent"
    assert (await server.sharing.put(new(20))).applied


async def test_one_whom_the_server_refuses_fails_no_other(server: Server) -> None:
    server.fails[3] = Refused()
    tasks = await server.begun(range(8))
    server.gate.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [n for n, one in enumerate(answers) if isinstance(one, Refused)] == [3]
    assert await server.stand(range(8)) == [n != 3 for n in range(8)]


async def test_one_who_left_during_a_call_that_is_refused_is_not_put_again(server: Server) -> None:
    server.fails[3] = Refused()
    tasks = await server.begun(range(8))
    tasks[2].cancel()
    await asyncio.sleep(0)
    server.gate.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert await server.stand(range(8)) == [n not in (2, 3) for n in range(8)]


async def test_what_may_have_been_kept_is_not_put_again_and_fails_those_alone_who_shared_the_call(
    server: Server,
) -> None:
    server.fails[3] = Lost()
    tasks = await server.begun(range(12))
    tasks[2].cancel()
    server.gate.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [n for n, one in enumerate(answers) if isinstance(one, Lost)] == [0, 1, 3]
    assert await server.stand(range(12)) == [n > 3 for n in range(12)]
    assert sorted(n for call in server.calls for n in call) == list(range(12))


@pytest.mark.parametrize("silent", [TimeoutError(), PoolTimeout()], ids=["no answer", "no connection"])
async def test_of_a_silent_server_all_who_wait_are_told_and_who_comes_later_is_served(
    server: Server, silent: Exception
) -> None:
    server.fails = dict.fromkeys(range(AT_ONCE * MOST), silent)
    tasks = await server.begun(range(12))
    tasks[10].cancel()
    server.gate.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [n for n, one in enumerate(answers) if one is not silent] == [10]
    assert len(server.calls) == AT_ONCE
    assert (await server.sharing.put(new(20))).applied


async def test_where_the_server_answers_others_a_call_that_is_never_answered_fails_those_alone_who_shared_it(
    server: Server,
) -> None:
    server.fails[5] = TimeoutError()
    server.gates[5] = asyncio.Event()
    tasks = await server.begun(range(8))
    server.gate.set()
    await asyncio.gather(*tasks[:4])
    server.gate.clear()
    tasks += await server.begun(range(8, 16))
    server.gates[5].set()
    await asyncio.wait(tasks[4:8])
    server.gate.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [n for n, one in enumerate(answers) if isinstance(one, TimeoutError)] == [4, 5, 6, 7]
    assert await server.stand(range(16)) == [n not in (4, 5, 6, 7) for n in range(16)]


async def test_an_event_loop_that_ends_leaves_nobody_waiting(server: Server) -> None:
    tasks = await server.begun(range(12))
    for task in asyncio.all_tasks() - {*tasks, asyncio.current_task()}:
        task.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in answers)
    server.gate.set()
    assert (await server.sharing.put(new(20))).applied
