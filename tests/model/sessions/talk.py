"""What one session must be, in plain Python: lines in the order in which they were
said, which of them are in the window, and why others are not.

It knows what is documented and no code. Ids and moments are the memory's to choose:
they are taken over from its answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from memory.domain.message import Message
from tests.model import rules
from tests.model.said import Said

REMEMBER = "remember"
"""Who says this wants it noted when it leaves the window: see `noted`."""
UNANSWERED = "TOOL_CALL_INTERRUPTED"
INDEXED = frozenset({"user", "assistant", "system"})

Shown = dict[str, Any]
"""A message as it is compared; see `shown`."""


def shown(message: Message) -> Shown:
    calls = [(call.id, call.name) for call in message.tool_calls]
    named = (
        "id",
        "content",
        "name",
        "tool_call_id",
        "is_error",
        "is_summary",
        "is_final",
        "finish_reason",
        "metadata",
    )
    return {"role": message.role.value, "calls": calls} | {name: getattr(message, name) for name in named}


def given(message: dict[str, Any]) -> Shown:
    """A message that was handed in, as it must be shown. Its id is None where none was
    given.
    """
    calls = [(call["id"], call["name"]) for call in message.get("tool_calls", ())]
    nothing = {
        "id": None,
        "name": None,
        "tool_call_id": None,
        "is_error": False,
        "is_summary": False,
        "is_final": True,
        "finish_reason": None,
    }
    return (
        nothing
        | {"metadata": {}}
        | {name: value for name, value in message.items() if name != "tool_calls"}
        | {"calls": calls}
    )


@dataclass(slots=True, eq=False)
class Line:
    """What was said at one place."""

    said: Shown
    at: int
    """How many lines were before it."""
    number: int | None
    turn: int
    ref: str | None = None
    """The name by which operations call it."""
    is_summary: bool = False
    excluded: str | None = None
    archived_by: str | None = None
    in_window: bool = True
    is_by_hand: bool = False
    """Whether somebody took it out of the window, rather than a replacement."""
    was_replaced: bool = False
    """Whether it goes onward by a replacement or a compaction, also where it has come
    back since.
    """
    is_redacted: bool = False
    window: tuple[int, ...] = ()
    """Of the lines, those in the window when it had just been said."""
    before: list[str] = field(default_factory=list)
    """What it said before it was edited."""
    copies: list[tuple[Talk, Line]] = field(default_factory=list)
    """In forks, and in forks of these."""
    copy_of: list[Line] = field(default_factory=list)

    @property
    def id(self) -> str:
        return str(self.said["id"])

    @property
    def role(self) -> str:
        return str(self.said["role"])

    @property
    def text(self) -> str:
        return str(self.said["content"])

    @property
    def is_pinned(self) -> bool:
        return self.role == "system" or bool(self.said["is_summary"])

    @property
    def is_found(self) -> bool:
        """Whether a search by a word of it finds it."""
        return (
            not self.is_redacted
            and self.number is not None
            and self.excluded is None
            and self.role in INDEXED
        )

    def loses(self, message: Shown) -> bool:
        """Whether something that it says is not said any more once it says this: then
        it cannot, under legal hold.
        """
        return not (
            message["content"].startswith(self.text)
            and self.said["metadata"].items() <= message["metadata"].items()
        )

    def leaves(
        self, excluded: str | None = None, archived_by: str | None = None, *, by_hand: bool = True
    ) -> None:
        self.in_window, self.excluded, self.archived_by = False, excluded, archived_by
        self.is_by_hand = by_hand and excluded is not None


@dataclass(slots=True)
class Made:
    """A compaction."""

    id: str
    line: Line
    archived: list[Line]
    names: list[str]
    """The ids of what it archived, as they were then."""
    counts: tuple[int, int]
    reason: str
    rolled_back: list[Line] = field(default_factory=list)
    """Those of them that a roll-back has taken from it."""


@dataclass(slots=True)
class Talk:
    """One session from its creation to its deletion."""

    tenant: str
    id: str
    serial: int
    """Which session of the run it is: one that is created again under its id is
    another.
    """
    created_at: datetime
    user: str | None = None
    agent: str | None = None
    namespace: str | None = None
    title: str | None = None
    tags: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    system: str | None = None
    expires_at: datetime | None = None
    touched: datetime | None = None
    """When something was last said or done in it, as it says itself."""
    status: str = "active"
    lines: list[Line] = field(default_factory=list)
    compactions: list[Made] = field(default_factory=list)
    count: int = 0
    """Messages of the history."""
    turn: int = 0
    let_go: int = 0
    """Lines of which an end has let go: nothing of them goes onward again."""
    owed: list[tuple[list[Line], Line | None]] = field(default_factory=list)
    """Lines that left together, with the summary that stands for them, of which what is
    to be noted has not been noted yet.
    """
    end_owed: int = 0
    """Sweeps to come that do the end of a session for what is in its scope then: one
    asks what is to be noted, the next finds it noted.
    """
    noted: dict[str, list[Line]] = field(default_factory=dict)
    """By the id of an entry: the lines that left together, of which it was made."""
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)
    """What the system message and titles of tasks said before."""

    def is_over(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at < now

    def taken(self, now: datetime) -> str | None:
        """The rule that ends it, or deletes it once it has ended."""
        if self.is_over(now) or rules.KEPT in self.tags:
            return None
        if self.status == "active" and self.touched is not None and now - self.touched >= rules.QUIET:
            return "quiet"
        return "over" if now - self.created_at >= rules.OVER else None

    # -- reading -----------------------------------------------------------------------

    @property
    def window(self) -> list[Line]:
        """Summaries first, then the others in order."""
        return sorted(
            (line for line in self.lines if line.in_window), key=lambda line: (not line.is_summary, line.at)
        )

    @property
    def history(self) -> list[Line]:
        return [line for line in self.lines if line.number is not None]

    @property
    def preview(self) -> str | None:
        """How the user's first message begins; these texts are short. None where it was
        erased.
        """
        first = next((line for line in self.lines if line.role == "user"), None)
        return None if first is None else " ".join(first.text.split()) or None

    def find(self, message_id: str) -> Line | None:
        return next(
            (line for line in self.lines if line.said["id"] == message_id and not line.is_redacted), None
        )

    def made(self, compaction: str | None) -> Made | None:
        return next((made for made in self.compactions if made.id == compaction), None)

    def texts(self) -> Iterable[str]:
        """Everything that is said in it now."""
        yield from (line.text for line in self.lines)
        yield from (
            str(value) for task in (*self.tasks.values(), *self.runs.values()) for value in task.values()
        )
        yield from (str(self.system), str(self.title), str(self.metadata))

    def texts_before(self) -> Iterable[str]:
        """What was said otherwise since, and was not erased: a store may keep that for
        a while, to restore.
        """
        yield from self.before
        for line in self.lines:
            yield from line.before

    # -- saying ------------------------------------------------------------------------

    def says(
        self, message: Shown, ref: str | None = None, *, in_history: bool = True, is_summary: bool = False
    ) -> Line:
        self.count += in_history
        self.turn += message["role"] == "user" and not is_summary
        line = Line(
            dict(message), len(self.lines), self.count if in_history else None, self.turn, ref, is_summary
        )
        self.lines.append(line)
        line.window = tuple(one.at for one in self.lines if one.in_window)
        return line

    def appended(
        self, said: Said, messages: Sequence[Shown], refs: Sequence[str | None], *, in_history: bool = True
    ) -> list[Line]:
        """Messages that were appended: new ones at the end; one whose id is there says
        this instead, where it stands.

        One that is given several times stands where it is given first, and says what it
        says last.
        """
        last = {message["id"]: n for n, message in enumerate(messages) if message["id"] is not None}
        there = {name: line for name in last if (line := self.find(name)) is not None}
        first = {message["id"]: n for n, message in reversed(list(enumerate(messages)))}
        firsts = [
            n
            for n, message in enumerate(messages)
            if message["id"] is None or (message["id"] not in there and first[message["id"]] == n)
        ]
        new = [n if messages[n]["id"] is None else last[messages[n]["id"]] for n in firsts]
        entering = [line for line in there.values() if in_history and line.number is None]
        returning = [line for line in there.values() if not line.in_window and line.archived_by is None]
        if (new or entering or returning) and self.status != "active":
            said.refused("Conflict")
            return []
        answers = said.given()
        if len(answers) != len(messages):
            said.wrong("answers otherwise", f"{len(answers)} of {len(messages)} messages")
        for n in new:
            if messages[n]["role"] == "tool":
                self._answered(messages[n], new=[messages[m]["id"] for m in new])
        lines = [self.says(messages[n] | {"id": answers[n].id}, refs[n], in_history=in_history) for n in new]
        for name, line in there.items():
            self.says_instead(line, messages[last[name]])
            if line in returning:
                line.in_window, line.excluded = True, None
        for line in entering:
            self.count += 1
            line.number = self.count
        for message, answer in zip(messages, answers, strict=True):
            wanted = message | {"id": answer.id} if message["id"] is None else messages[last[message["id"]]]
            if shown(answer) != wanted:
                said.wrong("answers another message", f"{shown(answer)}, wanted {wanted}")
        return lines

    def _answered(self, result: Shown, new: Sequence[str | None]) -> None:
        """The result that was made up for a call goes when a real one comes."""
        made_up = self.find(f"interrupted:{result['tool_call_id']}")
        if made_up is not None and made_up.in_window and made_up.id not in new:
            made_up.leaves("invalid_response")

    @staticmethod
    def says_instead(line: Line, message: Shown) -> None:
        line.before.append(line.text)
        line.said = message | {"id": line.said["id"]}

    # -- leaving -----------------------------------------------------------------------

    def leave(self, lines: Sequence[Line], reason: str) -> int:
        for line in lines:
            line.leaves(reason)
        return len(lines)

    def rolled_back(self, place: int, shown: Sequence[int], reason: str) -> int:
        """The window is what it was, these lines, but for what was erased since; how
        many leave it. What compactions since took out and was not in it then was not
        said.
        """
        leaving = [line for line in self.window if line.at not in shown]
        since = {made.id: made for made in self.compactions if made.line.at >= place}
        for line in [line for line in self.lines if line.archived_by in since and not line.is_redacted]:
            since[str(line.archived_by)].rolled_back.append(line)
            if line.at not in shown:
                line.leaves(reason)
        for line in [self.lines[at] for at in shown]:
            if not line.is_redacted:
                line.in_window, line.excluded, line.archived_by = True, None, None
        return self.leave(leaving, reason)

    def replaced(self, lines: Sequence[Line]) -> None:
        """They leave for a list that is without them, and go onward by that."""
        self._let_go(lines)
        for line in lines:
            line.leaves("replaced", by_hand=False)
            line.was_replaced = line.was_replaced or line.at >= self.let_go

    def compacted(
        self,
        compaction_id: str,
        summary: Shown,
        archived: Sequence[Line],
        counts: tuple[int, int],
        reason: str,
        ref: str,
    ) -> None:
        let_go = self._let_go(archived)
        for line in archived:
            line.leaves(archived_by=compaction_id)
            line.was_replaced = line.was_replaced or line.at >= self.let_go
        line = self.says(summary | {"id": summary["id"] or compaction_id}, ref, is_summary=True)
        if let_go:
            self.owed[-1] = (self.owed[-1][0], line)
        self.compactions.append(
            Made(compaction_id, line, list(archived), [one.id for one in archived], counts, reason)
        )

    def ended(self) -> None:
        if self.status != "ended":
            self.status = "ended"
            if self._let_go(self.window):
                self.let_go = len(self.lines)

    @property
    def owes_its_end(self) -> bool:
        return self.end_owed > 0 and self.status == "ended"

    def _let_go(self, lines: Sequence[Line]) -> bool:
        leaving = [line for line in lines if line.at >= self.let_go]
        if leaving:
            self.owed.append(([line for line in leaving if not line.was_replaced], None))
        return bool(leaving)

    def erased(self, line: Line, reaches: Callable[[Talk], bool]) -> list[str]:
        """Nothing is left of what was said there, of summaries that may say it, and of
        copies in the forks that this `reaches`; the ids of the entries that go with it.
        """
        if line.in_window:
            line.leaves("erased")
        line.is_redacted, line.before = True, []
        nothing = given({"role": line.role, "content": "", "is_summary": line.said["is_summary"]})
        line.said = nothing | {"id": line.said["id"]}
        entries = [entry_id for entry_id, of in self.noted.items() if line in of]
        for made in self.compactions:
            if line in made.archived and not made.line.is_redacted:
                entries += self.erased(made.line, reaches)
        for fork, copy in line.copies:
            if not copy.is_redacted and reaches(fork):
                entries += fork.erased(copy, reaches)
        return entries

    def copies(self, line: Line) -> None:
        """A fork begins with a copy of this line."""
        copy = self.says(line.said, line.ref)
        copy.copy_of = [line, *line.copy_of]
        for one in copy.copy_of:
            one.copies.append((self, copy))


def told_of(owed: Iterable[Line]) -> list[Line]:
    """What the callback is told of lines that left together: those that were taken out
    by hand or erased since are left out.
    """
    said = [line for line in owed if line.number is not None and not line.is_summary and not line.is_redacted]
    left = [line for line in said if line.in_window or not line.is_by_hand]
    return sorted(left, key=lambda line: line.at)


def made_of(owed: Iterable[Line], summary: Line | None) -> list[Line]:
    """What takes with it, when it is erased, what was made of these lines: each that
    was told, and the summary told with them.
    """
    return told_of(owed) + ([] if summary is None or summary.is_redacted else [summary])


def notes_of(told: Iterable[Line]) -> list[str]:
    return [f"noted: {line.text}" for line in told if REMEMBER in line.text.split()]


# -- what a model is sent --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arranged:
    """A window in blocks that are never parted: a call with its results, or one
    message. `orphans` are results that answer no call.
    """

    blocks: list[list[Line]]
    orphans: list[Line]
    open_calls: list[tuple[Line, str]]

    @property
    def order(self) -> list[Line]:
        return [line for block in self.blocks for line in block]

    @property
    def movable(self) -> list[list[Line]]:
        return [block for block in self.blocks if not block[0].is_pinned]

    @property
    def turns(self) -> list[list[Line]]:
        """Each ends at an assistant's message without calls."""
        turns: list[list[Line]] = [[]]
        for block in self.movable:
            turns[-1] += block
            if block[0].role == "assistant" and not block[0].said["calls"]:
                turns.append([])
        return [turn for turn in turns if turn]


