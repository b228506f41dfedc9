"""Many writers of one session: no message is lost from the window, and nothing of
another user, or erased since it was read, comes in.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from memory import (
    BlockingBufferProvider,
    BlockingCompositeProvider,
    BlockingMemory,
    BlockingSlidingWindowProvider,
    BlockingSummarizingProvider,
    BufferProvider,
    CompositeProvider,
    Conflict,
    InvalidInput,
    Memory,
    SemanticProvider,
    SessionOwnerMismatch,
    SlidingWindowProvider,
    SummarizingProvider,
    VersionConflict,
)
from tests.acceptance.talking import assistant, user
from tests.support.depth import seeds

WRITERS, MANY, TURNS = 8, 16, 2
FRESH = seeds(0, nightly=30)
PROVIDERS: dict[str, Callable[[Memory], Any]] = {
    "buffer": lambda memory: BufferProvider(memory, namespace="n", max_messages=500),
    "sliding": lambda memory: SlidingWindowProvider(memory, namespace="n", max_turns=200, max_tokens=None),
    "summarizing": lambda memory: SummarizingProvider(
        memory, lambda asked: "sum", namespace="n", active_tokens=100_000
    ),
    "semantic": lambda memory: SemanticProvider(memory, namespace="n", last=500),
}
ALL = {name: kind for name, kind in PROVIDERS.items() if name != "semantic"} | {
    "composite": lambda memory: CompositeProvider(
        [BufferProvider(memory, namespace=name, max_messages=500) for name in ("n", "slow")]
    )
}


def said_by(writers: int, turns: int = TURNS) -> set[str]:
    return {f"{writer}{kind}{turn}" for writer in range(writers) for turn in range(turns) for kind in "qr"}


async def take_turns(provider: Any, writer: int, turns: int = TURNS) -> None:
    for turn in range(turns):
        async with provider.turn(f"{writer}q{turn}", "s") as run:
            run.add(assistant(f"{writer}r{turn}"))


async def hand_back_lists(provider: Any, writer: int, turns: int = TURNS) -> None:
    for turn in range(turns):
        await provider.write(
            [*await provider.read("s"), user(f"{writer}q{turn}"), assistant(f"{writer}r{turn}")], "s"
        )


@pytest.mark.behaviour("C22", "C33")
@pytest.mark.parametrize("write", [take_turns, hand_back_lists])
@pytest.mark.parametrize("kind", [*PROVIDERS, "composite"])
@pytest.mark.parametrize(("instances", "writers"), [(1, MANY), (WRITERS, WRITERS)])
async def test_every_message_of_many_writers_is_shown(
    memory: Memory, kind: str, write: Any, instances: int, writers: int
) -> None:
    """The parent has read the session too, and its children do not share its read."""
    providers = [(PROVIDERS | ALL)[kind](memory) for _ in range(instances)]
    await providers[0].write(user("first"), "s", new=True)
    await providers[0].read("s")
    await asyncio.gather(*(write(providers[writer % instances], writer) for writer in range(writers)))
    assert {message.text for message in await providers[0].read("s")} == said_by(writers) | {"first"}


@pytest.mark.behaviour("C33")
@pytest.mark.parametrize("kind", ALL)
async def test_who_has_read_that_there_is_nothing_removes_nothing(memory: Memory, kind: str) -> None:
    """Two begin a session at once: each has read that there is none."""
    providers, read = [ALL[kind](memory) for _ in range(2)], asyncio.Barrier(2)

    async def begin(provider: Any, text: str, waits: bool) -> None:
        assert await provider.read("s") == []
        await read.wait()
        if waits:
            await first.wait()
        await provider.write([user(text)], "s")
        first.set()

    first = asyncio.Event()
    await asyncio.gather(
        *(
            begin(provider, text, waits)
            for provider, text, waits in zip(providers, ("a", "b"), (False, True), strict=True)
        )
    )
    assert {message.text for message in await providers[0].read("s")} == {"a", "b"}


@pytest.mark.behaviour("C22", "C33")
async def test_replacements_remove_no_message_that_others_append(memory: Memory) -> None:
    session = await memory.sessions.create("s")

    async def appends(writer: int) -> None:
        for turn in range(TURNS):
            await session.append([user(f"{writer}q{turn}"), assistant(f"{writer}r{turn}")])

    async def replaces(writer: int) -> None:
        for turn in range(TURNS):
            await session.replace([*(await session.context()).messages, user(f"R{writer}.{turn}")])

    await asyncio.gather(
        *(appends(writer) for writer in range(5)), *(replaces(writer) for writer in range(3))
    )
    shown = {message.text for message in (await session.context()).messages}
    assert shown == said_by(5) | {f"R{writer}.{turn}" for writer in range(3) for turn in range(TURNS)}


async def append(memory: Memory, text: str) -> None:
    await memory.session("s").append(user(text))


async def test_a_read_in_a_child_task_is_the_read_of_the_caller(memory: Memory) -> None:
    session = await memory.sessions.create("s")
    await session.append([user("a"), user("b")])
    (read,) = await asyncio.gather(session.context())
    await asyncio.create_task(append(memory, "unread"))
    await session.replace(read.messages[:1])
    assert [message.text for message in (await session.context()).messages] == ["a", "unread"]


async def shown(provider: Any) -> list[str]:
    return [message.text for message in await provider.read("s")]


READS: dict[str, Callable[[Memory], tuple[Any, Callable[[], Any]]]] = {
    "limit": lambda memory: (buffer := PROVIDERS["buffer"](memory), lambda: buffer.read("s", limit=3)),
    "query": lambda memory: (
        buffer := PROVIDERS["buffer"](memory),
        lambda: buffer.read("s", query="m1 m4", limit=2),
    ),
    "summarizing": lambda memory: (
        found := PROVIDERS["summarizing"](memory),
        lambda: found.read("s", limit=3),
    ),
    "first-hit": lambda memory: (found := ALL["composite"](memory), lambda: found.read("s", limit=3)),
    "merge": lambda memory: (
        found := CompositeProvider([BufferProvider(memory, namespace=name) for name in "nm"], read="merge"),
        lambda: found.read("s", limit=3),
    ),
    "max_tokens": lambda memory: (found := BufferProvider(memory, max_tokens=60), lambda: found.read("s")),
}


@pytest.mark.behaviour("C22", "C33")
@pytest.mark.parametrize("kind", READS)
async def test_a_message_that_a_read_did_not_show_stays_when_its_list_is_handed_back(
    memory: Memory, kind: str
) -> None:
    provider, read = READS[kind](memory)
    said = [user(f"m{number} " + "some words " * 8) for number in range(6)]
    await provider.write(said, "s", new=True)

    async def hands_back() -> int:
        read_now = await read()
        await provider.write([*read_now[1:], assistant("new")], "s")
        return len(read_now)

    assert 0 < await asyncio.create_task(hands_back()) < 6
    (entry, *_) = await provider.entries("s")
    assert len([message for message in entry.messages if message.text.startswith("m")]) == 5


@pytest.mark.behaviour("C22", "B29")
@pytest.mark.parametrize(
    "asked", [{"budget": 60}, {"last": 2}, {"budget": 60, "last": 3}, {"budget": 60, "by": "turns"}]
)
async def test_a_replacement_leaves_what_the_context_did_not_show(
    memory: Memory, asked: dict[str, Any]
) -> None:
    session = await memory.sessions.create("s")
    for number in range(30):
        await session.append([user(f"q{number} " + "some words " * 8), assistant(f"r{number}")])
    whole = [message.text for message in (await session.context()).messages]
    read = (await session.context(**asked)).messages
    assert 1 < len(read) < 60
    await session.replace(read[1:])
    assert [message.text for message in (await session.context()).messages] == [
        text for text in whole if text != read[0].text
    ]


async def test_a_buffer_keeps_as_many_of_its_messages_as_it_has_room_for(memory: Memory) -> None:
    provider = BufferProvider(memory, max_messages=4, max_tokens=30)
    await provider.write([user(f"m{number} {'word ' * 10}") for number in range(4)], "s", new=True)
    (last,) = await provider.read("s")
    await provider.write([last, assistant("new")], "s")
    (entry,) = await provider.entries("s")
    assert [message.text.strip()[:3] for message in entry.messages] == ["m1 ", "m2 ", "m3 ", "new"]


async def by_wait_for(load: Callable[[], Any]) -> Any:
    return await asyncio.wait_for(load(), 60)


async def by_a_group(load: Callable[[], Any]) -> Any:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(load())
    return task.result()


async def by_a_task_of_a_task(load: Callable[[], Any]) -> Any:
    return await asyncio.create_task(by_wait_for(load))


@pytest.mark.behaviour("C22", "C33")
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    ("kind", "reads"),
    [
        *((kind, by_wait_for) for kind in (*ALL, "session")),
        ("session", by_a_group),
        ("buffer", by_a_task_of_a_task),
    ],
)
async def test_what_an_own_function_reads_in_a_child_task_the_caller_has_read(
    memory: Memory, kind: str, named: bool, reads: Any
) -> None:
    provider: Any = ALL[kind](memory) if kind != "session" else None
    session = memory.session("s" if provider is None else "n/s", namespace=None if provider is None else "n")
    write = session.replace if provider is None else lambda messages: provider.write(messages, "s")
    await asyncio.create_task(write([user("a"), user("b")]))

    async def load() -> list[Any]:
        read = (await session.context()).messages if provider is None else await provider.read("s")
        return read if named else [user(message.text) for message in read]

    read = await reads(load)
    await asyncio.create_task(append_to(session, "unread"))
    await reads(load)  # for another purpose: what it shows is not what the list is from
    await write([*read, user("new")])
    assert {message.text for message in (await session.context()).messages} == {"a", "b", "unread", "new"}
    if kind not in ("sliding", "composite"):
        again = await reads(load)
        await write(again[1:])
        assert {message.text for message in (await session.context()).messages} == {"b", "unread", "new"}


@pytest.mark.behaviour("C33")
async def test_where_a_list_may_come_from_two_reads_only_what_both_showed_may_leave(memory: Memory) -> None:
    session = await memory.sessions.create("s")
    await session.append([user("a"), user("b")])
    await session.context()

    async def load() -> list[Any]:
        return (await session.context(last=1)).messages

    await session.replace([*await by_wait_for(load), user("new")])
    assert [message.text for message in (await session.context()).messages] == ["a", "b", "new"]


@pytest.mark.behaviour("C33", "C51")
async def test_what_a_task_wrote_stays_when_its_list_may_come_from_a_later_read_that_did_not_show_it(
    memory: Memory,
) -> None:
    provider = ALL["composite"](memory)
    await provider.write([user("a"), user("b"), user("c")], "s")

    async def load() -> list[Any]:
        return list(await provider.read("s", limit=1))

    await provider.write([*await by_wait_for(load), user("new")], "s")
    for name in ("n", "slow"):
        messages = (await memory.session(f"{name}/s").context()).messages
        assert {message.text for message in messages} == {"a", "b", "c", "new"}, name


@pytest.mark.behaviour("C33")
async def test_a_child_that_read_before_the_session_existed_showed_nothing_of_it(memory: Memory) -> None:
    provider = PROVIDERS["buffer"](memory)

    async def load() -> list[Any]:
        return list(await provider.read("s"))

    read = await by_wait_for(load)
    await asyncio.create_task(append_to(memory.session("n/s", namespace="n"), "unread"))
    await by_wait_for(load)  # for another purpose
    await provider.write([*read, user("new")], "s")
    assert await shown(provider) == ["unread", "new"]


@pytest.mark.behaviour("C33")
async def test_a_task_may_hand_back_what_its_parent_read(memory: Memory) -> None:
    session = await memory.sessions.create("s")
    await session.append([user("a"), user("b")])
    read = (await session.context()).messages
    await asyncio.create_task(append_to(session, "unread"))

    async def store() -> None:
        await session.replace([*read[1:], user("new")])

    await asyncio.create_task(store())
    assert [message.text for message in (await session.context()).messages] == ["b", "unread", "new"]


async def append_to(session: Any, text: str) -> None:
    await session.append(user(text))


def cut_buffer(memory: Memory, namespace: str = "n") -> BufferProvider:
    return BufferProvider(memory, namespace=namespace, max_messages=500, max_tokens=60)


DRAWN: dict[str, Callable[[Memory], Any]] = ALL | {
    "cut": cut_buffer,
    "merge": lambda memory: CompositeProvider(
        [BufferProvider(memory, namespace=name, max_messages=500) for name in ("n", "slow")], read="merge"
    ),
    "mixed": lambda memory: CompositeProvider(
        [
            cut_buffer(memory),
            SummarizingProvider(memory, lambda asked: "sum", namespace="slow", active_tokens=100_000),
        ]
    ),
}


class DrawnWriter:
    """Reads in part or whole, here or in a child task, and hands back what it read
    without some messages, with a new one behind.
    """

    def __init__(self, memory: Memory, provider: Any, draw: random.Random, name: int) -> None:
        self.memory, self.provider, self.draw, self.name = memory, provider, draw, name
        self.said: set[str] = set()
        self.dropped: set[str] = set()
        """Messages that a read showed and the list behind it lacks: only these may
        leave.
        """

    async def run(self) -> None:
        self.session = self.memory.session("n/s", namespace="n")
        for turn in range(3):
            message = {
                "role": self.draw.choice(["user", "assistant"]),
                "content": f"{self.name}.{turn} " + "word " * self.draw.randint(0, 8),
            }
            act = self.draw.choice(["append", "here", "here", "child", "other"])
            if act == "append":
                await (
                    self.session.append(message)
                    if self.provider is None
                    else self.provider.write(message, "s", new=True)
                )
            else:
                shown = await (asyncio.wait_for(self.read(), 60) if act == "child" else self.read())
                if act == "other":
                    await asyncio.create_task(self.read())
                await asyncio.sleep(self.draw.random() / 200)
                kept = [one for one in shown if self.draw.random() > 0.2]
                self.dropped |= {one.text for one in shown if one not in kept}
                named = self.draw.random() < 0.6
                given = [
                    *(kept if named else [{"role": one.role.value, "content": one.content} for one in kept]),
                    message,
                ]
                await (
                    self.session.replace(given) if self.provider is None else self.provider.write(given, "s")
                )
            self.said.add(message["content"])

    async def read(self) -> list[Any]:
        way = self.draw.choice(["whole", "limit", "cut"])
        if self.provider is None:
            budget, last = self.draw.randint(20, 120), self.draw.randint(1, 5)
            return (
                await self.session.context(
                    budget if way == "cut" else None, last=last if way == "limit" else None
                )
            ).messages
        asked: dict[str, Any] = {} if way == "whole" else {"limit": self.draw.randint(1, 5)}
        if way == "cut":
            asked["query"] = f"{self.draw.randint(0, 3)}.1"
        return list(await self.provider.read("s", **asked))


@pytest.mark.behaviour("C22", "C33")
@pytest.mark.parametrize("kind", [kind for kind in (*DRAWN, "session") if kind != "sliding"])
@pytest.mark.parametrize("drawn", [range(4), pytest.param(FRESH, marks=pytest.mark.nightly)])
async def test_only_what_a_read_showed_and_its_list_lacks_leaves_the_window(
    memory: Memory, config: dict[str, Any], kind: str, drawn: range
) -> None:
    """On servers, where a seed takes a second, a quarter of the night's fresh ones."""
    on_file = config["tiers"]["mid"].startswith("sqlite")
    for seed in drawn if on_file else drawn[:8]:
        tenant, draw = memory.for_tenant(f"t{seed}"), random.Random(seed)  # noqa: S311
        shared = None if kind == "session" else DRAWN[kind](tenant)
        writers = [
            DrawnWriter(
                tenant,
                None if shared is None else draw.choice([shared, DRAWN[kind](tenant)]),
                random.Random(draw.random()),  # noqa: S311
                name,
            )
            for name in range(5)
        ]
        await asyncio.gather(*(writer.run() for writer in writers))
        stay = {text for writer in writers for text in writer.said} - {
            text for writer in writers for text in writer.dropped
        }
        for name in ("n", "slow") if isinstance(shared, CompositeProvider) else ("n",):
            messages = (await tenant.session(f"{name}/s", create=False).context()).messages
            assert stay <= {message.text for message in messages}, (seed, name)


