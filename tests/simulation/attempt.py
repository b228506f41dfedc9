"""What a client may conclude from how a call ended, and nothing more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from memory.domain.errors import CompactionError, Conflict, InvalidInput, NotFound, StoreError
from tests.simulation.faults import Process, WorkerCrashed
from tests.simulation.history import Act, Event, History

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Effect:
    """What a call does to one register if it takes effect. `promised`: by and by, certain only once nothing is owed."""

    act: Act
    register: str
    value: str | None = None
    keyed: bool = False
    maybe: bool = False
    promised: bool = False


Effects = Sequence[Effect]


@dataclass(frozen=True, slots=True)
class Ended:
    """When a call began and ended, to tell what its answer was a sight of."""

    start: float
    end: float
    by: str


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
    ) -> tuple[T, Ended] | None:
        """The answer, with its effects noted; None where the call failed.

        `effects` are what it does where `certain` does not say better, given the answer. An error of a store, and the death of the process,
        leave every effect possible for ever. "Not found" is a sight of the register and id it was `about`; other refusals mean that
        nothing was done.
        """
        history, process = self._history, self._process
        label = f"{by} {process.name}#{process.operation}"
        start = history.moment()
        try:
            answer = await call()
        except NotFound as error:
            if about is not None and about[1] == error.entry_id:
                history.note(Event(about[0], Act.REFUSED, None, start, history.moment(), by=label))
            return None
        except (Conflict, InvalidInput, CompactionError):
            return None
        except StoreError:
            self._unknown(effects, start, label)
            return None
        except BaseException as error:
            self._unknown(effects, start, label)
            if process.dead:
                raise WorkerCrashed(process.name) from error
            raise
        if process.dead:
            self._unknown(effects, start, label)
            raise WorkerCrashed(process.name)
        ended = Ended(start, history.moment(), label)
        for e in certain(answer) if certain is not None else _listed(effects):
            event = Event(e.register, e.act, e.value, start, ended.end, maybe=e.maybe, keyed=e.keyed, by=label)
            if e.promised:
                history.note_owed(event)
            else:
                history.note(event)
        return answer, ended

    def _unknown(self, effects: Callable[[], Effects] | Effects, start: float, label: str) -> None:
        for e in _listed(effects):
            self._history.note(Event(e.register, e.act, e.value, start, inf, maybe=True, keyed=e.keyed, by=label))


def _listed(effects: Callable[[], Effects] | Effects) -> Effects:
    return effects() if callable(effects) else effects
