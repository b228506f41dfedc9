"""What a run of recordings was told, and what was promised of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from memory.orchestrator.storage.collections import RUNS
from memory.ports.record import Record
from tests.simulation.extracting.elsewhere import Elsewhere
from tests.simulation.sessions.run import Run
from tests.simulation.sessions.told import Call as Asked

HEARD, SOME, NOTES = "heard", "some", "notes"
"""Stores: one that is told after each turn, one that a filter keeps a part from and
that is told at every third, one that keeps facts under keys.
"""
LEAVES_OUT = "/0"
"""How texts end that the filter of `some` leaves out."""


@dataclass(slots=True)
class Said:
    """One message that was handed in. `sure` once that was acknowledged by a recording,
    or a turn ended behind it.
    """

    text: str
    life: str
    begun: float
    sure: bool = False

    def is_for(self, store: str) -> bool:
        return store != SOME or not self.text.endswith(LEAVES_OUT)


@dataclass(frozen=True, slots=True)
class Life:
    """A session that is recorded."""

    session_id: str
    user: str
    begun: float


@dataclass(frozen=True, slots=True)
class Seen:
    """How far a store had come at a moment, as is noted, and what it had been told by
    then.
    """

    store: str
    life: str
    mark: int
    waits: bool
    calls: int
    kept: int


@dataclass(slots=True)
class Told:
    """All of one run."""

    run: Run
    stores: dict[str, Elsewhere] = field(
        default_factory=lambda: {name: Elsewhere(name) for name in (HEARD, SOME, NOTES)}
    )
    said: dict[str, Said] = field(default_factory=dict)
    lives: dict[str, Life] = field(default_factory=dict)
    erasings: list[Asked] = field(default_factory=list)
    recordings: Iterator[int] = field(default_factory=count)
    floors: dict[int, tuple[float, dict[str, int]]] = field(default_factory=dict)
    """By recording: when it was begun, and from where on each store was to be told
    then.
    """
    seen: list[Seen] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def now(self) -> float:
        return self.run.loop.time()

    def of(self, life: str) -> list[Said]:
        return [said for said in self.said.values() if said.life == life]

    def may_be_erased(self, said: Said) -> bool:
        return self.lives[said.life].user == "ada" and any(
            not e.done or not e.is_over_before(said.begun) for e in self.erasings
        )

    def runs(self) -> Iterator[tuple[str, str, int, bool]]:
        """What is noted of stores, as the memory's stores have it: store, life, mark,
        and whether something may wait.
        """
        for row in self.run.standing(RUNS):
            yield (
                str(row.fields["child_id"]),
                _life_of(row),
                int(str(row.fields["message_count"])),
                row.fields["status"] == "queued",
            )

    def look(self) -> None:
        """After every act: what is noted is remembered; and of what a store has not, it
        is noted that it may wait.
        """
        waiting = set()
        for name, life, mark, waits in self.runs():
            there = self.stores[name]
            self.seen.append(Seen(name, life, mark, waits, len(there.calls), len(there.kept)))
            if waits:
                waiting.add((name, life))
        for store in self.stores.values():
            lost = [said for said in self._untold(store) if (store.name, said.life) not in waiting]
            self.broken += [
                f"'{said.text}' has not come to '{store.name}', and nothing is noted to wait for it"
                for said in lost
            ]

    def _untold(self, store: Elsewhere) -> list[Said]:
        """What a store is owed."""
        heard = store.heard()
        sure = [
            said
            for said in self.said.values()
            if said.sure and said.life in self.lives and said.is_for(store.name)
        ]
        return [said for said in sure if said.text not in heard and not self.may_be_erased(said)]

    def noted(self, recording: int, life: str) -> None:
        """What a recording knows to have told is noted, where all goes well."""
        marks = {store: mark for store, of, mark, _ in self.runs() if of == life}
        for name, mark in marks.items():
            known = max(
                (
                    call.numbers[-1] + 1
                    for call in self.stores[name].returned
                    if call.recording == recording and call.numbers
                ),
                default=0,
            )
            if mark < known:
                self.broken.append(
                    f"'{name}' is noted to have come to {mark}, and is known to have come to {known}"
                )

    # -- in the end --------------------------------------------------------------------

    def judged(self, numbers: dict[str, dict[str, int]]) -> None:
        """Once nothing waits. `numbers`: of each life that is still there, by text."""
        self._everything_is_told()
        self._only_what_was_said_is_told(numbers)
        self._marks_are_reached(numbers)
        for name in (HEARD, SOME):
            self._in_order(self.stores[name])
            self._once(self.stores[name])
        often = Counter(self.stores[NOTES].kept.values())
        self.broken += [f"'{text}' is kept {many} times" for text, many in often.items() if many > 1]

    def _everything_is_told(self) -> None:
        for store in self.stores.values():
            self.broken += [f"'{said.text}' was never told to '{store.name}'" for said in self._untold(store)]

    def _only_what_was_said_is_told(self, numbers: dict[str, dict[str, int]]) -> None:
        """Each message under its number, and none that a filter leaves out, nor another
        life's.
        """
        names: dict[tuple[str, int], str] = {}
        for name in (HEARD, SOME):
            for call in self.stores[name].calls:
                lives = {self.said[text].life for text in call.texts}
                if len(lives) > 1:
                    self.broken.append(f"'{name}' was told at once of {len(lives)} sessions: {call}")
                for number, text in zip(call.numbers, call.texts, strict=True):
                    said = self.said[text]
                    if not said.is_for(name):
                        self.broken.append(f"'{name}' was told '{text}', which its filter leaves out")
                    there = numbers.get(said.life, {}).get(
                        text,
                        names.setdefault((said.life, number), text) if said.life not in numbers else None,
                    )
                    if there not in (number, text, None):
                        self.broken.append(
                            f"'{name}' was told '{text}' as number {number}, and that is {there}"
                        )

    def _marks_are_reached(self, numbers: dict[str, dict[str, int]]) -> None:
        """No mark was ever beyond what its store had."""
        for seen in self.seen:
            store = self.stores[seen.store]
            heard = {text for call in store.calls[: seen.calls] for text in call.texts} | set(
                list(store.kept.values())[: seen.kept]
            )
            for text, number in numbers.get(seen.life, {}).items():
                if (
                    number < seen.mark
                    and text in self.said
                    and self.said[text].is_for(seen.store)
                    and text not in heard
                ):
                    self.broken.append(
                        f"'{seen.store}' was noted to have come to {seen.mark}, and had not '{text}', number"
                        f" {number}"
                    )

    def _in_order(self, store: Elsewhere) -> None:
        """What is told for the first time is behind all that was told before."""
        last: dict[str, int] = {}
        for call in store.calls:
            if list(call.numbers) != sorted(set(call.numbers)):
                self.broken.append(f"'{store.name}' was told numbers that do not rise: {call}")
            for number, text in zip(call.numbers, call.texts, strict=True):
                life = self.said[text].life
                last[life] = max(last.get(life, -1), number)
        first: dict[tuple[str, str], int] = {}
        for call in store.calls:
            for number, text in zip(call.numbers, call.texts, strict=True):
                life = self.said[text].life
                if (life, text) in first:
                    continue
                if any(known > number for (of, _), known in first.items() if of == life):
                    self.broken.append(
                        f"'{store.name}' was told '{text}', number {number}, behind what came after it"
                    )
                first[life, text] = number

    def _once(self, store: Elsewhere) -> None:
        """What a recording knows to have told it does not tell again, nor what was
        noted when it began.
        """
        sure: dict[int, int] = {}
        returned = {id(call) for call in store.returned}
        for call in store.calls:
            floor = max(
                self.floors.get(call.recording, (0.0, {}))[1].get(store.name, 0), sure.get(call.recording, 0)
            )
            if call.numbers and call.numbers[0] < floor:
                self.broken.append(
                    f"'{store.name}' has had everything before {floor}, and is told it again: {call}"
                )
            if id(call) in returned and call.numbers:
                sure[call.recording] = call.numbers[-1] + 1

    def erased(self, rows: Sequence[tuple[Record, set[str]]]) -> None:
        """Of a user who was erased nothing waits anywhere, and no recording that was
        begun since tells it.
        """
        for erasing in (each for each in self.erasings if each.done):
            done = erasing.ended or 0.0
            gone = {
                life for life, one in self.lives.items() if one.user == "ada" and one.begun < erasing.begun
            }
            texts = {
                said.text for said in self.said.values() if said.life in gone and said.begun < erasing.begun
            }
            for row, found in rows:
                self.broken += [
                    f"'{text}' was erased with its user, and is in {row}" for text in sorted(found & texts)
                ]
            for store in self.stores.values():
                for call in store.calls:
                    if texts & set(call.texts) and self.floors.get(call.recording, (0.0, {}))[0] > done:
                        self.broken.append(f"'{store.name}' was told what had been erased: {call}")


def _life_of(row: Record) -> str:
    body: Any = row.body
    return str((body.get("metadata") or {}).get("of"))