async def test_a_back_fill_erases_nothing_that_only_left_the_window_of_its_source(memory: Memory) -> None:
    """Summarised and edited messages, and one that was erased, while an earlier part is
    filled.
    """

    class Fast(BufferProvider):
        async def write(self, *args: Any, **kwargs: Any) -> list[str]:
            written = await super().write(*args, **kwargs)
            source = memory.session("slow/s")
            if (await source.context()).messages[0].text == "a":
                await source.compact(lambda messages: "sum", keep_last=2)
                await source.update("c", content="changed")
                await source.erase("d")
            return written

    slow = SummarizingProvider(memory, lambda asked: "sum", namespace="slow", active_tokens=100_000)
    whole = CompositeProvider([fast := Fast(memory, namespace="fast"), slow])
    await slow.write([user(name, name) for name in "abcd"], "s")
    await whole.read("s")
    assert [message.text for message in await fast.read("s")] == ["a", "b", "changed"]


@pytest.mark.behaviour("C51")
async def test_a_back_fill_is_no_read_of_its_caller(memory: Memory) -> None:
    """The caller's read is as old as the list it was given: what others write during
    the fill is not in it.
    """

    class Foreign:
        """Anybody's provider, over one of ours."""

        reads = 0

        async def read(self, *args: Any, **kwargs: Any) -> list[Any]:
            self.reads += 1
            if self.reads == 2:
                for name in ("fast", "slow"):
                    await asyncio.create_task(append_to(memory.session(f"{name}/s"), "unread"))
            return await slow.read(*args, **kwargs)

        async def write(self, *args: Any, **kwargs: Any) -> Any:
            return await slow.write(*args, **kwargs)

    fast, slow = BufferProvider(memory, namespace="fast"), BufferProvider(memory, namespace="slow")
    whole = CompositeProvider([fast, Foreign()])
    await slow.write(user("first"), "s")
    read = await whole.read("s")
    await whole.write([*read, assistant("new")], "s")
    for part in (fast, slow):
        assert {message.text for message in await part.read("s")} == {"first", "new", "unread"}


