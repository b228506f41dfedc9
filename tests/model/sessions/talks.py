"""All sessions of a run: which there are, what is asked of one, and what becomes of
them together.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from memory.domain.session import SessionInfo
from tests.model.said import Said
from tests.model.sessions.calls import Of
from tests.model.sessions.talk import Line, Talk
from tests.model.words import is_own

if TYPE_CHECKING:
    from tests.model.model import Model
    from tests.model.operations import Operation
    from tests.model.run import Run

WORDS_KEPT = 5_000
"""Words of sessions that are looked for when they are gone; a long run is not to grow."""


class Talks:
    """The sessions of every tenant."""

    def __init__(self) -> None:
        self.all: dict[tuple[str, str], Talk] = {}
        """Those that have expired too, until a sweep has erased them."""
        self.marks: dict[str, tuple[int, int, list[int], Any]] = {}
        """By operation: of which session, behind how many lines, and the memory's own
        check-point.
        """
        self.noted_before: dict[tuple[str, str], list[str]] = {}
        """By session: the entries that were made of earlier ones of this id, which were
        not deleted with these.
        """
        self._begun = 0
        self._held: dict[tuple[int, str, str], int] = {}
        self._words: dict[str, None] = {}

    def get(self, tenant: str, session_id: str, now: datetime) -> Talk | None:
        talk = self.all.get((tenant, session_id))
        return None if talk is None or talk.is_over(now) else talk

    def of(self, tenant: str, now: datetime) -> list[Talk]:
        return [talk for (owner, _), talk in self.all.items() if owner == tenant and not talk.is_over(now)]

    def hides(self, run: Run, tenant: str, session_id: str) -> bool:
        """Whether one that has expired is held: then no other can be created under its
        id.
        """
        there = (tenant, session_id) in self.all and self.get(tenant, session_id, run.clock.now) is None
        return there and run.model.holds_all(tenant, f"session:{session_id}")

    # -- births and ends ---------------------------------------------------------------

    def begun(
        self, model: Model, said: Said, tenant: str, session_id: str, draft: dict[str, Any], info: SessionInfo
    ) -> Talk:
        """A session that the call has created."""
        if not said.begun <= info.created_at <= said.ended:
            said.wrong(
                "is created at another time", f"{info.created_at}, not between {said.begun} and {said.ended}"
            )
        self._begun += 1
        if (over := self.all.get((tenant, session_id))) is not None:
            self.expires(model, over, said.ended)
        talk = Talk(tenant, session_id, self._begun, info.created_at, **draft)
        talk.count = int(talk.system is not None)
        self.all[tenant, session_id] = talk
        return talk

    def deleted(self, run: Run, tenant: str, session_id: str, at: datetime) -> int:
        """With the entries of its scope and those that were made of it; how many of the
        scope there were.
        """
        talk = self.all.get((tenant, session_id))
        scoped = [life.id for life in run.model.in_scopes(tenant, [f"session:{session_id}"])]
        run.model.erase(tenant, f"session:{session_id}", at)
        run.model.unpin(tenant, session_id)
        run.model.unmake_said(
            tenant,
            [*(talk.noted if talk is not None else ()), *self.noted_before.pop((tenant, session_id), ())],
            at,
        )
        self.all.pop((tenant, session_id), None)
        return len(scoped)

    def goes(self, model: Model, talk: Talk) -> None:
        """A rule has deleted a session, and the entries that were made of it stay."""
        model.unpin(talk.tenant, talk.id)
        self.all.pop((talk.tenant, talk.id), None)
        self.noted_before.setdefault((talk.tenant, talk.id), []).extend(talk.noted)

    def expires(self, model: Model, talk: Talk, at: datetime) -> None:
        """A session is gone with the entries that were made of it, also by one of its
        id before; those of its scope have an end of their own.
        """
        self.goes(model, talk)
        model.bury_free(talk.tenant, self.noted_before[talk.tenant, talk.id], at)

    def made_of(self, talk: Talk) -> list[str]:
        """The entries that were made of what was said in a session, or in one of its id
        before.
        """
        return [*talk.noted, *self.noted_before.get((talk.tenant, talk.id), ())]

    def has_noted(self, talk: Talk, entry_id: str, lines: list[Line]) -> None:
        """An entry was made of these lines."""
        talk.noted[entry_id] = lines
        if self.all.get((talk.tenant, talk.id)) is not talk:
            self.noted_before.setdefault((talk.tenant, talk.id), []).append(entry_id)

    # -- words -------------------------------------------------------------------------

    def wrote(self, text: str) -> None:
        """Remember the words of their own that a text has."""
        for word in filter(is_own, text.split()):
            self._words[word] = None
            if len(self._words) > WORDS_KEPT:
                del self._words[next(iter(self._words))]

    def living_words(self) -> set[str]:
        return {
            word
            for talk in self.all.values()
            for text in talk.texts()
            for word in text.split()
            if is_own(word)
        }

    def replaced_words(self) -> set[str]:
        return {
            word
            for talk in self.all.values()
            for text in talk.texts_before()
            for word in text.split()
            if is_own(word)
        }

    def gone_words(self) -> set[str]:
        """Words that sessions held and that are to be nowhere, unless an entry holds
        them.
        """
        return self._words.keys() - self.living_words()

    # -- asking ------------------------------------------------------------------------

    async def ask(
        self,
        run: Run,
        op: Operation | None,
        method: str,
        talk: Talk,
        *args: Any,
        worker: int | None = None,
        **kwargs: Any,
    ) -> Said:
        """Call a method of a session that is there, through the handle that this worker
        keeps.
        """
        of = await self.handle(
            run, talk.tenant, talk.id, worker if worker is not None else op.worker if op is not None else 0
        )
        return await run.ask(op, f"session.{method}", of, *args, tenant=talk.tenant, worker=worker, **kwargs)

    async def handle(self, run: Run, tenant: str, session_id: str, worker: int) -> Of:
        """The handle to ask through. One that was kept of a former life says that this
        is over, and another is taken.
        """
        key = worker % len(run.workers), tenant, session_id
        talk, held = self.get(tenant, session_id, run.clock.now), self._held.pop(key, None)
        if talk is not None:
            self._held[key] = talk.serial
        stale = held is not None and (talk is None or talk.serial != held)
        if stale:
            (await run.ask(None, "session.info", Of(session_id), tenant=tenant, worker=worker)).refused(
                "NotFound"
            )
        return Of(session_id, fresh=held is None or stale)

    def holds(self, run: Run, talk: Talk, worker: int) -> None:
        """This worker has created the session through the handle that it keeps."""
        self._held[worker % len(run.workers), talk.tenant, talk.id] = talk.serial

    def lets_go(self, worker: int | None = None) -> None:
        """Of the handles of a worker, or of all: they were closed."""
        self._held = {
            key: serial for key, serial in self._held.items() if worker is not None and key[0] != worker
        }

    # -- in order ----------------------------------------------------------------------

    def speakers(self, tenant: str, name: str, now: datetime) -> Iterator[tuple[Talk, int]]:
        """Where that name stands for who speaks."""
        for talk in self.of(tenant, now):
            yield from (
                (talk, line.at) for line in talk.lines if line.said["name"] == name and not line.is_redacted
            )
