"""What a run asked of the facade, as a Python script that asks it again without the
model: what a failure is reported with.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from memory.domain.entry import Entry
from tests.model.said import Failure

HEAD = '''"""{title}"""
import asyncio, datetime
from datetime import timezone
from memory import Memory
from memory.orchestrator.conversations.conversation import Checkpoint
from memory.policies.compaction_thresholds import MessageThreshold, TurnThreshold
from memory.policies.window import TokenThreshold
from tests.model.clock import ModelClock
from tests.model.operations import Joined
from tests.model.rules import Seen
from tests.model.sessions.calls import Handles, Of, Summed, View, noted
from tests.model.words import embed

CONFIG = {config!r}


async def main():
    clock = ModelClock()
    async with Memory(CONFIG, tenant="acme", embedder=embed, clock=clock, on_window_exit=noted, policies=[Seen()]) as memory:
        of, got, handles = memory.for_tenant, {{}}, Handles(clock)

        async def call(name, number, tenant, moment, ticking, *args, **kwargs):
            clock.now, clock.ticking = moment, ticking
            try:
                answer = handles.method(of(tenant), name, args)(**kwargs)
                got[number] = [x async for x in answer] if hasattr(answer, "__aiter__") else await answer
            except Exception as error:
                got[number] = error
            print(f"{{number:5}} {{tenant}}.{{name}}: {{got[number]!r}}"[:400])

'''
TAIL = """

asyncio.run(main())
"""


class Script:
    """The calls of the last operations. Ids are written as where they came from, so
    that the script works anywhere.
    """

    KEPT = 5_000

    def __init__(self) -> None:
        self._calls: list[tuple[int, datetime, str, str, tuple[Any, ...], dict[str, Any]]] = []
        self._ids: dict[str, str] = {}
        self._count = 0

    def begin(self, op: object) -> None:
        if len(self._calls) > 2 * self.KEPT:
            del self._calls[: self.KEPT]

    def called(
        self, moment: datetime, tenant: str, name: str, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        self._count += 1
        self._calls.append((self._count, moment, tenant, name, tuple(args), kwargs))

    def answered(self, answer: Any) -> None:
        """Where ids came from first. Of calls that run at once the last is taken for
        all; their ids come again in a later answer.
        """
        if isinstance(answer, Failure) or not self._calls:
            return
        number = self._calls[-1][0]
        one = answer if isinstance(answer, list) else [answer]
        for place, entry in enumerate(one[:1000]):
            where = f"got[{number}][{place}].id" if isinstance(answer, list) else f"got[{number}].id"
            if isinstance(entry, Entry) or hasattr(entry, "source_id"):
                self._ids.setdefault(entry.id, where)

    def text(self, title: str, config: dict[str, Any]) -> str:
        from tests.model.run import READING

        lines = []
        for number, moment, tenant, name, args, kwargs in self._calls:
            given = "".join(f", {arg!r}" for arg in args) + "".join(
                f", {key}={value!r}" for key, value in kwargs.items()
            )
            for known, where in self._ids.items():
                given = given.replace(repr(known), where)
            lines.append(
                f"        await call({name!r}, {number}, {tenant!r}, {moment!r},"
                f" {name.removeprefix('view.') not in READING}{given})"
            )
        body = "\n".join(lines).replace("datetime.timezone.utc", "timezone.utc")
        return HEAD.format(title=title.replace('"""', ""), config=config) + body + TAIL