@pytest.mark.parametrize("named", [True, False])
async def test_what_a_context_adds_for_the_model_is_not_stored_when_it_is_handed_back(
    memory: Memory, named: bool
) -> None:
    """What memory recalls, and results in place of missing ones."""
    await memory.write("Ada's cat is called Zebra", scope="user:ada")
    session = memory.session("s", user="ada", system="Be kind.")
    call = {
        "role": "assistant",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
    }
    await session.append([user("hello"), call, user("what is my cat called?")])
    before = await session.context()
    read = (await session.context(recall="cat")).messages
    assert any("Zebra" in message.text for message in read)
    given = (
        read
        if named
        else [
            {
                "role": m.role.value,
                "content": m.content,
                **({"tool_calls": call["tool_calls"]} if m.tool_calls else {}),
            }
            | ({"tool_call_id": m.tool_call_id} if m.tool_call_id else {})
            for m in read
        ]
    )
    await session.replace([*given, assistant("new")])
    assert [m.text for m in (await session.context()).messages] == [*[m.text for m in before.messages], "new"]
    assert (await session.context()).interrupted
    assert not any("Zebra" in item.message.text for item in (await session.history()).items)


async def test_a_task_that_has_read_nothing_replaces_the_window_as_it_is(memory: Memory) -> None:
    session = await memory.sessions.create("s")
    await session.append([user("a"), user("b")])
    await session.context()
    await memory.session("s").append(user("c"))

    async def child() -> None:
        await memory.session("s").replace([user("alone")])

    await asyncio.create_task(child())
    assert [message.text for message in (await session.context()).messages] == ["alone"]


