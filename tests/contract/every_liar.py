"""All the liars, and the honest stores beside them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from memory.ports.contract.harness import Harness
from tests.contract.failing_liars import HONEST as HONEST_SERVERS
from tests.contract.liars import LIARS
from tests.contract.liars_of_asking import HonestDisk
from tests.contract.liars_remembering import HonestRoom

__all__ = ["HONEST", "LIARS"]

for file in sorted(Path(__file__).parent.glob("liars_*.py")):
    import_module(f"{__package__}.{file.stem}")  # each registers its own
HONEST: tuple[type[Harness], ...] = (*HONEST_SERVERS, HonestDisk, HonestRoom)