def arranged(window: Sequence[Line]) -> Arranged:
    blocks: list[list[Line]] = []
    orphans: list[Line] = []
    waiting: dict[str, tuple[Line, list[Line]]] = {}
    for line in window:
        if line.role != "tool":
            blocks.append([line])
            waiting |= {call: (line, blocks[-1]) for call, _ in line.said["calls"]}
        elif (asked := waiting.pop(str(line.said["tool_call_id"]), None)) is not None:
            asked[1].append(line)
        else:
            orphans.append(line)
    return Arranged(blocks, orphans, [(line, call) for call, (line, _) in waiting.items()])


def completed(found: Arranged) -> Arranged:
    """The window as a model is sent it: a stand-in answers each call that has no
    result.
    """
    blocks = [list(block) for block in found.blocks]
    for number, (line, call) in enumerate(found.open_calls, start=1):
        block = next(block for block in blocks if block[0] is line)
        block.append(Line(unanswered(call), at=-number, number=None, turn=line.turn))
    return Arranged(blocks, found.orphans, found.open_calls)


def unanswered(call: str) -> Shown:
    """The result of a call that was never answered."""
    return given(
        {
            "id": f"interrupted:{call}",
            "role": "tool",
            "content": UNANSWERED,
            "tool_call_id": call,
            "is_error": True,
        }
    )