async def replace_beside_appends(memory: Memory, writer: int) -> None:
    """Every other writer hands back the window with its own messages behind it."""
    session = memory.session("n/s", namespace="n")
    for turn in range(2):
        said = [user(f"{writer}q{turn}"), assistant(f"{writer}r{turn}")]
        await (
            session.replace([*(await session.context()).messages, *said])
            if writer % 2
            else session.append(said)
        )


async def _write_every_way(memory: Memory, writers: range) -> None:
    kinds = [kind(memory.for_tenant(name)) for name, kind in ALL.items()]
    writes = (hand_back_lists, take_turns)
    provided = [writes[writer % 2](provider, writer, 2) for provider in kinds for writer in writers]
    replaced = [replace_beside_appends(memory.for_tenant("replace"), writer) for writer in writers]
    await asyncio.gather(*provided, *replaced)


async def _shown_every_way(memory: Memory) -> dict[str, set[str]]:
    """What each kind of provider shows, in each of its parts."""
    shown = {
        name: {m.text for m in await kind(memory.for_tenant(name)).read("s")} for name, kind in ALL.items()
    }
    for name, of in (("composite", "slow"), ("replace", "n")):
        messages = (await memory.for_tenant(name).session(f"{of}/s", create=False).context()).messages
        shown[f"{name}/{of}"] = {m.text for m in messages}
    return shown


