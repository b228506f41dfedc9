"""Puts the adapters in the place of Strands' own classes, for Strands' own tests.

pytest loads it in a process whose package `tests` is that of Strands.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from uuid import uuid4

import strands.storage

from memory import BlockingMemory, Memory

mock_session_repository = importlib.import_module("tests.fixtures.mock_session_repository")
FOLDER = Path(__file__).parent


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"memory_strands_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


MEMORY = Memory(json.loads(os.environ["MEMORY_FITNESS_CONFIG"]), loop="own")
BLOCKING = BlockingMemory(MEMORY).open()
atexit.register(BLOCKING.close)


class Repository(_load("adapter").MemorySessionRepository):  # type: ignore[misc]
    """A repository in a scope of its own."""

    def __init__(self) -> None:
        super().__init__(MEMORY, f"workspace:{uuid4().hex}")


class Storage(_load("stores").MemoryStorage):  # type: ignore[misc]
    """The storage of a folder: a scope of its own."""

    def __init__(self, folder: str) -> None:
        super().__init__(MEMORY, f"workspace:{folder}")


vars(mock_session_repository)["MockedSessionRepository"] = Repository
strands.storage.LocalFileStorage = Storage
