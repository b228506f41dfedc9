"""The log of a session as its store has it in the end, record by record, judged by a
fold of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from memory.ports.record import Record
from tests.simulation.sessions.told import Said, Taking, Told

TAKES = ("clear", "roll_back", "replace", "compaction")
"""Events by which messages leave the window together."""
BY_POLICY = "auto"
"""The reason of a compaction that a policy decides on."""


class LogCheck:
    """Goes through the records of one life of a session, in the order of their places."""

    def __init__(self, told: Told, life: str, *, has_system: bool) -> None:
        self._told, self._life = told, life
        self._who = f"log of {life[-4:]}"
        self.number, self.version, self.turn, self.compactions, self.status, self.exited_until = (
            int(has_system),
            1,
            0,
            0,
            "active",
            0,
        )
        self.window: set[int] = set()
        self.rows: dict[int, Record] = {}
        self._labels: Counter[str] = Counter()
        self._closed: Counter[str] = Counter()
        self._archived: set[int] = set()
        self._gone_onward: set[int] = set()
        self.leaving: dict[int, list[int]] = {}
        """By the place of the event: the messages that went onward by it, and by none
        before it.
        """
        self._excluded: dict[int, list[int]] = {}
        """Messages that were taken out otherwise than by a compaction, and at which
        places.
        """
        self._restored: set[int] = set()
        self.said: list[str] = []
        """The state of the session."""

    def go_through(self, rows: Sequence[Record]) -> None:
        before: Record | None = None
        for place, row in enumerate(rows, start=2):
            if row.fields["place"] != place:
                self._wrong(f"place {place} is missing")
                return
            if before is not None and row.created_at <= before.created_at:
                self._wrong(f"place {place} was created no later than the one before")
            before = self.rows[place] = row
            self._take(place, row)
        self._are_stated()
        for (of, label), sure in self._told.done.items():
            if of == self._life and (self._labels[label] > 1 or (sure and not self._labels[label])):
                self._wrong(f"'{label}' is there {self._labels[label]} times")
        for (of, status), often in self._told.closed.items():
            if of == self._life and self._closed[status] < often:
                self._wrong(
                    f"it came to be {status} {self._closed[status]} times, and {often} were acknowledged"
                )

    def name(self, place: int) -> str:
        row = self.rows[place]
        return str((None if self.is_redacted(place) else row.fields.get("message_id")) or row.key.id)

    def is_redacted(self, place: int) -> bool:
        return bool(data_of(self.rows[place]).get("redacted"))

    def was_taken_out(self, place: int) -> bool:
        """Whether a message was ever taken out of the window by hand: but by a
        compaction, or a cut.
        """
        return any(
            self.rows[by].fields["event"] != "replace" for by in self._excluded.get(place, ())
        ) or self.is_redacted(place)

    def may_be_in_a_summary(self, place: int) -> bool:
        """docs/known-limits.md: excluded, erased, and taken back by who had read
        it before, all while one compaction was under way.
        """
        return place in self._excluded and place in self._restored

    def _wrong(self, what: str) -> None:
        self._told.broken.append(f"{self._who}: {what}")

    def _take(self, place: int, row: Record) -> None:
        data, event, shown = data_of(row), str(row.fields["event"]), set(self.window)
        left = set(_places(data.get("left", ())))
        self._labels[str(data.get("reason"))] += 1
        if not left <= shown:
            self._wrong(f"place {place} takes {sorted(left - shown)}, which were not in the window")
        if event in TAKES and not self._is_given(place):
            self._taken(place, event, left, data)
        if event in ("message", "compaction"):
            self._said(place, event, row)
        if event == "compaction":
            self._compacted(place, row, left, data)
        if event == "replace":
            self._leave(place, {each for each in left if each > self.exited_until}, data)
        self._leaves(place, event, left, data)
        if event == "edited":
            self.number += data.get("enters", False)
        if event in ("closed", "resumed"):
            self._turned(place, event, data, shown)
        if "state" in data:
            self._stated(place, data["state"])
        self.version += shown != self.window
        body: Any = row.body
        told, true = (
            body["after"],
            [self.number, self.version, self.turn, self.compactions, self.status, self.exited_until],
        )
        if [told[0], told[1], told[2], told[3], told[5], told[8]] != true:
            self._wrong(f"after {place} it is told {told}, and is {true}")

    def _stated(self, place: int, state: Any) -> None:
        """A state adds the label of its messages to the one before, and nothing is lost."""
        *before, label = state["said"]
        texts = [self._text(self.rows[each]) for each in (place - 1, place) if each in self.rows]
        if before != self.said:
            self._wrong(f"place {place} has the state {state}, and before it was {self.said}")
        if not self.is_redacted(place) and texts[-1] != f"{label}/b":
            self._wrong(f"place {place} says {texts[-1]} with the state of {label}")
        self.said = state["said"]

    def _are_stated(self) -> None:
        """Messages that came with a state are there with it: both of them, or neither."""
        for place in self.rows:
            label, _, part = self._text(self.rows[place]).partition("/")
            if part == "a" and place + 1 not in self.rows:
                self._wrong(f"place {place} is there without the rest of {label}")
            if part == "b" and label not in self.said and not self._is_given(place):
                self._wrong(f"place {place} is there without the state of {label}")

    def _is_given(self, place: int) -> bool:
        return place <= self._told.given.get(self._life, 0)

    def _said(self, place: int, event: str, row: Record) -> None:
        if self.status != "active" and not self._is_given(place) and not self._is_begun(place, row):
            self._wrong(f"at place {place} something was said while the session was {self.status}")
        self.number += data_of(row).get("in_history", True) and "number" not in data_of(row)
        self.turn += event == "message" and row.fields.get("message_role") == "user"
        self.window.add(place)

    def _leaves(self, place: int, event: str, left: set[int], data: Any) -> None:
        """What leaves the window, and what comes back into it."""
        out = {data["place"]} if event in ("exclude", "erased") else left
        self.window -= out
        if event != "compaction":
            for each in out:
                self._excluded.setdefault(each, []).append(place)
        if event == "roll_back":
            self._rolled_back(place, data)
        if event == "restore":
            self.window.add(data["place"])
            self._restored.add(data["place"])
            if data["place"] in self._archived:
                self._wrong(f"place {place} takes {data['place']} back, which a summary stands for")

    def _rolled_back(self, place: int, data: Any) -> None:
        """What had left the window comes back, and what compactions had taken out and
        was not in it has not been said.
        """
        back, late = set(_places(data.get("back", ()))), set(_places(data.get("late", ())))
        if wrong := late - self._archived:
            self._wrong(f"place {place} takes {sorted(wrong)} from a compaction, which had not taken them")
        if wrong := back & self.window | back - set(self.rows):
            self._wrong(f"place {place} takes {sorted(wrong)} back, which had not left the window")
        self.window |= back
        self._restored |= back
        self._archived -= back | late
        for each in late:
            self._excluded.setdefault(each, []).append(place)

    def _turned(self, place: int, event: str, data: Any, shown: set[int]) -> None:
        self.status = data["status"] if event == "closed" else "active"
        self._closed[self.status] += 1
        if self.status == "ended":
            self._leave(place, {each for each in shown if each > self.exited_until}, data)
            self.exited_until = place if data.get("leaves") else self.exited_until

    def _is_begun(self, place: int, row: Record) -> bool:
        """Whether it is of messages that were said together, some of which came before
        the session was closed: what was begun is ended. If it, or one before it, was
        erased since: whether it may be.
        """
        before = {at: row for at, row in self.rows.items() if at < place}
        texts, standing = (
            {self._text(each) for each in before.values()},
            {self._text(each) for each in self.rows.values()},
        )
        was_erased = any(self.is_redacted(at) for at in before)
        begun = [
            set(said.texts)
            for said in self._told.said
            if texts & set(said.texts)
            or (was_erased and set(said.texts) - standing)
            or any(self._is_of(said, at) for at in before)
        ]
        return any(self._text(row) in said or (self.is_redacted(place) and said - standing) for said in begun)

    def _is_of(self, said: Said, place: int) -> bool:
        """Whether a replacement put it: what it handed back, and was not there any
        more.
        """
        return (
            place > said.knew
            and bool(said.beside)
            and (self.name(place) in said.beside or self.is_redacted(place))
        )

    def _text(self, row: Record) -> str:
        body: Any = row.body
        return str((body.get("message") or {}).get("content"))

    def _taken(self, place: int, event: str, left: Iterable[int], data: Any) -> None:
        """No call takes what was said while it was under way: what it did not know of,
        and what it was to keep.
        """
        takings = [taking for taking in self._told.takings.get(event, ()) if taking.life == self._life]
        if not any(all(self._may_take(taking, each) for each in left) for taking in takings):
            self._wrong(
                f"place {place} ({event}, {data.get('reason')}) takes what no call of its kind knew of:"
                f" {sorted(left)}"
            )

    def _may_take(self, taking: Taking, place: int) -> bool:
        begun = self._told.begun(self._life, self.name(place), self._text(self.rows[place]))
        if taking.knew is None or (begun is not None and begun > taking.knew):
            return False
        if self.rows[place].fields.get("message_role") == "tool":
            return True  # one whose call left is shown to nobody
        is_read = taking.read is None or self.name(place) in taking.read or self.is_redacted(place)
        return is_read and self.name(place) not in taking.kept

    def _compacted(self, place: int, row: Record, left: set[int], data: Any) -> None:
        self.compactions += 1
        self._archived |= left
        self._leave(place, {each for each in left if each > self.exited_until}, data)
        redacted = [each for each in left if self.is_redacted(each)]
        if data.get("redacted"):
            return
        body: Any = row.body
        if redacted:
            if all(self.may_be_in_a_summary(each) for each in redacted):
                self._told.limits["an erased message stays in a summary"] += 1
            else:
                self._wrong(f"the summary at {place} is of {redacted} too, which were erased")
        elif body["message"]["content"].split(" | ")[0] != "summary of " + " ".join(
            sorted(self.name(p) for p in left)
        ):
            made = body["message"]["content"]
            self._wrong(
                f"the summary at {place} is not of what it stands for, {sorted(self.name(p) for p in left)},"
                f" but says '{made}'"
            )
        if data.get("reason") == BY_POLICY:
            self._keeps_the_last_user_message(place, left)

    def _keeps_the_last_user_message(self, place: int, left: set[int]) -> None:
        """It keeps the one that was the last when it was decided: one that has left the
        window since was that, where there is one.
        """
        users = [
            at
            for at in self.window
            if self.rows[at].fields["event"] == "message"
            and self.rows[at].fields.get("message_role") == "user"
        ]
        last = max(users, default=0)
        since = [
            at
            for at, by in self._excluded.items()
            if at > last and self.rows[at].fields.get("message_role") == "user" and max(by) > at
        ]
        if last in left and not since:
            self._wrong(f"the policy's compaction at {place} takes the last user message, {last}")

    def _leave(self, place: int, leaving: set[int], data: Any) -> None:
        """What leaves by this event is made entries of by it, and by no other: what was
        cut off and came back went by the cut.
        """
        leaves = set(_places(data.get("leaves", ())))
        if leaves != leaving:
            self._wrong(f"by {place} go onward {sorted(leaves)}, and left {sorted(leaving)}")
        if again := leaves & self._gone_onward - self._restored:
            self._wrong(f"by {place} go onward {sorted(again)}, which went before")
        if leaves:
            self.leaving[place] = sorted(leaves - self._gone_onward)
        self._gone_onward |= leaves


def data_of(row: Record) -> Any:
    return row.body.get("data") or {}


def _places(ranges: Iterable[Sequence[int]]) -> list[int]:
    return [place for first, last in ranges for place in range(first, last + 1)]
