"""Damaged rows are moved out of the way and the reading done again; where that cannot
be done, they are still not served.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from memory.ports.quarantine import ROUNDS, sound, try_quarantine


class Shop:
    """Numbers, of which those below nought are damaged."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = list(numbers)
        self.reads = 0
        self.damages = False

    async def read(self) -> tuple[list[int], list[int]]:
        self.reads += 1
        if self.damages:
            self.numbers.append(-self.reads)
        return [n for n in self.numbers if n >= 0][:2], [n for n in self.numbers if n < 0]

    async def move(self, damaged: Sequence[int]) -> None:
        self.numbers = [n for n in self.numbers if n not in damaged]

    async def quarantine(self, damaged: Sequence[int]) -> bool:
        return await try_quarantine("shop", self.move, damaged, lambda _: None)


async def test_what_is_damaged_is_moved_and_the_reading_done_again() -> None:
    shop = Shop(1, -2, 3, 4)
    assert await sound(shop.read, shop.quarantine) == [1, 3]
    assert (shop.numbers, shop.reads) == ([1, 3, 4], 2)
    assert await sound(shop.read, shop.quarantine) == [1, 3]
    assert shop.reads == 3, "nothing was damaged, and it was read once"


async def test_who_spoils_rows_as_quickly_holds_nobody_up_for_ever() -> None:
    shop = Shop(1)
    shop.damages = True
    assert await sound(shop.read, shop.quarantine) == [1]
    assert shop.reads == ROUNDS


async def test_what_cannot_be_moved_is_logged_and_not_read_again(caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop(1, -2)

    async def full(damaged: Sequence[int]) -> None:
        raise OSError("no room for 'what it says'")

    answer = await sound(
        shop.read, lambda damaged: try_quarantine("shop", full, damaged, lambda error: error)
    )
    assert (answer, shop.reads, shop.numbers) == ([1], 1, [1, -2])
    assert "1 corrupt records" in caplog.text
    assert "what it says" not in caplog.text


async def test_an_error_that_is_no_drivers_is_raised() -> None:
    async def broken(damaged: Sequence[int]) -> None:
        raise KeyError("a mistake of ours")

    with pytest.raises(KeyError):
        await try_quarantine("shop", broken, [1], lambda _: None)
