"""Differences between the engine's numbers and the stored ones, and bounds for them.

Integers compare as 64-bit floats, which cannot distinguish all of them from 2**53. A
real number in the engine may be a neighbour of the written one (see `codec`), and
another one after each copy. `REAL_SLACK` covers thousands of them.
"""

from __future__ import annotations

import math

from memory.ports.collections import FieldType

EXACT = 2**53
"""Below this size, every integer is a distinct float."""
REAL_SLACK = 2.0**-40
"""Tolerance as a share of the number."""
LEAST_SLACK = 2.0**-1060
"""Least tolerance, for numbers whose share would be zero."""


def bound_beyond(number: float, kind: FieldType, upwards: bool) -> float:
    """Return a bound beyond all of the engine's numbers that stand for this number.

    Numbers before it are on the same side. The bound is infinite if no finite number is
    far enough.
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
    )  # an engine reads a larger one as its last number


def stands_for(engines: object, number: float) -> bool:
    """Whether the engine's number may stand for this real number."""
    if isinstance(engines, bool) or not isinstance(engines, int | float):
        return False
    return (
        bound_beyond(number, FieldType.REAL, False) <= engines <= bound_beyond(number, FieldType.REAL, True)
    )
