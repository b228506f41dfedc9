"""What the workers of a run were told of its sessions, and what may therefore never be
shown otherwise.

A message says what one of those let it say that were not surely replaced: whoever was
acknowledged, and began after another had ended, is the later one, in every reader's
eyes from his acknowledgement on. Of a call that failed nobody knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain

from memory.domain.message import Message, Role
from memory.domain.session import Context, HistoryItem
from memory.orchestrator.conversations.log.seen import REMEMBERED_FOR

SYSTEM_ID = "system"


@dataclass(slots=True)
class Call:
    """Something that was asked for. `ended` where it came back, failed, or its process
    died; `done` where that was acknowledged.
    """

    begun: float
    ended: float | None = None
    done: bool = False

    def is_over_before(self, moment: float) -> bool:
        return self.ended is not None and self.ended < moment


@dataclass(slots=True)
class Said(Call):
    """Messages without ids that one call handed in. `life` is the incarnation of the
    session that its handle was of.

    `beside`: the ids of others that it handed in with them; `knew`: the last place it
    knew of, behind which stands what was put by it.
    """

    life: str = ""
    texts: tuple[str, ...] = ()
    beside: frozenset[str] = frozenset()
    knew: int = 0


@dataclass(slots=True)
class Saying(Call):
    """A call that lets a message say this."""

    text: str = ""


@dataclass(slots=True)
class Taking(Call):
    """A call that takes messages out of the window: none of which was said after
    `knew`, and none of those `kept`.

    `read` are those that its task has read, where it may take no others.
    """

    life: str = ""
    knew: float | None = None
    kept: frozenset[str] = frozenset()
    read: frozenset[str] | None = None


@dataclass(slots=True)
class Fork(Call):
    """A session that was made of another's messages."""

    texts: tuple[str, ...] = ()
    life: str = ""


