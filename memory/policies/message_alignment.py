"""Which of the messages that are handed in are stored already, and what several lists
of the same talk come to together. Pure.

A message is the same when its id is; without ids, when it says the same at the same
place of a common run. What it says is its role, its content, its calls and
the call that it answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from memory.domain.message import Message


def align_messages(written: Sequence[Message], known: Sequence[Message]) -> list[int | None]:
    """For each message that was written, the position of the known one that it is; None
    where it is new.

    First by id. Then those without one by what they say: the longest common run, the
    one nearest to the end where there are several, then what is on either side of it.
    Repeated equal messages are told apart by where they stand. A known message can only
    be followed by known ones if the written order is to be that of the log: what comes
    behind the first new one without an id is new too.
    """
    by_id = {message.id: at for at, message in enumerate(known) if message.id is not None}
    found = [None if message.id is None else by_id.get(message.id) for message in written]
    taken = {at for at in found if at is not None}
    unnamed = [at for at, message in enumerate(written) if message.id is None]
    left = [at for at in range(len(known)) if at not in taken]
    runs = _runs([_content_key(written[at]) for at in unnamed], [_content_key(known[at]) for at in left])
    for number, at in enumerate(unnamed):
        if number not in runs:
            break
        found[at] = left[runs[number]]
    return found


def behind(written: Sequence[Message], shown: Sequence[Message]) -> list[Message]:
    """What of a written list is new where lists are appended: what stands behind
    the last message of it that is known.

    Known is what has the id of one that was shown; without ids, what is aligned with
    it, and that only where the list begins as what was shown does.
    """
    named = {message.id for message in shown if message.id is not None}
    found = (
        align_messages(written, shown)
        if begins_at(written, shown)
        else [0 if message.id in named else None for message in written]
    )
    return list(written[max((number + 1 for number, at in enumerate(found) if at is not None), default=0) :])


def begins_at(written: Sequence[Message], known: Sequence[Message]) -> bool:
    """Whether the written list begins with the first of the known messages: then it is
    the whole talk, else what is new of it.
    """
    return bool(written and known) and (
        written[0].id == known[0].id if written[0].id else _content_key(written[0]) == _content_key(known[0])
    )


def merge_messages(lists: Iterable[Sequence[Message]]) -> list[Message]:
    """The lists behind each other, each message once: by id, and without ids each as
    often as the list has it that has it most.
    """
    whole: list[Message] = []
    of: dict[str, list[int]] = {}
    for messages in lists:
        free = {said: list(positions) for said, positions in of.items()}
        for message in messages:
            said = _content_key(message)
            there = free.get(said, [])
            same = [at for at in there if message.id is not None and whole[at].id == message.id]
            like = [at for at in there if message.id is None or whole[at].id is None]
            if match := (same or like):
                there.remove(match[0])
                continue
            if message.id is not None and any(message.id == other.id for other in whole):
                continue
            of.setdefault(said, []).append(len(whole))
            whole.append(message)
    return whole


def _runs(written: Sequence[str], known: Sequence[str]) -> dict[int, int]:
    """Positions that are the same: of the longest common run, then of the longest ones
    on either side of it.
    """
    found: dict[int, int] = {}
    where: dict[str, list[int]] = {}
    for at, said in enumerate(known):
        where.setdefault(said, []).append(at)
    parts = [(0, len(written), 0, len(known))]
    while parts:
        first, last, low, high = parts.pop()
        start, there, size = _longest(written[first:last], where, low, high)
        if size:
            start += first
            found |= {start + n: there + n for n in range(size)}
            parts += [(first, start, low, there), (start + size, last, there + size, high)]
    return found


def _longest(
    written: Sequence[str], where: Mapping[str, Sequence[int]], low: int, high: int
) -> tuple[int, int, int]:
    """Where the longest run begins that stands in `written` and between the known
    positions, and how long it is.

    Of equal ones the first that was written, and the last that is known: a talk that is
    written back begins as it did, and goes on at its end.
    """
    start, there, size = 0, low, 0
    lengths: dict[int, int] = {}
    for at, said in enumerate(written):
        lengths = {
            known: lengths.get(known - 1, 0) + 1 for known in where.get(said, ()) if low <= known < high
        }
        for known, length in lengths.items():
            if length > size or (length == size and start == at - length + 1):
                start, there, size = at - length + 1, known - length + 1, length
    return start, there, size


def _content_key(message: Message) -> str:
    return message.model_dump_json(include={"role", "content", "tool_calls", "tool_call_id"})
