"""Match given messages with stored ones, and merge lists of a conversation. Pure.

Messages are equal if their ids are. Without ids, they are equal if they have the same
content at the same place of a common run. The content is the role, the text, the calls
and the id of the answered call. A result without an id has that of its call, as reads
show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from memory.domain.message import Message
from memory.policies.window import arrange


def align_messages(written: Sequence[Message], known: Sequence[Message]) -> list[int | None]:
    """Return the position of the known message for each one; None for new ones.

    Ids are matched first. Messages without one are matched by content: first the
    longest common run, of several the one nearest to the end, then the messages on both
    sides of it. Repeated equal messages are distinguished by their place. After the
    first new message without an id, all others are new too. Otherwise the written order
    would differ from the order of the log.
    """
    by_id = {message.id: at for at, message in enumerate(known) if message.id is not None}
    found = [None if message.id is None else by_id.get(message.id) for message in written]
    taken = {at for at in found if at is not None}
    unnamed = [at for at, message in enumerate(written) if message.id is None]
    left = [at for at in range(len(known)) if at not in taken]
    keys, known_keys = (_content_keys(written), _content_keys(known)) if unnamed else ([], [])
    runs = _runs([keys[at] for at in unnamed], [known_keys[at] for at in left] if unnamed else [])
    for number, at in enumerate(unnamed):
        if number not in runs:
            break
        found[at] = left[runs[number]]
    return found


def behind(written: Sequence[Message], shown: Sequence[Message]) -> list[Message]:
    """Return the new messages of a list: those after its last known message.

    A message is known if it has the id of a shown one. Messages without ids are aligned
    with the shown ones, but only if both lists begin with the same message.
    """
    named = {message.id for message in shown if message.id is not None}
    found = (
        align_messages(written, shown)
        if begins_at(written, shown)
        else [0 if message.id in named else None for message in written]
    )
    return list(written[max((number + 1 for number, at in enumerate(found) if at is not None), default=0) :])


def begins_at(written: Sequence[Message], known: Sequence[Message]) -> bool:
    """Return whether both lists begin with the same message.

    Then the written list is the whole conversation; otherwise it has only new messages.
    """
    return bool(written and known) and (
        written[0].id == known[0].id if written[0].id else _content_key(written[0]) == _content_key(known[0])
    )


def merge_messages(lists: Iterable[Sequence[Message]]) -> list[Message]:
    """Concatenate the lists, with each message once.

    Messages with equal ids are the same. A message whose id no other list has is the
    same as one with equal content, because lists may give it different ids. Equal
    messages of one list all stay.
    """
    whole: list[Message] = []
    named: dict[str, int] = {}
    of: dict[str, list[int]] = {}
    for messages in lists:
        own = {named[message.id] for message in messages if message.id in named}
        free = {said: [at for at in positions if at not in own] for said, positions in of.items()}
        for message, said in zip(messages, _content_keys(messages), strict=True):
            if message.id in named:
                continue
            if free.get(said):
                at = free[said].pop(0)
            else:
                at = len(whole)
                of.setdefault(said, []).append(at)
                whole.append(message)
            if message.id is not None:
                named[message.id] = at
    return whole


def other_ids(shown: Sequence[Message], own: Sequence[Message]) -> dict[str, str]:
    """Return the own id of each shown message that the own list has under another id.

    Equal messages without a common id are paired from the end of both lists.
    """
    here, there = {message.id for message in own}, {message.id for message in shown}
    free: dict[str, list[str]] = {}
    for message, said in zip(own, _content_keys(own), strict=True):
        if message.id is not None and message.id not in there:
            free.setdefault(said, []).append(message.id)
    pairs = zip(reversed(shown), reversed(_content_keys(shown)), strict=True)
    return {
        message.id: named.pop()
        for message, said in pairs
        if message.id is not None and message.id not in here and (named := free.get(said))
    }


def _runs(written: Sequence[str], known: Sequence[str]) -> dict[int, int]:
    """Return equal positions of both lists.

    They are those of the longest common run, then of the longest runs on both sides of
    it.
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
    """Return the start of the longest common run in both lists, and its length.

    Of equally long runs it is the first written and the last known one. A conversation
    that is written back begins as before, and continues at its end.
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


def _content_keys(messages: Sequence[Message]) -> list[str]:
    calls = arrange(messages).answers
    return [_content_key(message, calls.get(at)) for at, message in enumerate(messages)]


def _content_key(message: Message, call_id: str | None = None) -> str:
    if call_id is not None:
        message = message.model_copy(update={"tool_call_id": call_id})
    return message.model_dump_json(include={"role", "content", "tool_calls", "tool_call_id"})
