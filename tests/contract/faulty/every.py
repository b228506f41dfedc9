"""All the faulty adapters, and the honest stores beside them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from memory.ports.contract.harness import Harness
from tests.contract.faulty.asking import HonestDisk
from tests.contract.faulty.failing import HONEST as HONEST_SERVERS
from tests.contract.faulty.registry import FAULTY_ADAPTERS, HonestAtLength
from tests.contract.faulty.remembering import HonestRoom

__all__ = ["FAULTY_ADAPTERS", "HONEST"]

for file in sorted(Path(__file__).parent.glob("[a-z]*.py")):
    import_module(f"{__package__}.{file.stem}")  # each registers its own
HONEST: tuple[type[Harness], ...] = (*HONEST_SERVERS, HonestDisk, HonestRoom, HonestAtLength)