def _in_a_process(config: dict[str, Any], first: int, writers: int) -> None:
    async def run() -> None:
        async with Memory(config) as memory:
            await _write_every_way(memory, range(first, first + writers))

    asyncio.run(run())


@pytest.mark.behaviour("C22", "C33")
@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.nightly)])
async def test_processes_lose_no_message(shared_config: dict[str, Any], processes: int) -> None:
    """Sixteen writers of each kind of provider, and of `replace` beside appends."""
    each = MANY // processes
    config = shared_config | {"embedder": "none"}
    spawned = [
        multiprocessing.get_context("spawn").Process(target=_in_a_process, args=(config, first, each))
        for first in range(0, MANY, each)
    ]
    for process in spawned:
        process.start()
    for process in spawned:
        await asyncio.to_thread(process.join)
    assert [process.exitcode for process in spawned] == [0] * processes
    async with Memory(config) as memory:
        for name, texts in (await _shown_every_way(memory)).items():
            assert texts == said_by(MANY, 2), name


BLOCKING: dict[str, Callable[[BlockingMemory], Any]] = {
    "buffer": lambda memory: BlockingBufferProvider(memory, max_messages=500),
    "sliding": lambda memory: BlockingSlidingWindowProvider(memory, max_turns=200, max_tokens=None),
    "summarizing": lambda memory: BlockingSummarizingProvider(
        memory, lambda asked: "sum", active_tokens=100_000
    ),
    "composite": lambda memory: BlockingCompositeProvider(
        [BlockingBufferProvider(memory, namespace=name, max_messages=500) for name in "ab"]
    ),
}


@pytest.mark.behaviour("C22", "C33")
@pytest.mark.parametrize("instances", [1, pytest.param(MANY, marks=pytest.mark.nightly)])
def test_threads_lose_no_message(config: dict[str, Any], instances: int) -> None:
    with BlockingMemory(config | {"embedder": "none"}) as memory, ThreadPoolExecutor(MANY) as pool:
        for name, kind in BLOCKING.items():
            providers = [kind(memory.for_tenant(name)) for _ in range(instances)]

            def run(writer: int, providers: list[Any] = providers) -> None:
                provider = providers[writer % instances]
                for turn in range(2):
                    provider.write(
                        [*provider.read("s"), user(f"{writer}q{turn}"), assistant(f"{writer}r{turn}")], "s"
                    )

            list(pool.map(run, range(MANY)))
            assert {message.text for message in providers[0].read("s")} == said_by(MANY, 2), name


