"""How near the engine's numbers are to those that were stored, and bounds that allow
for it.

Whole numbers compare as 64-bit floats, which from 2**53 on tell only some of them
apart. Of a real number the engine may hold a neighbour of the one it was given (see
`payloads`), and another neighbour each time it was read and written again: `REAL_SLACK`
is thousands of them.
"""

from __future__ import annotations

import math

from memory.ports.collections import FieldType

EXACT = 2**53
"""Below it in size every whole number is a float of its own."""
REAL_SLACK = 2.0**-40
"""As a share of the number."""
LEAST_SLACK = 2.0**-1060
"""Where a share of it would be nothing."""


def bound_beyond(number: float, kind: FieldType, upwards: bool) -> float:
    """A bound on the other side of which, seen from here, the engine has no number that
    stands for this one or for any before it.

    Infinite where no finite number is far enough.
    """
    if kind is FieldType.REAL:
        slack = abs(float(number)) * REAL_SLACK + LEAST_SLACK
        return number + slack if upwards else number - slack
    whole = math.ceil(number) if upwards else math.floor(number)
    edge = (
        float(whole)
        if abs(whole) < EXACT
        else math.nextafter(float(whole), math.inf if upwards else -math.inf)
    )
    return (
        edge if -(2**63) <= edge < 2**63 else math.copysign(math.inf, edge)
    )  # an engine takes a greater one for the last number there is


def stands_for(engines: object, number: float) -> bool:
    """Whether the engine's number may be what it made of this real one."""
    if isinstance(engines, bool) or not isinstance(engines, int | float):
        return False
    return (
        bound_beyond(number, FieldType.REAL, False) <= engines <= bound_beyond(number, FieldType.REAL, True)
    )
