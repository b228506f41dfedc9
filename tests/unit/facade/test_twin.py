"""The blocking twin of any async class, and those of the facade."""

from __future__ import annotations

import gc
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Any, Self, get_args, get_type_hints

import pytest

from memory import Memory
from memory.facade.memory import NOUNS
from memory.ports.contract.cells import cells
from memory.sync import blocking as twins
from memory.sync.blocking import (
    BlockingBufferProvider,
    BlockingCompositeProvider,
    BlockingMemory,
    BlockingSemanticProvider,
    BlockingSlidingWindowProvider,
    BlockingSummarizingProvider,
)
from memory.sync.wrapper import SyncWrapper, blocking_class, is_async
from tests.unit.facade.test_surface import methods_of
from tools.blocking_stub import STUB, TWINS, stub


class Page:
    """Of a `Book`."""

    def __init__(self, number: int) -> None:
        self.number = number

    async def text(self) -> str:
        """What it says."""
        return f"page {self.number} in {threading.current_thread().name}"


class Book:
    """Read it so:

    async with Book(3) as book:
        await book.page(1)
    """

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self.closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        self.closed = True

    @property
    def cover(self) -> Page:
        """Its first page."""
        return Page(0)

    def page(self, number: int) -> Page:
        return Page(number)

    async def found(self, number: int) -> Page:
        if number > self.pages:
            raise LookupError(number)
        return Page(number)

    async def all(self) -> AsyncIterator[Page]:
        for number in range(self.pages):
            yield Page(number)

    async def chosen(self, *numbers: int) -> list[Page]:
        return [Page(number) for number in numbers]

    async def itself(self) -> Self:
        return self


BlockingBook: Any = blocking_class(Book)

PROVIDERS: dict[str, Callable[[BlockingMemory], Any]] = {
    "buffer": BlockingBufferProvider,
    "sliding window": BlockingSlidingWindowProvider,
    "summarizing": lambda memory: BlockingSummarizingProvider(memory, lambda asked: "so far"),
    "semantic": BlockingSemanticProvider,
    "composite": lambda memory: BlockingCompositeProvider([BlockingBufferProvider(memory)]),
}


@pytest.fixture
def book() -> Iterator[Any]:
    with BlockingBook(3) as opened:
        yield opened


@pytest.fixture
def memory() -> Iterator[Any]:
    with BlockingMemory("memory://", embedder="none", accept_loss=True) as opened:
        yield opened


def test_a_class_has_one_twin_with_its_signature_and_its_documentation() -> None:
    assert list(inspect.signature(BlockingBook.__init__).parameters) == ["self", "pages"]
    assert inspect.signature(BlockingBook.found) == inspect.signature(Book.found)
    assert "with BlockingBook(3) as book:\n    book.page(1)" in BlockingBook.__doc__
    assert "async" not in BlockingBook.__doc__
    assert blocking_class(Book) is BlockingBook


def test_whatever_a_twin_hands_out_of_its_kind_is_a_twin_on_the_same_thread(book: Any) -> None:
    handed_out = [book.cover, book.page(1), book.found(2), *book.chosen(1, 2), *book.all()]
    assert [type(page) for page in handed_out] == [blocking_class(Page)] * 8
    assert [page.number for page in handed_out] == [0, 1, 2, 1, 2, 0, 1, 2]
    assert {page.text().rpartition(" ")[2] for page in handed_out} == {"blocking-memory"}
    assert book.itself() is book
    assert (book.pages, book.closed) == (3, False)


def test_a_twin_raises_what_its_class_raises_and_closes_with_it(book: Any) -> None:
    with pytest.raises(LookupError):
        book.found(4)
    with pytest.raises(AttributeError, match="no attribute 'index'"):
        _ = book.index
    book.close()
    assert book.closed


def test_an_iteration_left_half_way_is_ended_on_the_loop(book: Any) -> None:
    pages = book.all()
    assert next(pages).number == 0
    pages.close()
    gc.collect()
    assert [page.number for page in book.all()] == [0, 1, 2]


def test_the_thread_ends_with_the_twin_that_was_made_not_with_those_it_handed_out() -> None:
    with BlockingMemory("memory://", embedder="none", accept_loss=True) as memory:
        (thread,) = [one for one in threading.enumerate() if one.name == "blocking-memory"]
        with memory.for_tenant("globex") as other:
            other.write("theirs", scope="user:ada")
        assert thread.is_alive()
        assert len(memory.write_many([{"content": "mine", "scope": "user:ada"}])) == 1
    assert not thread.is_alive()


