"""What a client may conclude from how a call ended, and nothing more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from memory.domain.errors import (
    CompactionError,
    Conflict,
    CorruptRecord,
    InvalidInput,
    NotFound,
    StoreError,
    TooMuchContention,
)
from memory.domain.time import micros
from tests.simulation.faults import Process, WorkerCrashed
from tests.simulation.history import ANY_TIME, NEVER, Act, Event, History, Moments

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Effect:
    """What a call does to one register if it takes effect. `promised`: by and by,
    certain only once nothing is owed.

    `ends`: of a window, when. `hidden_too`: a sight that is had of what is hidden as
    well. `forgotten`: an earlier life may have been by now.
    """

    act: Act
    register: str
    value: str | None = None
    keyed: bool = False
    maybe: bool = False
    promised: bool = False
    ends: Moments = NEVER
    hidden_too: bool = False
    forgotten: bool = False


Effects = Sequence[Effect]


@dataclass(frozen=True, slots=True)
class Ended:
    """When a call began and ended, and what its process's clock showed it, to tell what
    its answer was a sight of.
    """

    start: float
    end: float
    by: str
    clock: Moments
    alone: bool = False
    """Whether no fault struck meanwhile, no store was down, and nobody else was at
    work.
    """


class Attempts:
    """Makes calls for one process and writes down what each may have done."""

    def __init__(self, history: History, process: Process) -> None:
        self._history = history
        self._process = process

    async def __call__(
        self,
        by: str,
        call: Callable[[], Awaitable[T]],
        effects: Callable[[], Effects] | Effects = (),
        certain: Callable[[T], Effects] | None = None,
        *,
        about: tuple[str, str] | None = None,
        taken: Effects = (),
        partly: bool = False,
    ) -> tuple[T, Ended] | None:
        """The answer, with its effects noted; None where the call failed.

        `effects` are what it does where `certain` does not say better, given the
        answer. An error of a store, and the death of the process, leave every effect
        possible for ever. "Not found" is a sight of the register and id it was `about`,
        a conflict has the effects `taken`; other refusals mean that nothing was done,
        unless the call may be done `partly`.
        """
        history, process = self._history, self._process
        label = f"{by} {process.name}#{process.operation}"
        process.clock.watch()
        start = history.moment()
        quiet = self._quiet(start)
        history.running += 1
        try:
            answer = await call()
        except NotFound as error:
            self._taken_back(effects, start, label)
            if about is not None and about[1] == error.entry_id:
                history.note(
                    Event(about[0], Act.REFUSED, None, start, history.moment(), by=label, clock=self._clock())
                )
            return None
        except (Conflict, TooMuchContention, InvalidInput, CompactionError) as refused:
            if partly:
                self._unknown(effects, start, label)
            if isinstance(refused, TooMuchContention) and quiet():
                history.broken("refused", "-", f"{label} had nobody to contend with: {refused}")
            self._taken_back(effects, start, label)
            self._conflicts(refused, taken, start, label)
            return None
        except StoreError as error:
            if isinstance(error, CorruptRecord):
                self._refused(error, label)
            elif quiet() and not history.refuses:
                history.broken(
                    "refused",
                    "-",
                    f"{label} failed though no fault struck and nobody else was at work: {error}",
                )
            self._unknown(effects, start, label)
            return None
        except BaseException as error:
            self._unknown(effects, start, label)
            if process.dead:
                raise WorkerCrashed(process.name) from error
            raise
        finally:
            history.running -= 1
        if process.dead:
            self._unknown(effects, start, label)
            raise WorkerCrashed(process.name)
        ended = Ended(start, history.moment(), label, self._clock(), quiet())
        self._answered(certain(answer) if certain is not None else _listed(effects), ended)
        return answer, ended

    def _answered(self, effects: Effects, ended: Ended) -> None:
        for e in effects:
            event = self._event(e, ended.start, ended.end, ended.by, maybe=e.maybe)
            (self._history.note_owed if e.promised else self._history.note)(event)

    def _quiet(self, start: float) -> Callable[[], bool]:
        """Tells, when asked later, whether since now no fault struck, no store was down
        and nobody else was at work: then nothing may be refused.
        """
        history, plan = self._history, self._process.plan
        history.begun += 1
        begun, struck, alone = history.begun, len(plan.struck), history.running == 0
        return lambda: (
            alone and begun == history.begun and struck == len(plan.struck) and not history.is_down(start)
        )

    def _conflicts(self, refused: Exception, taken: Effects, start: float, label: str) -> None:
        """Who is told of a conflict saw what stands there; whose key is refused because
        its entry was deleted saw that there is nothing.
        """
        for e in taken if isinstance(refused, Conflict) else ():
            deleted = isinstance(refused, Conflict) and refused.deleted_at is not None
            told = Effect(Act.ABSENT, e.register) if deleted else e
            self._history.note(self._event(told, start, self._history.moment(), label, maybe=False))

    def _refused(self, error: CorruptRecord, label: str) -> None:
        """Only what was damaged may be refused as corrupt."""
        name = self._history.names.get(error.record_id)
        register = self._history.registers.get(name or "")
        if register is None or not register.damaged:
            self._history.broken(
                "slandered",
                name or error.record_id,
                f"{label} was told that it is corrupt, which it is not: {error}",
            )

    def _unknown(self, effects: Callable[[], Effects] | Effects, start: float, label: str) -> None:
        for e in _listed(effects):
            self._history.note(self._event(e, start, inf, label, maybe=True))
            if e.act is Act.PROMOTE or (e.act is Act.CREATE and self._history.is_derived(e.register)):
                self._history.note_may_be_taken_back(e.register, start, label)

    def _taken_back(self, effects: Callable[[], Effects] | Effects, start: float, label: str) -> None:
        """A call that derives may store an entry before it learns that a source is
        gone. Others may see the entry until the call is refused.
        """
        history, now = self._history, self._history.moment()
        for e in _listed(effects):
            if e.act is Act.CREATE and history.is_derived(e.register):
                history.note(self._event(e, start, now, label, maybe=True))
                history.note(Event(e.register, Act.FORBID, None, start, now, by=label))
                history.leaving.add(e.register)
            elif e.act is Act.PROMOTE:  # an earlier promotion's copy may be there already, and stays
                history.note(self._event(e, start, now, label, maybe=True))
                history.note(Event(e.register, Act.WIPE, None, start, now, maybe=True, by=label))

    def _event(self, e: Effect, start: float, end: float, label: str, *, maybe: bool) -> Event:
        born = e.act in (Act.CREATE, Act.PROMOTE)
        register = self._history.registers[e.register]
        hidden_from = (
            self._history.expiries.get(e.value or "", inf)
            if register.edits_its_expiry
            else register.hidden_from
        )
        hides = (hidden_from, hidden_from) if born else e.ends
        expires = (hidden_from, hidden_from) if register.edits_its_expiry and e.act is Act.UPDATE else None
        if born and e.value is None and register.edits_its_expiry:
            hides = ANY_TIME  # a copy expires when what it is a copy of did, whichever text that said
        clock = ANY_TIME if e.hidden_too else self._clock()
        return Event(
            e.register,
            e.act,
            e.value,
            start,
            end,
            maybe=maybe,
            keyed=e.keyed,
            by=label,
            clock=clock,
            hides=hides,
            forgotten=e.forgotten,
            expires=expires,
        )

    def _clock(self) -> Moments:
        """The earliest and the latest moment that the engine saw during the call."""
        shown = self._process.clock.shown()
        return ANY_TIME if shown is None else (micros(shown[0]), micros(shown[1]))


def _listed(effects: Callable[[], Effects] | Effects) -> Effects:
    return effects() if callable(effects) else effects