def from_user(shown: Sequence[Line]) -> list[Line]:
    """What is shown, from the first message of the user on; all of it where the user
    says nothing there.
    """
    first = next((n for n, line in enumerate(shown) if line.role == "user" and not line.is_pinned), 0)
    return [line for n, line in enumerate(shown) if n >= first or line.is_pinned]


def last_user(window: Sequence[Line]) -> Line | None:
    return max(
        (line for line in window if line.role == "user" and not line.said["is_summary"]),
        key=lambda line: line.at,
        default=None,
    )


def archived_by_hand(window: Sequence[Line], keep_last: int) -> list[Line]:
    """What a compaction takes: all but the last so many, calls with their results, and
    an earlier summary in any case.
    """
    blocks = arranged(window).movable
    return _but(window, blocks[_cut(blocks, keep_last) :])


def archived_by_policy(window: Sequence[Line], keep_last: int) -> list[Line]:
    """As by hand, but the last user message stays with all behind it; nothing where
    only summaries would go.
    """
    blocks, last = arranged(window).movable, last_user(window)
    cut = min([_cut(blocks, keep_last), *(n for n, block in enumerate(blocks) if last in block)])
    archived = _but(window, blocks[cut:])
    return archived if any(not line.said["is_summary"] for line in archived) else []


