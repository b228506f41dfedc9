"""LangGraph's own tests of stores, and the stores that they run against.

The tests are those of the source archives in `sources.txt`, unchanged. Only the names
of the stores that they test, and the fixtures that open them, are replaced.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from memory import BlockingMemory, Memory
from tests.fitness.langgraph_store.adapter import EntryStore

SOURCES = Path(sys.prefix) / "sources"
DEFAULT_URI = "not used"
VECTOR_TYPES = ["vector"]


def load(package: str, file: str) -> ModuleType:
    """Run a file of a package's tests as a module."""
    (folder,) = SOURCES.glob(f"{package}-*/")
    path = folder / "tests" / file
    text = re.sub(r"from tests\.\w+ import", f"from {__name__} import", path.read_text())
    module = ModuleType(f"{__name__}.{package}_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    exec(compile(text, str(path), "exec"), module.__dict__)  # noqa: S102 - it is what is tested
    return module


def tests_of(suite: ModuleType, nightly: Collection[str]) -> dict[str, Any]:
    """Return the tests of a module. Those named are left to `make nightly`."""
    found = {name: test for name, test in vars(suite).items() if name.lower().startswith("test")}
    return {
        name: pytest.mark.nightly(test) if name in nightly else test
        for name, test in found.items()
        if getattr(test, "__module__", None) == suite.__name__
    }


CharacterEmbeddings = load("langgraph_checkpoint", "embed_test_utils.py").CharacterEmbeddings


TTL_MINUTES = 0.1
"""The suites wait for items that expire after six seconds."""
ONE_VECTOR = "an entry has one vector, so its fields are not embedded one by one"
TABLES = "it changes rows of the other store's tables"
INNER = "it tests private parts of the other store"
COSINE = "vectors are compared by cosine only"
FEWER = "entries whose cosine is not above 0 answer nothing; they do not fill a page"


class Place:
    """Opens stores in one memory. Each store has a root of its own."""

    def __init__(self, config: dict[str, Any], stack: ExitStack) -> None:
        self._config = {name: value for name, value in config.items() if name != "embedder"}
        self._stack = stack
        self._memory: Memory | None = None
        self._stores = 0

    def prepare(self, store: EntryStore, index: Any = None, ttl: Any = None) -> None:
        """Initialise a store as the suites configure it."""
        embed = index["embed"] if index else None
        if self._memory is None:
            embedder = embed.embed_documents if embed else "none"
            self._memory = Memory(self._config, embedder=embedder, loop="own")
            self._stack.enter_context(BlockingMemory(self._memory))
        self._stores += 1
        fields = (index or {}).get("fields") or (index or {}).get("text_fields") or ["$"]
        EntryStore.__init__(
            store,
            self._memory,
            root=f"path:suite/{self._stores}/",
            fields=fields,
            mode="semantic" if embed else "lexical",
            ttl=ttl,
        )
        suite_attributes: Any = store
        suite_attributes.index_config, suite_attributes.embeddings = index, embed

    def make(self, index: Any = None, ttl: Any = None) -> EntryStore:
        """Return a new store."""
        store: EntryStore = EntryStore.__new__(EntryStore)
        self.prepare(store, index, ttl)
        return store


@contextmanager
def opened(config: dict[str, Any]) -> Iterator[Place]:
    """Open a place for stores, and close its memory at the end."""
    with ExitStack() as stack:
        yield Place(config, stack)


def class_over(place: Callable[[], Place]) -> type[EntryStore]:
    """Return a class of stores that is called as those of the suites are."""

    class Store(EntryStore):
        def __init__(self, *, index: Any = None, ttl: Any = None) -> None:
            place().prepare(self, index, ttl)

        @classmethod
        @contextmanager
        def from_conn_string(cls, _: str, **options: Any) -> Iterator[EntryStore]:
            yield cls(**options)

        def setup(self) -> None:
            """Do nothing: the memory is open."""

    return Store
