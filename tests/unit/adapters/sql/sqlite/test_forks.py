"""A file that was open when the process was forked: the child opens it anew, the parent
goes on, and nobody's writes are lost.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memory import BlockingMemory
from memory.adapters.sql.sqlite import forking
from memory.adapters.sql.sqlite.worker import Worker

pytestmark = [
    pytest.mark.backend("sqlite"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
HANGS, END = 60.0, 255
VISIT = (
    "import sys; from memory import BlockingMemory\nwith BlockingMemory(sys.argv[1]) as m:"
    " m.write(sys.argv[2], scope='user:visitor')"
)


class Child:
    """A forked process that does `work` at each turn, and says what came of it."""

    def __init__(self, work: Callable[[int], object]) -> None:
        (turn, self._turn), (self._answer, answer) = os.pipe(), os.pipe()
        self._process = os.fork()
        if not self._process:
            while (number := os.read(turn, 1)[0]) != END:
                try:
                    said = work(number)
                except BaseException as error:  # noqa: BLE001 - the parent asserts on it
                    said = f"{type(error).__name__}: {error}"
                os.write(answer, f"{said}\n".encode())
            os._exit(0)
        os.close(turn)
        os.close(answer)
        self._lines = os.fdopen(self._answer)

    def turn(self, number: int) -> str:
        os.write(self._turn, bytes([number]))
        watch = threading.Timer(HANGS, os.kill, (self._process, signal.SIGKILL))
        watch.start()
        try:
            return self._lines.readline().strip()
        finally:
            watch.cancel()

    def end(self) -> None:
        os.write(self._turn, bytes([END]))
        os.waitpid(self._process, 0)
        os.close(self._turn)
        self._lines.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'one.db'}"


@pytest.fixture
def parent(url: str) -> Iterator[BlockingMemory]:
    with BlockingMemory(url, embedder="none") as memory:
        memory.write("parent 0", scope="user:parent")
        yield memory


def opens_and_writes(url: str, name: str) -> Callable[[int], object]:
    """Opens a memory of its own at the first turn, and writes at each."""
    opened: list[BlockingMemory] = []

    def work(number: int) -> object:
        if not opened:
            opened.append(BlockingMemory(url, embedder="none").open())
        return opened[0].write(f"{name} {number}", scope=f"user:{name}").content

    return work


def contents(url: str, name: str) -> set[str]:
    with BlockingMemory(url, embedder="none") as memory:
        return {entry.content for entry in memory.retrieve(f"user:{name}", limit=1000)}


def visit(url: str, text: str) -> None:
    """Another program opens the file, writes and closes it."""
    subprocess.run([sys.executable, "-c", VISIT, url, text], check=True, timeout=HANGS)


def test_children_write_what_is_found_after_the_parent_closed_and_others_came_and_went(url: str) -> None:
    memory = BlockingMemory(url, embedder="none").open()
    memory.write("parent 0", scope="user:parent")
    children = {name: Child(opens_and_writes(url, name)) for name in ("first", "second")}
    said = [child.turn(1) for child in children.values()]
    memory.write("parent 1", scope="user:parent")
    memory.close()
    said += [child.turn(2) for child in children.values()]
    visit(url, "visitor 1")
    said += [child.turn(3) for child in children.values()]
    visit(url, "visitor 2")
    for child in children.values():
        child.end()
    assert sorted(said) == sorted(f"{name} {turn}" for name in children for turn in (1, 2, 3))
    assert {name: contents(url, name) for name in ("parent", "first", "second", "visitor")} == {
        "parent": {"parent 0", "parent 1"},
        "first": {"first 1", "first 2", "first 3"},
        "second": {"second 1", "second 2", "second 3"},
        "visitor": {"visitor 1", "visitor 2"},
    }


def test_the_parent_reads_and_writes_on_after_each_of_many_forks(parent: BlockingMemory, url: str) -> None:
    for number in range(1, 6):
        child = Child(lambda _: "nothing")
        assert {entry.content for entry in parent.retrieve("user:parent")} == {
            f"parent {n}" for n in range(number)
        }
        parent.write(f"parent {number}", scope="user:parent")
        assert child.turn(1) == "nothing"
        child.end()
    assert [check.ok for check in parent.admin.check()] == [True]
    assert len(contents(url, "parent")) == 6


def test_a_fork_beside_writers_loses_no_write_and_does_not_hang(parent: BlockingMemory, url: str) -> None:
    written: list[str] = []
    stop, wrote = threading.Event(), threading.Event()

    def write_on() -> None:
        while not stop.is_set():
            written.append(parent.write(f"busy {len(written)}", scope="user:busy").content)
            wrote.set()

    thread = threading.Thread(target=write_on)
    thread.start()
    try:
        for number in range(4):
            child = Child(opens_and_writes(url, f"child{number}"))
            assert child.turn(1) == f"child{number} 1"
            child.end()
            wrote.clear()
            assert wrote.wait(HANGS), "the parent's writer goes on"
    finally:
        stop.set()
        thread.join()
    assert contents(url, "busy") == set(written)


def test_a_child_that_forks_again_waits_for_no_thread_of_its_parent(
    parent: BlockingMemory, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The threads that its parent's connections belong to are not in the child."""
    monkeypatch.setattr(forking, "REST_SECONDS", 2 * HANGS)

    def forks(number: int) -> object:
        said = opens_and_writes(url, "child")(number)
        grandchild = Child(opens_and_writes(url, "grandchild"))
        said = f"{said}, {grandchild.turn(number)}"
        grandchild.end()
        return said

    child = Child(forks)
    assert child.turn(1) == "child 1, grandchild 1"
    child.end()
    parent.write("parent 1", scope="user:parent")
    assert contents(url, "child") | contents(url, "grandchild") == {"child 1", "grandchild 1"}


