"""All the liars, and the honest stores beside them."""

from __future__ import annotations

from memory.ports.contract.harness import Harness
from tests.contract import (
    liars_afterwards,
    liars_of_asking,
    liars_of_corners,
    liars_of_erasing,
    liars_of_keeping,
    liars_of_limits,
    liars_of_lives,
    liars_of_order,
    liars_of_telling,
    liars_of_values,
    liars_of_writes,
    liars_remembering,
)
from tests.contract.failing_liars import HONEST as HONEST_SERVERS
from tests.contract.liars import LIARS

__all__ = ["HONEST", "KINDS", "LIARS"]

KINDS = (
    liars_afterwards,
    liars_of_asking,
    liars_of_corners,
    liars_of_erasing,
    liars_of_keeping,
    liars_of_limits,
    liars_of_lives,
    liars_of_order,
    liars_of_telling,
    liars_of_values,
    liars_of_writes,
    liars_remembering,
)
HONEST: tuple[type[Harness], ...] = (*HONEST_SERVERS, liars_of_asking.HonestDisk, liars_remembering.HonestRoom)