def test_every_async_class_that_can_be_reached_from_a_public_one_has_a_name_among_the_twins() -> None:
    """So that type checkers know it: one line in `blocking.py` for a class more."""
    waiting, reached = list[type]([Memory]), set[type]()
    while waiting:
        kind = waiting.pop()
        reached.add(kind)
        getters = [member.fget for _, member in inspect.getmembers(kind, lambda m: isinstance(m, property))]
        for function in [*methods_of(kind).values(), *getters]:
            returned = get_type_hints(function).get("return")
            for one in (returned, *get_args(returned)):
                if (
                    isinstance(one, type)
                    and is_async(one)
                    and one not in reached
                    and one.__module__.startswith("memory.facade")
                ):
                    waiting.append(one)
    assert set(TWINS.values()) >= reached
    assert {f"Blocking{kind.__name__}": kind for kind in TWINS.values()} == TWINS
    assert set(NOUNS.values()) <= reached


@cells("name", TWINS, shared=True)
def test_a_twin_has_every_public_method_and_property_of_its_class(name: str) -> None:
    twin, original = getattr(twins, name), TWINS[name]
    assert issubclass(twin, SyncWrapper)
    for member, was in inspect.getmembers(original):
        if member.startswith("_"):
            continue
        assert isinstance(getattr(twin, member), property) == isinstance(was, property)
        if inspect.isfunction(was):
            assert not inspect.iscoroutinefunction(getattr(twin, member))
            assert inspect.signature(getattr(twin, member)) == inspect.signature(was)


def test_what_type_checkers_see_of_the_twins_is_made_from_the_classes() -> None:
    assert STUB.read_text() == stub(), "stale: python -m tools.blocking_stub"


def test_every_noun_works_in_its_blocking_form(memory: Any) -> None:
    tea, coffee = (
        memory.write("Ada prefers tea", scope="user:ada"),
        memory.write("Ada likes coffee", scope="user:ada"),
    )
    assert [entry.id for entry in memory.entries.iterate("user:ada")] == [tea.id, coffee.id]
    link = memory.relations.relate(tea.id, "supersedes", coffee.id)
    assert memory.relations.find(source_id=tea.id) == [link] == list(memory.relations.all())
    assert memory.sessions.end("s1").moved == []
    assert [line["format"] for line in memory.admin.export()] == [
        "memory-entry/3",
        "memory-entry/3",
        "memory-relation/1",
    ]
    assert memory.admin.route("user:ada").tier == "mid"
    assert memory.scoped("user:ada").erase() == 2
    assert repr(memory.admin).startswith("<memory.facade.resources.admin.BlockingAdmin ")
    assert repr(memory) == "<BlockingMemory tenant='default' open>"


@pytest.mark.parametrize("make", PROVIDERS.values(), ids=PROVIDERS)
def test_a_provider_of_a_blocking_memory_runs_on_its_thread(
    memory: Any, make: Callable[[BlockingMemory], Any]
) -> None:
    """A run is written when it went well, and only then (C52 to C54)."""
    provider = make(memory)
    with provider.turn("my name is Ada", "s1", system="You are kind.") as turn:
        turn.add({"role": "assistant", "content": "hello Ada"})
    assert [message.text for message in turn.messages] == ["You are kind.", "my name is Ada", "hello Ada"]
    with pytest.raises(LookupError), provider.turn("lost", "s1"):
        raise LookupError
    with provider.turn("what is my name?", "s1") as turn:
        assert [message.text for message in turn.history] == ["my name is Ada", "hello Ada"]
    assert [message.text for message in provider.read("s1")] == [
        "my name is Ada",
        "hello Ada",
        "what is my name?",
    ]
    (entry,) = provider.entries()
    assert (entry.session_id, provider.type) == ("s1", make(memory).type)
    provider.clear("s1")
    assert provider.read("s1") == []


def test_a_call_that_a_noun_has_is_named_with_its_noun_by_the_twin_too(memory: Any) -> None:
    with pytest.raises(AttributeError, match=r"did you mean memory\.admin\.stats"):
        memory.stats()
