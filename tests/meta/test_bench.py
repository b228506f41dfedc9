"""The benchmark's own arithmetic: what counts as met, and what is said of what was not
measured.
"""

from __future__ import annotations

from bench.measure import Figure, percentile, side_by_side, table
from memory.ports.contract.cells import cells


@cells(
    "figure, met",
    [
        (Figure("x", 7.9, "ms", 8), True),
        (Figure("x", 8.1, "ms", 8), False),
        (Figure("x", 1499, "turns/s", 1500, at_least=True), False),
        (Figure("x", 1500, "turns/s", 1500, at_least=True), True),
        (Figure("x", 2.5, "ms", raw=1.0, ratio_target=2.5), True),
        (Figure("x", 2.6, "ms", raw=1.0, ratio_target=2.5), False),
        (Figure("x", 7.0, "ms", 8, raw=1.0, ratio_target=2.5), False),
        (Figure("x", 5.0, "%"), None),
        (Figure("x", None, "ms", 8), None),
    ],
    shared=True,
)
def test_a_target_is_met_only_by_what_was_measured(figure: Figure, met: bool | None) -> None:
    assert figure.met is met


def test_the_table_says_what_was_not_measured_and_why_and_what_falls_short() -> None:
    lines = table(
        [
            Figure("slow", 9.0, "ms", 8, raw=3.0),
            Figure("gone", None, "turns/s", 1500, at_least=True, note="no data"),
        ]
    ).splitlines()
    assert lines[2] == "| slow | 9 ms | 3 ms | 3.00 | ≤ 8 | **no** |"
    assert lines[3] == "| gone | not measured: no data |  |  | ≥ 1,500 |  |"


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentile([4, 1, 3, 2], 0.5) == 2
    assert percentile(range(1, 101), 0.95) == 95
    assert percentile([7.0], 0.95) == 7.0


async def test_calls_take_turns() -> None:
    order: list[str] = []

    async def one(number: int) -> None:
        order.append(f"a{number}")

    async def other(number: int) -> None:
        order.append(f"b{number}")

    await side_by_side(2, one, other)
    assert order == ["a0", "b0", "a1", "b1"]