@pytest.mark.behaviour("B67")
async def test_the_last_write_in_call_order_wins(memory: Memory) -> None:
    session = await memory.sessions.create("s")
    await session.append(user("first", "m"))
    texts = [f"v{number}" for number in range(16)]
    handles = [memory.session("s") for _ in texts]
    await asyncio.gather(
        *(handle.update("m", content=text) for handle, text in zip(handles, texts, strict=True))
    )
    assert (await session.context()).messages[0].text == texts[-1]
    await asyncio.gather(*(session.append([user("n", "n"), user(text, "m")]) for text in reversed(texts)))
    assert (await session.context()).messages[0].text == texts[0]
    await asyncio.gather(
        *(handle.tasks.save("t", title=text) for handle, text in zip(handles, texts, strict=True))
    )
    await asyncio.gather(
        *(session.runs.save("r", child_id="c", message_count=number) for number in range(16))
    )
    task, run = await session.tasks.get("t"), await session.runs.get("r")
    assert task is not None
    assert run is not None
    assert (task.title, run.message_count) == (texts[-1], 15)


@pytest.mark.behaviour("A1", "B12")
async def test_a_session_is_not_opened_for_another_owner(memory: Memory) -> None:
    ada = memory.session("monday", user="ada", agent="a", namespace="n", system="Be kind.")
    await ada.append(user("secret"))
    for field, value in {"user": "bob", "agent": "b", "namespace": "m", "system": "Be rude."}.items():
        other: Any = memory.session("monday", **{field: value})  # type: ignore[arg-type]
        for call in (
            other.context,
            other.info,
            lambda s=other: s.append(user("mine")),
            lambda s=other: s.search("secret"),
        ):
            with pytest.raises(SessionOwnerMismatch, match=field) as raised:
                await call()
            assert "ada" not in str(raised.value)
    assert [m.text for m in (await memory.session("monday").context()).messages] == ["Be kind.", "secret"]
    await memory.sessions.update("monday", system="Be brief.")
    assert (await memory.session("monday", user="ada", system="Be brief.").context()).messages[
        0
    ].text == "Be brief."
    await memory.session("nobody's").append(user("x"))
    with pytest.raises(SessionOwnerMismatch, match="user"):
        await memory.session("nobody's", user="ada").info()
    await memory.session("both", user="ada", shared=True).append(user("hello"))
    assert (await memory.session("both", user="bob").context()).messages[0].text == "hello"


@pytest.mark.behaviour("C2", "A1")
async def test_providers_of_users_share_no_default_session(memory: Memory) -> None:
    ada, bob = BufferProvider(memory, user="ada"), BufferProvider(memory, user="bob")
    await ada.write(user("ada's"))
    await ada.write(user("named"), "s")
    await bob.write(user("bob's"))
    assert [m.text for m in [*await ada.read(), *await bob.read()]] == ["ada's", "bob's"]
    for call in (bob.read("s"), bob.write(user("x"), "s"), bob.clear("s")):
        with pytest.raises(SessionOwnerMismatch):
            await call
    await bob.clear()
    assert [m.text for m in await ada.read()] == ["ada's"]
    assert len(await ada.entries()) == 2


@pytest.mark.parametrize("kind", PROVIDERS)
@pytest.mark.parametrize("named", [True, False])
async def test_what_was_erased_or_edited_since_it_was_read_is_not_written_again(
    memory: Memory, kind: str, named: bool
) -> None:
    provider = PROVIDERS[kind](memory)
    given = [
        user(text, name) if named else user(text)
        for name, text in (("m1", "zebra"), ("m2", "yellow"), ("m3", "last"))
    ]
    await provider.write(given, "s")
    mine = await provider.read("s")
    session = memory.session("n/s", create=False)
    await session.erase(mine[0].id)
    await session.update(mine[1].id, content="removed")
    handed = mine if named else [message.model_copy(update={"id": None}) for message in mine]
    await provider.write([*handed, user("next")], "s")
    assert [i.message.text for i in (await session.history()).items] == ["", "removed", "last", "next"]
    assert not [*await memory.search_messages("zebra"), *await memory.search_messages("yellow")]


async def test_a_replacement_revives_only_where_it_is_told_to(memory: Memory) -> None:
    session = await memory.sessions.create("s")
    await session.append([user("zebra", "m1"), user("stays")])
    mine = (await session.context()).messages
    await session.erase("m1")
    await session.replace(mine)
    assert [m.text for m in (await session.context()).messages] == ["stays"]
    await session.replace(mine, revive=True)
    assert sorted(m.text for m in (await session.context()).messages) == ["stays", "zebra"]
    await session.erase("m1")
    await session.append(mine[0])
    assert "zebra" in {m.text for m in (await session.context()).messages}


