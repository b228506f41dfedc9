"""What the library draws from the system, drawn from a seed."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from tests.simulation.loop import seeded


@contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """While it lasts, ids, secrets and what the wrappers wait between two attempts are
    the same for the same seed.
    """
    drawn = seeded(seed, 4).randbytes
    random.seed(seed)
    with patch.object(random, "_urandom", drawn), patch.object(os, "urandom", drawn):
        yield