def _cut(blocks: Sequence[Sequence[Line]], keep_last: int) -> int:
    cut = len(blocks)
    while cut > 0 and sum(map(len, blocks[cut:])) < keep_last:
        cut -= 1
    return cut


def _but(window: Sequence[Line], kept: Sequence[Sequence[Line]]) -> list[Line]:
    stay = [line for block in kept for line in block]
    return [line for line in window if line not in stay]


def fitting(lines: Sequence[Line], costs: dict[int, int], room: int) -> tuple[list[Line], int]:
    """Of a window that is shown, what has room, and by how much what must be shown is
    too much. `costs` are by the lines' places.

    Pinned lines and the block of the last user message have room before all others;
    then blocks from the newest back, up to the first that has none.
    """
    blocks, last = arranged(lines).movable, last_user(lines)
    taken = [block for block in blocks if last in block]
    tokens = sum(
        costs[line.at] for block in ([line for line in lines if line.is_pinned], *taken) for line in block
    )
    for block in reversed(blocks):
        if block in taken:
            continue
        cost = sum(costs[line.at] for line in block)
        if tokens + cost > room:
            break
        taken.append(block)
        tokens += cost
    kept = [line for block in taken for line in block]
    return [line for line in lines if line.is_pinned or line in kept], max(0, tokens - room)