@pytest.mark.parametrize("kind", [*PROVIDERS, "session", "composite"])
async def test_an_erased_message_is_not_brought_back_by_who_has_not_read_it(
    memory: Memory, kind: str
) -> None:
    """A list that a process kept elsewhere, or that another part of a composite has."""
    given = [user(text, name) for name, text in (("m1", "zebra"), ("m2", "stays"))]
    provider: Any = PROVIDERS[kind](memory) if kind in PROVIDERS else memory.session("n/s", namespace="n")
    if kind == "composite":
        provider = CompositeProvider(
            [BufferProvider(memory, namespace="n"), BufferProvider(memory, namespace="slow")]
        )
    write = provider.replace if kind == "session" else lambda told: provider.write(told, "s")
    await (provider.append(given) if kind == "session" else write(given))
    session = memory.session("n/s", create=False)
    await session.erase("m1")
    if kind == "composite":
        await session.erase("m2")
        await provider.read("s")
        assert (await session.context()).messages == []
        return
    await asyncio.gather(write([*given, user("new", "m3")]))
    assert [m.text for m in (await session.context()).messages] == ["stays", "new"]
    await session.append(given[0])
    await asyncio.gather(write([*given, user("new", "m3")]))
    assert {m.text for m in (await session.context()).messages} == {"stays", "new", "zebra"}


async def test_a_session_cleared_during_a_back_fill_stays_cleared(memory: Memory) -> None:
    class Slow(BufferProvider):
        async def write(self, *args: Any, **kwargs: Any) -> list[str]:
            await whole.clear("s")
            return await super().write(*args, **kwargs)

    slow = BufferProvider(memory, namespace="slow")
    whole = CompositeProvider([Slow(memory, namespace="fast"), slow])
    await slow.write(user("zebra"), "s")
    await whole.read("s")
    assert await whole.read("s") == []
    assert not await memory.search_messages("zebra")


@pytest.mark.behaviour("B15")
async def test_sessions_are_listed_by_their_last_activity(memory: Memory) -> None:
    for name in ("quiet", "busy"):
        await memory.session(name).append(user("x"))
    used = max(info.updated_at for info in (await memory.sessions.list()).sessions) + timedelta(
        microseconds=1
    )
    await memory.session("busy").append(user("later"))
    assert [info.id for info in (await memory.sessions.list(since=used)).sessions] == ["busy"]
    assert [info.id for info in (await memory.sessions.list(since=used, by="created")).sessions] == []


async def test_archived_messages_do_not_push_others_out_of_an_answer(memory: Memory) -> None:
    provider = BufferProvider(memory, namespace="n", max_messages=1_000)
    await provider.write(
        user("heron, said at length and beside many other words that make it the last hit"), "s"
    )
    session = memory.session("n/s", create=False)
    archived = await session.append([user("heron") for _ in range(250)])
    await session.replace((await session.context()).messages[:1])
    assert len(archived) == 250
    assert [message.text[:11] for message in await provider.read("s", query="heron")] == ["heron, said"]


@pytest.mark.behaviour("B20")
@pytest.mark.parametrize("over", ["end", "archive"])
async def test_an_ended_session_takes_no_excluded_message(memory: Memory, over: str) -> None:
    session = await memory.sessions.create("s")
    await session.append([user("one", "m1"), user("two", "m2")])
    await session.exclude("m1")
    await getattr(session, over)()
    for name in ("m1", "m3"):
        for text in ("one", "changed"):
            with pytest.raises(Conflict, match="resume"):
                await session.append(user(text, name))
    assert [(item.message.text, item.excluded) for item in (await session.history()).items] == [
        ("one", "manual"),
        ("two", None),
    ]


@pytest.mark.behaviour("B24")
@pytest.mark.parametrize("kind", PROVIDERS)
@pytest.mark.parametrize("new", [True, False])
async def test_a_message_for_the_window_only_enters_the_history_when_a_provider_is_told_it(
    memory: Memory, kind: str, new: bool
) -> None:
    provider = PROVIDERS[kind](memory)
    await provider.write(user("first"), "s")
    session = memory.session("n/s", create=False)
    await session.append([user(name, name) for name in ("told", "read")], in_history=False)
    first = (await session.history()).items[0].message
    told = user("told", "told")
    await provider.write(told if new else [first, told], "s", new=new)
    assert [item.message.text for item in (await session.history()).items] == ["first", "told"]
    await session.append(user("read", "read"), in_history=False)
    read = await provider.read("s")
    await provider.write([*read, user("next")], "s")
    assert [item.message.text for item in (await session.history()).items] == ["first", "told", "next"]
    assert {message.text for message in await provider.read("s")} >= {"first", "told", "read", "next"}