@dataclass(slots=True)
class Told:
    """What one run was told, and what of it was broken."""

    now: Callable[[], float]
    said: list[Said] = field(default_factory=list)
    sayings: dict[tuple[str, str], list[Saying]] = field(default_factory=dict)
    """By life and id: what was ever handed in for it."""
    erasings: dict[tuple[str, str], list[Call]] = field(default_factory=dict)
    users: list[Call] = field(default_factory=list)
    """Erasures of the sessions' user."""
    takings: dict[str, list[Taking]] = field(default_factory=dict)
    """By the kind of event that takes messages out of the window."""
    done: dict[tuple[str, str], bool] = field(default_factory=dict)
    """By life and label: changes that were asked for, and whether one was acknowledged."""
    closed: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By life and status: how often a session was acknowledged to have come to it."""
    ended: dict[str, float] = field(default_factory=dict)
    """Lives whose deletion was acknowledged, and when."""
    forks: dict[str, Fork] = field(default_factory=dict)
    ids: dict[str, list[str]] = field(default_factory=dict)
    """By life: the messages that are known to have been stored."""
    numbers: dict[tuple[str, int], tuple[str | None, float | None]] = field(default_factory=dict)
    """By life and number: the message that was shown under it, and when it was first
    shown to be erased.
    """
    answers: int = 0
    """How often the callback that makes entries was asked: its entries carry the
    number.
    """
    given: dict[str, int] = field(default_factory=dict)
    """By life: up to which place its log is taken as it stands, since its store was set
    back.
    """
    limits: Counter[str] = field(default_factory=Counter)
    """What is known not to hold (docs/known-limits.md), as often as it did not."""
    broken: list[str] = field(default_factory=list)

    @contextmanager
    def calling(self, call: Call) -> Iterator[None]:
        """For as long as the call takes; one that comes back is acknowledged."""
        try:
            yield
            call.done = True
        finally:
            call.ended = self.now()

    def says(self, life: str, message_id: str, saying: Saying) -> Saying:
        self.sayings.setdefault((life, message_id), []).append(saying)
        return saying

    def takes(self, kind: str, taking: Taking) -> Taking:
        self.takings.setdefault(kind, []).append(taking)
        return taking

    def has(self, life: str, *ids: str) -> None:
        known = self.ids.setdefault(life, [])
        known += [each for each in ids if each not in known]

    def stands(self, life: str, messages: Sequence[Message]) -> None:
        """These messages are there, whoever said them."""
        for message in messages:
            self.says(life, str(message.id), Saying(self.now(), self.now(), done=True, text=message.text))
        self.has(life, *(str(message.id) for message in messages))

    def may_be_erased(self, moment: float) -> bool:
        """Whether a user's erasure may be carried out after this moment: one that was
        not acknowledged is owed.
        """
        return any(not erasing.done or not erasing.is_over_before(moment) for erasing in self.users)

    def begun(self, life: str, message_id: str, text: str) -> float | None:
        """When a message was first handed in; None where nobody knows."""
        moments = [saying.begun for saying in self.sayings.get((life, message_id), ())]
        moments += [said.begun for said in self.said if said.life == life and text in said.texts]
        return min(moments, default=None)

    def erased(self) -> dict[str, Call]:
        """The texts of which nothing may be left: their erasure was acknowledged, and
        nobody has said them since.
        """
        found: dict[str, Call] = {}
        for key, erasings in self.erasings.items():
            said = self.sayings.get(key, [])
            for erasing in (each for each in erasings if each.done):
                before = {s.text for s in said if s.is_over_before(erasing.begun)}
                found |= dict.fromkeys(
                    before - {s.text for s in said if not s.is_over_before(erasing.begun)}, erasing
                )
        return found

    # -- what is read ------------------------------------------------------------------

    def read(self, life: str, since: float, items: Sequence[HistoryItem], who: str) -> None:
        """A whole history, read through a handle of this life from this moment on."""
        if self.ended.get(life, since + 1) < since:
            self.broken.append(f"{who}: a history of {life[-4:]} was read after its deletion")
        if [item.number for item in items] != list(range(1, len(items) + 1)):
            self.broken.append(f"{who}: the numbers have holes: {[item.number for item in items]}")
        for item in items:
            now, (first, gone) = str(item.message.id), self.numbers.get((life, item.number), (None, None))
            if item.is_redacted:
                self.numbers[life, item.number] = first, self.now() if gone is None else gone
            elif first not in (None, now) or (gone is not None and gone < since):
                self.broken.append(
                    f"{who}: number {item.number} was {first}{' and erased' if gone else ''}, and is {now}"
                )
            else:
                self.numbers[life, item.number] = now, gone
        shown = [
            item.message
            for item in items
            if not (item.is_summary or item.is_redacted or item.message.id == SYSTEM_ID)
        ]
        self.texts(life, since, shown, who)
        self._nothing_lost(life, since, shown, who)

    def texts(self, life: str, since: float, messages: Sequence[Message], who: str) -> None:
        """Messages as somebody was shown them who asked at this moment: each says what
        it may say, and is there once.
        """
        handed = {text for said in self.said if said.life == life for text in said.texts}
        for message in messages:
            sayings, text = self.sayings.get((life, str(message.id)), []), message.text
            if text not in handed and text not in {saying.text for saying in sayings}:
                self.broken.append(f"{who}: nobody said '{text}' in this life")
            mine = [saying for saying in sayings if saying.text == text]
            later = [s for s in sayings if s.text != text and s.done and s.is_over_before(since)]
            if mine and any(all(saying.is_over_before(after.begun) for saying in mine) for after in later):
                self.broken.append(
                    f"{who}: {message.id} says '{text}', and said '{later[-1].text}' before it was read"
                )
        gone, ids, texts = (
            self.erased(),
            Counter(str(m.id) for m in messages),
            Counter(m.text for m in messages),
        )
        self.broken += [
            f"{who}: '{t}' was erased and is shown"
            for t in texts
            if t in gone and gone[t].is_over_before(since)
        ]
        for name, often in ids.items():  # erased while pages of it were read, and said anew behind them
            if often > 1 and all(
                erasing.is_over_before(since) for erasing in self.erasings.get((life, name), ())
            ):
                self.broken.append(f"{who}: {name} is there {often} times")
        self.broken += [
            f"{who}: '{text}' is there {often} times"
            for text, often in texts.items()
            if often > 1 and text in handed
        ]

    def _nothing_lost(self, life: str, since: float, messages: Sequence[Message], who: str) -> None:
        ids, order = {str(message.id) for message in messages}, [message.text for message in messages]
        for (of, name), sayings in self.sayings.items():
            erasings = self.erasings.get((of, name), [])
            if of != life or name in ids:
                continue
            sure = [s for s in sayings if s.done and s.is_over_before(since)]
            if any(all(erasing.is_over_before(saying.begun) for erasing in erasings) for saying in sure):
                self.broken.append(f"{who}: {name} is lost")
        erasable = {
            s.text
            for (of, name), sayings in self.sayings.items()
            if of == life and (of, name) in self.erasings
            for s in sayings
        }
        for said in (said for said in self.said if said.life == life):
            found, stay = (
                [text for text in order if text in said.texts],
                [text for text in said.texts if text not in erasable],
            )
            staying = [text for text in found if text in stay]
            if said.done and said.is_over_before(since) and len(set(staying)) < len(stay):
                self.broken.append(f"{who}: of {said.texts} only {found} is left")
            if staying != stay[: len(staying)]:
                self.broken.append(f"{who}: {said.texts} is told as {found}")

    def window(self, life: str, since: float, shown: Context, who: str) -> None:
        """A window as a model would be sent it."""
        messages = shown.messages
        for at, message in enumerate(messages):
            if message.role is Role.TOOL and not (
                at and [call.id for call in messages[at - 1].tool_calls] == [message.tool_call_id]
            ):
                self.broken.append(f"{who}: the result '{message.text}' is not behind its call")
        asked = (
            since - REMEMBERED_FOR.total_seconds() if shown.degraded else since
        )  # what it remembers, while the store does not answer
        self.texts(life, asked, [m for m in messages if not m.is_summary and m.id != SYSTEM_ID], who)

    def same(self, shown: Context, items: Sequence[HistoryItem], who: str) -> None:
        """A window and a history that were read while the window did not change: the
        window has what did not leave it.
        """
        ids = {str(message.id) for message in shown.messages} | set(shown.invalid)
        staying = {
            str(item.message.id)
            for item in items
            if item.excluded is None and item.archived_by is None and not item.is_redacted
        }
        left = {str(item.message.id) for item in items if not item.is_redacted} - staying
        if not staying <= ids or ids & left:
            self.broken.append(
                f"{who}: the window lacks {sorted(staying - ids)}, and has {sorted(ids & left)}, which"
                " left it"
            )

    def cut(self, life: str, whole: Context, cut: Context, who: str) -> None:
        """The same window within a budget: its last user message is there, but where it
        was being erased between the two, and all that is, stands in the same order.
        """
        users = [
            message.id for message in whole.messages if message.role is Role.USER and not message.is_summary
        ]
        ids, order = [message.id for message in cut.messages], [message.id for message in whole.messages]
        last = [name for name in users[-1:] if (life, str(name)) not in self.erasings and not self.users]
        if last != [each for each in ids if each in last]:
            self.broken.append(f"{who}: a budget leaves out the last user message")
        if ids != [each for each in order if each in ids]:
            self.broken.append(f"{who}: a budget shows {ids} of {order}")


def summary_of(messages: Sequence[Message]) -> str:
    """What stands for these messages: their ids, and what they said."""
    said = chain.from_iterable(message.text.split(" | ")[-1].split() for message in messages)
    return f"summary of {' '.join(sorted(str(message.id) for message in messages))} | {' '.join(said)}"
