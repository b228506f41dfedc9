"""What the workers of a run were told of its sessions, and what may therefore never be otherwise; and the whole log, judged by a fold of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memory.domain.session import HistoryItem
from memory.ports.record import Record


@dataclass(slots=True)
class Said:
    """Messages that one call handed in. `life` is the incarnation of the session that its handle was of."""

    life: str
    texts: tuple[str, ...]
    acknowledged: float | None = None


@dataclass(slots=True)
class Told:
    """What one run was told, and what of it was broken."""

    said: list[Said] = field(default_factory=list)
    named: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """By life and id: the texts that were ever handed in for it."""
    sure: dict[tuple[str, str], float] = field(default_factory=dict)
    """By life and id: since when it was acknowledged."""
    done: dict[tuple[str, str], bool] = field(default_factory=dict)
    """By life and label: changes that were asked for, and whether one was acknowledged."""
    ended: dict[str, float] = field(default_factory=dict)
    """Lives whose deletion was acknowledged, and when."""
    numbers: dict[tuple[str, int], str] = field(default_factory=dict)
    """By life and number: the message that was shown under it."""
    broken: list[str] = field(default_factory=list)

    def names(self, life: str, message_id: str, text: str) -> None:
        self.named.setdefault((life, message_id), set()).add(text)

    def read(self, life: str, since: float, items: Sequence[HistoryItem], who: str) -> None:
        """A whole history, read through a handle of this life from this moment on."""
        if self.ended.get(life, since + 1) < since:
            self.broken.append(f"{who}: a history of {life[-4:]} was read after its deletion")
        if [item.number for item in items] != list(range(1, len(items) + 1)):
            self.broken.append(f"{who}: the numbers have holes: {[item.number for item in items]}")
        for item in items:
            first = self.numbers.setdefault((life, item.number), str(item.message.id))
            if first != item.message.id:
                self.broken.append(f"{who}: number {item.number} was {first} and is {item.message.id}")
        self._messages(
            life, since, [(str(item.message.id), item.message.text) for item in items if not item.is_summary and item.message.id != "system"], who
        )

    def _messages(self, life: str, since: float, there: Sequence[tuple[str, str]], who: str) -> None:
        handed = {text for said in self.said if said.life == life for text in said.texts}
        ids, texts = Counter(name for name, _ in there), Counter(text for _, text in there)
        for name, text in there:
            if text not in self.named.get((life, name), handed):
                self.broken.append(f"{who}: nobody said '{text}' in this life")
        self.broken += [f"{who}: {name} is there {often} times" for name, often in ids.items() if often > 1]
        self.broken += [f"{who}: '{text}' is there {often} times" for text, often in texts.items() if often > 1 and text in handed]
        self.broken += [f"{who}: {name} is lost" for (of, name), at in self.sure.items() if of == life and at < since and name not in ids]
        order = [text for _, text in there]
        for said in (said for said in self.said if said.life == life):
            found = [text for text in order if text in said.texts]
            if said.acknowledged is not None and said.acknowledged < since and len(set(found)) < len(said.texts):
                self.broken.append(f"{who}: of {said.texts} only {found} is left")
            if tuple(found) != said.texts[: len(found)]:
                self.broken.append(f"{who}: {said.texts} is told as {found}")

    # -- the log in the end -------------------------------------------------------------------------------------------

    def log(self, life: str, rows: Sequence[Record], window: Sequence[str], has_system: bool) -> None:
        """Every record of a life, by place; `window` is what its session shows of it."""
        number, version, compactions, status = int(has_system), 1, 0, "active"
        shown: set[int] = set()
        names: dict[int, str] = {}
        labels: Counter[str] = Counter()
        before: Record | None = None
        for place, row in enumerate(rows, start=2):
            body: Any = row.body
            data: dict[str, Any] = body.get("data") or {}
            event = row.fields["event"]
            if row.fields["place"] != place:
                self.broken.append(f"log of {life[-4:]}: place {place} is missing")
                return
            if before is not None and row.created_at <= before.created_at:
                self.broken.append(f"log of {life[-4:]}: place {place} was created no later than the one before")
            was = set(shown)
            leaving = {p for first, last in data.get("left", ()) for p in range(first, last + 1)}
            labels[str(data.get("reason"))] += 1
            if not leaving <= shown:
                self.broken.append(f"log of {life[-4:]}: place {place} takes {sorted(leaving - shown)}, which were not in the window")
            if event in ("message", "compaction"):
                number += data.get("in_history", True)
                names[place] = str(row.fields.get("message_id") or row.key.id)
            shown = _shown_after(shown - leaving, place, event, data)
            if event == "compaction":
                compactions += 1
                if body["message"]["content"] != summary_of([names[p] for p in sorted(leaving)]):
                    self.broken.append(f"log of {life[-4:]}: the summary at {place} is not of what it stands for")
            status = data["status"] if event == "closed" else "active" if event == "resumed" else status
            version += shown != was
            told = body["after"]
            if [told[0], told[1], told[3], told[5]] != [number, version, compactions, status]:
                self.broken.append(f"log of {life[-4:]}: after {place} it is told {told}, and is {[number, version, compactions, status]}")
            before = row
        self._changes(life, labels)
        if set(window) != {names[p] for p in shown}:
            self.broken.append(f"log of {life[-4:]}: the window shows {list(window)}, and is {sorted(names[p] for p in shown)}")

    def _changes(self, life: str, labels: Mapping[str, int]) -> None:
        """What was acknowledged happened once, and nothing twice."""
        for (of, label), sure in self.done.items():
            often = labels.get(label, 0)
            if of == life and (often > 1 or (sure and not often)):
                self.broken.append(f"log of {life[-4:]}: '{label}' is there {often} times")


def _shown_after(shown: set[int], place: int, event: object, data: Mapping[str, Any]) -> set[int]:
    if event in ("message", "compaction"):
        return shown | {place}
    if event == "exclude":
        return shown - {data["place"]}
    return shown | {data["place"]} if event == "restore" else shown


def summary_of(ids: Sequence[str]) -> str:
    return "summary of " + " ".join(sorted(ids))