CHANGES: dict[str, Callable[[Any], Any]] = {
    "append": lambda session: session.append(user("late")),
    "edit": lambda session: session.update("m1", content="edited"),
    "exclude": lambda session: session.exclude("m1"),
    "erase": lambda session: session.erase("m1"),
    "system message": lambda session: session.update("system", content="Be brief."),
}


@pytest.mark.behaviour("C22")
@pytest.mark.parametrize("change", CHANGES)
async def test_a_window_with_another_version_is_not_replaced(memory: Memory, change: str) -> None:
    session = await memory.sessions.create("s", system="Be kind.")
    await session.append([user(name, name) for name in ("m1", "m2")])
    read = await session.window()
    await CHANGES[change](session)
    now = await session.window()
    with pytest.raises(VersionConflict) as refused:
        await session.replace([user("new")], expected_version=read.window_version)
    assert refused.value.current_version == now.window_version
    assert (await session.window()).messages == now.messages
    stored = await session.replace([user("new")], expected_version=now.window_version)
    assert [one.text for one in (await session.window()).messages[1:]] == ["new"]
    assert [one.text for one in stored] == ["new"]


@pytest.mark.behaviour("C22")
async def test_one_of_several_replacements_of_one_version_wins(memory: Memory) -> None:
    await memory.session("s").append([user("one"), user("two")])
    version = (await memory.session("s").window()).window_version

    async def replace(number: int) -> bool:
        try:
            await memory.session("s").replace([user(f"new {number}")], expected_version=version)
        except VersionConflict:
            return False
        return True

    won = await asyncio.gather(*map(replace, range(MANY)))
    assert [one.text for one in (await memory.session("s").window()).messages] == [f"new {won.index(True)}"]
    assert won.count(True) == 1


@pytest.mark.parametrize("revive", [False, True])
async def test_one_of_several_edits_of_one_window_version_wins(memory: Memory, revive: bool) -> None:
    await memory.session("s").append([user(name, name) for name in ("m1", "m2")])
    version = (await memory.session("s").window()).window_version

    async def edit(number: int) -> bool:
        edited = [user(f"edit {number}", "m1"), user("m2", "m2")]
        try:
            await memory.session("s").replace(edited, expected_version=version, revive=revive)
        except VersionConflict:
            return False
        return True

    won = await asyncio.gather(*map(edit, range(MANY)))
    window = (await memory.session("s").window()).messages
    assert [one.text for one in window] == [f"edit {won.index(True)}", "m2"]
    assert won.count(True) == 1


@pytest.mark.behaviour("C22")
async def test_one_of_several_edits_of_different_messages_wins(memory: Memory) -> None:
    names = [f"m{number}" for number in range(MANY)]
    await memory.session("s").append([user(name, name) for name in names])
    version = (await memory.session("s").window()).window_version

    async def edit(name: str) -> str | None:
        edited = [user("edited" if one == name else one, one) for one in names]
        try:
            await memory.session("s").replace(edited, expected_version=version)
        except VersionConflict as conflict:
            return conflict.current_version
        return "edited"

    ends = await asyncio.gather(*map(edit, names))
    window = (await memory.session("s").window()).messages
    won = ends.index("edited")
    assert [one.text for one in window] == ["edited" if name == names[won] else name for name in names]
    assert ends.count("edited") == 1
    assert not {None, version}.intersection(ends)


async def test_a_replacement_after_another_change_edits_nothing(memory: Memory) -> None:
    session = memory.session("s")
    await session.append([user(name, name) for name in ("m1", "m2")])
    version = (await session.window()).window_version

    async def replace() -> bool:
        try:
            await memory.session("s").replace([user("edited", "m1")], expected_version=version)
        except VersionConflict:
            return False
        return True

    outcomes = await asyncio.gather(*(replace() for _ in range(3)), session.append(user("late")))
    texts = [one.text for one in (await session.window()).messages]
    assert texts == (["edited", "late"] if any(outcomes[:3]) else ["m1", "m2", "late"])


@pytest.mark.behaviour("C22")
async def test_a_part_of_a_window_has_no_version(memory: Memory) -> None:
    session = memory.session("s")
    await session.append([user("one"), user("two")])
    whole = await session.window()
    assert (await session.window()).window_version == whole.window_version
    assert (await session.context()).window_version == whole.window_version
    assert (await session.context(budget=8)).window_version is None
    assert (await session.window(last=1)).window_version is None
    for wrong in ("1", "not a version", 3):
        with pytest.raises(InvalidInput) as refused:
            await session.replace([], expected_version=wrong)  # type: ignore[arg-type]
        assert refused.value.field == "expected_version"
    assert await session.replace([], expected_version=whole.window_version, request_id="r1") == []
    assert await session.replace([], expected_version=whole.window_version, request_id="r1") == []