def test_a_database_in_memory_stays_open_over_a_fork() -> None:
    with BlockingMemory("sqlite:///:memory:", embedder="none", accept_loss=["sqlite"]) as memory:
        memory.write("kept", scope="user:parent")
        Child(lambda _: "nothing").end()
        assert [entry.content for entry in memory.retrieve("user:parent")] == ["kept"]


def test_a_file_that_is_only_read_is_read_after_a_fork(parent: BlockingMemory, url: str) -> None:
    with BlockingMemory(f"{url}?mode=ro", embedder="none") as reader:
        child = Child(opens_and_writes(url, "child"))
        assert child.turn(1) == "child 1"
        assert [entry.content for entry in reader.retrieve("user:child")] == ["child 1"]
        child.end()


def test_a_file_that_is_copied_at_the_fork_is_refused_in_the_child(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection of a backup takes locks too."""
    monkeypatch.setattr(forking, "REST_SECONDS", 0.05)
    with BlockingMemory(url, embedder="none"), forking.hold_forks(tmp_path / "one.db"):
        child = Child(opens_and_writes(url, "child"))
    assert "was in use while this process was forked" in child.turn(1)
    child.end()


def test_a_file_that_was_replaced_beside_the_fork_is_named(parent: BlockingMemory, tmp_path: Path) -> None:
    child = Child(lambda _: "nothing")
    child.end()
    (tmp_path / "one.db").rename(tmp_path / "other.db")
    with pytest.raises(Exception, match=r"one\.db was deleted while it was open"):
        parent.write("lost", scope="user:parent")
    assert not (tmp_path / "one.db").exists(), "none is made in its place"


def test_a_child_may_not_open_a_file_that_a_job_had_not_let_go(
    parent: BlockingMemory, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take the parent's locks for its own."""
    monkeypatch.setattr(forking, "REST_SECONDS", 0.05)
    begun, go_on = threading.Event(), threading.Event()
    does = Worker._do

    def slow(worker: Worker, group: object) -> None:
        begun.set()
        go_on.wait(HANGS)
        does(worker, group)  # type: ignore[arg-type]

    monkeypatch.setattr(Worker, "_do", slow)
    thread = threading.Thread(target=lambda: parent.write("slow", scope="user:parent"))
    thread.start()
    assert begun.wait(HANGS)
    write = opens_and_writes(url, "child")

    def in_the_child(number: int) -> object:
        monkeypatch.setattr(Worker, "_do", does)
        return write(number)

    child = Child(in_the_child)
    monkeypatch.setattr(Worker, "_do", does)
    go_on.set()
    thread.join()
    said = child.turn(1)
    child.end()
    assert "was in use while this process was forked" in said
    assert "spawn" in said
    assert contents(url, "parent") == {"parent 0", "slow"}
    assert contents(url, "child") == set()
