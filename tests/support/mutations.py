"""Mutations: a few words changed in one function of the library, as a careless edit might
change them. A test that notices none of them proves nothing.

The text to be replaced must be there exactly once: a mutation that changes nothing, since
the function was rewritten, fails by name.
"""

from __future__ import annotations
import __future__

import asyncio
import builtins
import dis
import inspect
import sys
import textwrap
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import CodeType
from typing import Any
from unittest.mock import patch

from tests.simulation.loop import SimulatedLoop, run
from tests.support import noticed
from tests.support.repeatable import repeatable


def _places(source: str, text: str) -> list[tuple[int, int]]:
    """Where the text begins and ends in the source. However the source breaks its
    lines, a text without line breaks is found.
    """
    if source.count(text) == 1 or not text.strip():
        return [(at, at + len(text)) for at in range(len(source)) if source.startswith(text, at)]
    whole, wanted = _without_breaks(source), _without_breaks(text.strip())
    there, sought = "".join(source[at] for at in whole), "".join(text.strip()[at] for at in wanted)
    begins = [at for at in range(len(there)) if there.startswith(sought, at)]
    before, behind = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
    found = list[tuple[int, int]]()
    for at in begins:
        first, last = whole[at], whole[at + len(sought) - 1] + 1
        first -= len(before) if source[:first].endswith(before) else 0
        if behind:
            last += (
                len(behind)
                if source.startswith(behind, last)
                else len(source[last:]) - len(source[last:].lstrip())
            )
        found.append((first, last))
    return found


def _without_breaks(source: str) -> list[int]:
    """The places of what says something: neither white space nor the comma behind the
    last of several lines.
    """
    said = [at for at, character in enumerate(source) if not character.isspace()]
    return [
        at
        for at, then in zip(said, [*said[1:], None], strict=True)
        if then is None or source[at] != "," or source[then] not in ")]}"
    ]


def _globals(code: CodeType, *, inside: bool = False) -> Iterator[str]:
    """The global names that the functions of the code read."""
    if inside:
        yield from (one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL")
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _globals(part, inside=True)


@dataclass(frozen=True, slots=True)
class Mutation:
    """In a function of a module, `old` text and the `new` one; and the steps near which
    that shows.
    """

    module: Any
    function: str
    old: str
    new: str
    near: tuple[str, ...] = ()

    def patch(self) -> tuple[object, str, Any]:
        """The function's owner, its name there, and the function with the mutation."""
        owner: Any = self.module
        *path, name = self.function.split(".")
        for part in path:
            owner = getattr(owner, part)
        there = inspect.getattr_static(owner, name)
        source = textwrap.dedent(inspect.getsource(getattr(there, "__func__", there)))
        places = _places(source, self.old)
        if len(places) != 1:
            raise LookupError(f"{self.function} has {len(places)} times: {self.old!r}")
        ((first, last),) = places
        changed, found = f"{source[:first]}{self.new}{source[last:]}", dict[str, Any]()
        code = compile(
            changed, f"<{self.function} with a mutation>", "exec", flags=__future__.annotations.compiler_flag
        )
        if unknown := sorted(set(_globals(code)) - set(dir(builtins)) - set(vars(self.module))):
            raise LookupError(f"{self.function} would fail for another reason: no {', '.join(unknown)}")
        exec(code, self.module.__dict__, found)  # noqa: S102 - the engine's own source
        return owner, name, found[name]

    def seen_in(
        self,
        played: Callable[[int], Coroutine[Any, Any, Sequence[object]]],
        histories: int,
        name: str,
        *,
        has_threads: bool = False,
    ) -> bool:
        """Whether the drawn history of the seed noted by this name, played with the
        mutation, tells what is wrong or ends in a failed assertion. Where notes are
        renewed, so many histories are searched. One seed is one interleaving of tasks,
        on virtual time; a history with threads must have one task.
        """
        with self.applied():
            for seed in noticed.seeds(name, range(histories)):
                with repeatable(seed):
                    try:
                        shown = bool(
                            asyncio.run(played(seed))
                            if has_threads
                            else run(SimulatedLoop(seed), played(seed))
                        )
                    except AssertionError:
                        shown = True
                if shown:
                    noticed.note(name, seed)
                    return True
        return False

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The library with it as long as the block lasts, also where a module has the
        function by its name.
        """
        owner, name, changed = self.patch()
        original = getattr(owner, name)
        importers = [
            m for n, m in sys.modules.items() if n.startswith("memory.") and m.__dict__.get(name) is original
        ]
        with ExitStack() as stack:
            for each in {id(target): target for target in (owner, *importers)}.values():
                stack.enter_context(patch.object(each, name, changed))
            yield
