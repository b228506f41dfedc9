"""The loop itself: seeded, virtual, and faithful to what asyncio promises."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.simulation.loop import OWNER, START, Deadlock, Endless, SimulatedClock, SimulatedLoop, run, seeded


async def _interleaving() -> list[int]:
    seen: list[int] = []

    async def worker(number: int) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
            seen.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(worker(number))
    return seen


def test_a_seed_is_one_interleaving_and_seeds_differ() -> None:
    runs = [tuple(run(SimulatedLoop(seed), _interleaving())) for seed in (1, 1, 2, 3)]
    assert runs[0] == runs[1]
    assert len(set(runs)) == 3


def test_waiting_takes_virtual_time_only() -> None:
    async def main() -> float:
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    assert 86_400 <= run(SimulatedLoop(0), main()) < 86_401


@pytest.mark.parametrize("seed", range(20))
def test_timeouts_gather_locks_and_cancellation_work(seed: int) -> None:
    async def main() -> list[str]:
        told: list[str] = []
        lock, holders = asyncio.Lock(), 0

        async def alone(name: str) -> str:
            nonlocal holders
            async with lock:
                holders += 1
                assert holders == 1
                await asyncio.sleep(0.1)
                holders -= 1
            return name

        assert await asyncio.gather(*(alone(str(i)) for i in range(4))) == ["0", "1", "2", "3"]
        try:
            async with asyncio.timeout(1):
                await asyncio.sleep(10)
        except TimeoutError:
            told.append("timeout")
        try:
            await asyncio.wait_for(asyncio.sleep(10), 1)
        except TimeoutError:
            told.append("wait_for")
        task = asyncio.create_task(asyncio.sleep(10))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return told

    assert run(SimulatedLoop(seed), main()) == ["timeout", "wait_for"]


def test_a_deadlock_is_told_and_so_is_a_run_without_end() -> None:
    async def stuck() -> None:
        await asyncio.get_running_loop().create_future()

    async def endless() -> None:
        while asyncio.get_running_loop().time() >= 0:  # noqa: ASYNC110
            await asyncio.sleep(0)

    with pytest.raises(Deadlock):
        run(SimulatedLoop(0), stuck())
    with pytest.raises(Endless):
        run(SimulatedLoop(0, most=1000), endless())


def test_nothing_of_a_frozen_owner_runs_until_it_thaws() -> None:
    async def main() -> dict[str, float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        ended: dict[str, float] = {}

        async def worker(name: str) -> None:
            OWNER.set(name)
            for _ in range(10):
                await asyncio.sleep(0.1)
            ended[name] = loop.time()

        loop.freeze("cold", 50)
        await asyncio.gather(worker("cold"), worker("warm"))
        return ended

    ended = run(SimulatedLoop(3), main())
    assert ended["warm"] < 2
    assert 50 <= ended["cold"] < 52


def test_a_clock_jumps_within_its_bound_and_drives_nothing() -> None:
    loop = SimulatedLoop(0)
    clock = SimulatedClock(loop, error=2, most=5)
    assert clock() == START + timedelta(seconds=2)
    clock.jump(100)
    assert clock() == START + timedelta(seconds=5)
    clock.jump(-100)
    assert clock() == START - timedelta(seconds=5)
    loop.close()


def test_generators_of_different_names_are_independent() -> None:
    assert len({seeded(*name).random() for name in ((1,), (2,), (1, 0), (1, 1), (1, 0, 0), (0, 1))}) == 6
    assert seeded(5, 6).random() == seeded(5, 6).random()
