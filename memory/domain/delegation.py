"""The entries of a conversation, listed for an agent that gets some of its work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memory.domain.entry import EntryType
from memory.domain.escape import one_line
from memory.domain.results import ResultMixin


@dataclass(frozen=True, slots=True, repr=False)
class DelegatedEntry(ResultMixin):
    """One entry of a delegation: its subject and its ids.

    `number` is None if no short id could be read. Use `id` then.
    """

    id: str
    number: int | None
    type: EntryType
    title: str | None
    tags: tuple[str, ...]

    @property
    def line(self) -> str:
        """The entry as one line: `- #42  [reference]  Where the keys are [home, keys]`.

        It stays one line, even if the title or the tags contain line breaks.
        """
        title = one_line(self.title or "") or "(untitled)"
        tags = f" [{', '.join(map(one_line, self.tags))}]" if self.tags else ""
        return f"- #{self.id if self.number is None else self.number}  [{self.type}]  {title}{tags}"


@dataclass(frozen=True, slots=True, repr=False)
class Delegation(ResultMixin):
    """The entries of a conversation, newest first.

    An empty delegation is false, and its text is empty.
    """

    entries: tuple[DelegatedEntry, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.entries)

    @property
    def text(self) -> str:
        """The delegation for a prompt: a heading, and a line for each entry."""
        return (
            "\n".join(["Remembered in this conversation:", *(one.line for one in self.entries)])
            if self.entries
            else ""
        )

    def to_dict(self) -> dict[str, Any]:
        return {"entries": [one.to_dict() for one in self.entries], "text": self.text}
