"""Running numbers: entries are shown by them and found by them; which number is whose; and what somebody might break."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from memory import Memory
from memory.facade.numbers import Numbers as Facade
from memory.orchestrator.numbers import Numbers as Engine
from memory.ports.record import Record
from tests.month import check
from tests.month.mutants import OWNERS, Method, mutant
from tests.month.operations import Gone, Operation, at_once, operation
from tests.month.said import Said, Wrong

if TYPE_CHECKING:
    from tests.month.generate import Drawn, Generator
    from tests.month.model import Id, Life, Model
    from tests.month.run import Run

NEVER_GIVEN = "#999999999"
FORMS = ("#{}", "{}", " #{} ")
LOOKED_UP = 20
"""How many of those that are gone are looked for when the whole is; others have been before."""


class Numbers:
    """Whose number is which, and which were given."""

    def __init__(self) -> None:
        self.last: dict[Id, tuple[Life, int]] = {}
        """By entry, the life to which a number was given last."""
        self.given: dict[tuple[str, int], str] = {}
        """By tenant and number, to what it was given, whether that is there still or not."""

    def standing(self, model: Model) -> dict[Id, int]:
        """The numbers of what is there: another life of the same entry has none of the former."""
        return {key: number for key, (life, number) in self.last.items() if model.lives.get(key) is life}

    def told(self, said: Said, model: Model, tenant: str, ids: Sequence[str]) -> None:
        """All that is there has a number, the one it had; one that is new was never given."""
        found, standing = said.given(), self.standing(model)
        wanted = [entry_id for entry_id in dict.fromkeys(ids) if (tenant, entry_id) in model.lives]
        if list(found) != wanted:
            said.wrong("numbers others", f"{found}, wanted {wanted}")
        for entry_id, number in found.items():
            key = tenant, entry_id
            if key in standing and number != standing[key]:
                said.wrong("gives another number", f"{number} of {entry_id}, which has {standing[key]}")
            if key not in standing and ((tenant, number) in self.given or number < 1):
                said.wrong("gives a number again", f"{number} of {entry_id}, which was of {self.given.get((tenant, number))}")
            self.last[key], self.given[tenant, number] = (model.lives[key], number), entry_id

    def named(self, model: Model, tenant: str, text: str) -> tuple[str, int | None] | None:
        """What a text names."""
        standing, number = self.standing(model), text.replace("#", "").strip()
        if number.isdigit():
            entry_id = self.given.get((tenant, int(number)), "")
            return (entry_id, int(number)) if standing.get((tenant, entry_id)) == int(number) else None
        return (text, standing.get((tenant, text))) if (tenant, text) in model.lives else None

    def stored(self, rows: Iterable[Record], model: Model) -> None:
        """Of each entry that has a number a record says so, and of nothing else."""
        found = sorted((row.key.tenant, str(row.fields["entry_id"]), int(str(row.fields["number"]))) for row in rows)
        wanted = sorted((*key, number) for key, number in self.standing(model).items())
        if found != wanted:
            raise Wrong("stored numbers are others", f"more {set(found) - set(wanted)}, less {set(wanted) - set(found)}, {len(found)} in all")


# -- what is asked -----------------------------------------------------------------------------------------------------


def _draw_number(g: Generator, run: Run, tenant: str) -> Drawn | None:
    refs = [ref for _ in range(g.chance.choice((1, 2, 5, 9))) if (ref := g.ref(run, tenant)) is not None]
    return ("number", {"entries": refs, "times": g.chance.choice((1, 1, 3))}) if refs else None


def _draw_resolve(g: Generator, run: Run, tenant: str) -> Drawn | None:
    """Mostly what has a number, or had one."""
    had = [ref for ref, key in run.made.items() if key[0] == tenant and key in run.numbers.last]
    refs = [ref for _ in range(3) if (ref := g.ref(run, tenant)) is not None] + (g.chance.choices(had, k=3) if had else [])
    return ("resolve", {"entries": refs, "form": g.chance.choice(FORMS)}) if refs else None


DRAWS: dict[str, tuple[float, Callable[[Generator, Run, str], Drawn | None]]] = {"number": (1, _draw_number), "resolve": (1, _draw_resolve)}


@operation
async def number(run: Run, op: Operation) -> None:
    """By several workers at once too: all are told the same."""
    ids = [run.made[ref][1] for ref in op.args["entries"] if ref in run.made]
    for said in await at_once(run, op, [("numbers.of", (ids,), {})] * op.args["times"]):
        run.numbers.told(said, run.model, op.tenant, ids)


@operation
async def resolve(run: Run, op: Operation) -> None:
    """By the number that something has or had, and by its id."""
    keys = [run.made[ref] for ref in op.args["entries"] if ref in run.made]
    if not keys:
        raise Gone
    numbers = [op.args["form"].format(run.numbers.last[key][1]) for key in keys if key in run.numbers.last]
    await resolved(run, op.tenant, [*numbers, *(entry_id for _, entry_id in keys), NEVER_GIVEN], worker=op.worker)


async def resolved(run: Run, tenant: str, texts: Sequence[str], *, worker: int) -> None:
    said = await run.ask(None, "numbers.resolve_many", texts, tenant=tenant, worker=worker)
    found = [None if one is None else (one.id, one.number) for one in said.given()]
    wanted = [run.numbers.named(run.model, tenant, text) for text in texts]
    if found != wanted:
        said.wrong("finds others", f"of {texts} {found}, wanted {wanted}")


@check.look
async def whole(run: Run, tenant: str, worker: int) -> None:
    """Every number of what is there, and the last of those that were of what is gone."""
    standing = [number for (owner, _), number in run.numbers.standing(run.model).items() if owner == tenant]
    gone = [number for owner, number in run.numbers.given if owner == tenant and number not in standing]
    if texts := [f"#{number}" for number in (*standing, *gone[-LOOKED_UP:])]:
        await resolved(run, tenant, texts, worker=worker)


# -- what somebody might break -----------------------------------------------------------------------------------------

OWNERS |= {"Numbers": Engine}


@mutant("numbers.of")
async def entries_are_numbered_as_they_are_asked_for(whole: Method, numbers: Facade, ids: Sequence[str], **kwargs: Any) -> Any:
    return {entry_id: place + 1 for place, entry_id in enumerate(await whole(numbers, ids, **kwargs))}


@mutant("numbers.resolve_many")
async def what_is_retired_is_not_found_by_its_number(whole: Method, numbers: Facade, texts: Sequence[str]) -> Any:
    memory = Memory._over(numbers._access)
    return [one if one is None or await memory.get(one.id) is not None else None for one in await whole(numbers, texts)]


@mutant("Numbers._reserve")
async def the_last_number_is_given_again(whole: Method, numbers: Engine, tenant: str, count: int) -> Any:
    return max(1, await whole(numbers, tenant, count) - 1)
