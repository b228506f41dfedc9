"""Running numbers: entries and files are shown by them and found by them; which number
is whose; and what somebody might break.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memory import Memory
from memory.facade.resources.short_ids import ShortIds as Facade
from memory.facade.runtime.access import access_of
from memory.orchestrator.entries.short_ids import ShortIds as Engine
from memory.orchestrator.storage.collections import MANIFESTS, NUMBERS
from memory.ports.collections import Collection
from memory.ports.record import Record
from tests.model import check
from tests.model.mutants import OWNERS, Method, mutant
from tests.model.operations import Gone, Operation, at_once, operation
from tests.model.said import Said, Wrong

if TYPE_CHECKING:
    from tests.model.generate import Drawn, Generator
    from tests.model.model import Id, Life, Model
    from tests.model.run import Run

NEVER_GIVEN = "#999999999"
FORMS = ("#{}", "{}", " #{} ")
LOOKED_UP = 20
"""How many of those that are gone are looked for when the whole is; others have been
before.
"""


class Numbers:
    """Whose number is which, and which were given."""

    def __init__(self) -> None:
        self.last: dict[Id, tuple[Life, int]] = {}
        """By entry, the life to which a number was given last."""
        self.of_files: dict[Id, int] = {}
        """Of files that ever had one, whether they are there still or not."""
        self.given: dict[tuple[str, int], str] = {}
        """By tenant and number, to what it was given, whether that is there still or
        not.
        """

    def standing(self, model: Model) -> dict[Id, int]:
        """The numbers of what is there: another life of the same entry has none of the
        former.
        """
        return {key: number for key, (life, number) in self.last.items() if model.lives.get(key) is life}

    def told(self, said: Said, model: Model, tenant: str, ids: Sequence[str]) -> None:
        wanted = [entry_id for entry_id in dict.fromkeys(ids) if (tenant, entry_id) in model.lives]
        for entry_id, number in self._told(said, tenant, wanted, self.standing(model)).items():
            self.last[tenant, entry_id] = model.lives[tenant, entry_id], number

    def told_of_files(self, said: Said, tenant: str, ids: Sequence[str], there: Container[str]) -> None:
        wanted = [one for one in dict.fromkeys(ids) if one in there]
        for one, number in self._told(said, tenant, wanted, self.of_files).items():
            self.of_files[tenant, one] = number

    def _told(
        self, said: Said, tenant: str, wanted: Sequence[str], standing: Mapping[Id, int]
    ) -> Mapping[str, int]:
        """All that is there has a number, the one it had; one that is new was never
        given.
        """
        found: Mapping[str, int] = said.given()
        if list(found) != wanted:
            said.wrong("numbers others", f"{found}, wanted {wanted}")
        for one, number in found.items():
            key = tenant, one
            if key in standing and number != standing[key]:
                said.wrong("gives another number", f"{number} of {one}, which has {standing[key]}")
            if key not in standing and ((tenant, number) in self.given or number < 1):
                said.wrong(
                    "gives a number again",
                    f"{number} of {one}, which was of {self.given.get((tenant, number))}",
                )
            self.given[tenant, number] = one
        return found

    def named(
        self, model: Model, tenant: str, text: str, files: Container[str]
    ) -> tuple[str, str, int | None] | None:
        """What a text names, where these files are there."""
        standing, number = self.standing(model), text.replace("#", "").strip()
        if number.isdigit():
            thing, count = self.given.get((tenant, int(number)), ""), int(number)
            if thing in files:
                return "artifact", thing, count
            return ("entry", thing, count) if standing.get((tenant, thing)) == count else None
        if text in files:
            return "artifact", text, self.of_files.get((tenant, text))
        return ("entry", text, standing.get((tenant, text))) if (tenant, text) in model.lives else None

    def stored(self, said: Mapping[Collection, Sequence[Record]], run: Run) -> None:
        """Of each entry that has a number a record says so, of each file its manifest,
        and of nothing else.
        """
        manifests = [row for row in said[MANIFESTS] if row.fields.get("number") is not None]
        named = [(row, str(row.fields["entry_id"])) for row in said[NUMBERS]] + [
            (row, str(row.fields["artifact_id"])) for row in manifests
        ]
        found = sorted((row.key.tenant, one, int(str(row.fields["number"]))) for row, one in named)
        files = [(talk.tenant, file.id) for talk, file in run.files.all()]
        numbers = self.standing(run.model) | {
            key: self.of_files[key] for key in files if key in self.of_files
        }
        wanted = sorted((*key, number) for key, number in numbers.items())
        if found != wanted:
            raise Wrong(
                "stored numbers are others",
                f"more {set(found) - set(wanted)}, less {set(wanted) - set(found)}, {len(found)} in all",
            )


# -- what is asked ---------------------------------------------------------------------


def _draw_number(g: Generator, run: Run, tenant: str) -> Drawn | None:
    refs = [ref for _ in range(g.chance.choice((1, 2, 5, 9))) if (ref := g.ref(run, tenant)) is not None]
    files = _draw_files(g, run, tenant)
    return (
        ("number", {"entries": refs, "files": files, "times": g.chance.choice((1, 1, 3))})
        if refs or files
        else None
    )


def _draw_resolve(g: Generator, run: Run, tenant: str) -> Drawn | None:
    """Mostly what has a number, or had one."""
    had = [ref for ref, key in run.made.items() if key[0] == tenant and key in run.numbers.last]
    refs = [ref for _ in range(3) if (ref := g.ref(run, tenant)) is not None] + (
        g.chance.choices(had, k=3) if had else []
    )
    files = _draw_files(g, run, tenant)
    return (
        ("resolve", {"entries": refs, "files": files, "form": g.chance.choice(FORMS)})
        if refs or files
        else None
    )


def _draw_files(g: Generator, run: Run, tenant: str) -> list[list[str]]:
    """Sessions and paths of some files that are there, or were."""
    had = [[session, path] for owner, session, path in run.files.last if owner == tenant]
    return g.chance.choices(had, k=g.chance.choice((0, 1, 3))) if had else []


DRAWS: dict[str, tuple[float, Callable[[Generator, Run, str], Drawn | None]]] = {
    "number": (1, _draw_number),
    "resolve": (1, _draw_resolve),
}


@operation
async def number(run: Run, op: Operation) -> None:
    """By several workers at once too: all are told the same."""
    ids, files = [run.made[ref][1] for ref in op.args["entries"] if ref in run.made], _files_of(run, op)
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [("short_ids.of", (ids,), {})] + (
        [("short_ids.of", (files,), {"kind": "artifact"})] if files else []
    )
    there = files_there(run, op.tenant)
    for place, said in enumerate(await at_once(run, op, calls * op.args["times"])):
        if place % len(calls):
            run.numbers.told_of_files(said, op.tenant, files, there)
        else:
            run.numbers.told(said, run.model, op.tenant, ids)


@operation
async def resolve(run: Run, op: Operation) -> None:
    """By the number that something has or had, and by its id."""
    keys = [run.made[ref] for ref in op.args["entries"] if ref in run.made]
    files = [(op.tenant, one) for one in _files_of(run, op)]
    if not keys and not files:
        raise Gone
    given = [run.numbers.last[key][1] for key in keys if key in run.numbers.last]
    given += [run.numbers.of_files[key] for key in files if key in run.numbers.of_files]
    numbers = [op.args["form"].format(number) for number in given]
    await resolved(
        run, op.tenant, [*numbers, *(one for _, one in (*keys, *files)), NEVER_GIVEN], worker=op.worker
    )


def _files_of(run: Run, op: Operation) -> list[str]:
    keys = [(op.tenant, session, path) for session, path in op.args["files"]]
    return [run.files.last[key] for key in keys if key in run.files.last]


def files_there(run: Run, tenant: str) -> set[str]:
    return {file.id for talk in run.talks.of(tenant, run.clock.now) for file in run.files.of(talk).values()}


async def resolved(run: Run, tenant: str, texts: Sequence[str], *, worker: int) -> None:
    said = await run.ask(None, "short_ids.resolve_many", texts, tenant=tenant, worker=worker)
    found = [None if one is None else (one.kind, one.id, one.number) for one in said.given()]
    files = files_there(run, tenant)
    wanted = [run.numbers.named(run.model, tenant, text, files) for text in texts]
    if found != wanted:
        said.wrong("finds others", f"of {texts} {found}, wanted {wanted}")


@check.look
async def whole(run: Run, tenant: str, worker: int) -> None:
    """Every number of what is there, and the last of those that were of what is gone."""
    standing = [number for (owner, _), number in run.numbers.standing(run.model).items() if owner == tenant]
    standing += [
        number
        for one in sorted(files_there(run, tenant))
        if (number := run.numbers.of_files.get((tenant, one))) is not None
    ]
    gone = [number for owner, number in run.numbers.given if owner == tenant and number not in standing]
    if texts := [f"#{number}" for number in (*standing, *gone[-LOOKED_UP:])]:
        await resolved(run, tenant, texts, worker=worker)


# -- what somebody might break ---------------------------------------------------------

OWNERS |= {"ShortIds": Engine}


@mutant("short_ids.of")
async def entries_are_numbered_as_they_are_asked_for(
    whole: Method, numbers: Facade, ids: Sequence[str], **kwargs: Any
) -> Any:
    return {entry_id: place + 1 for place, entry_id in enumerate(await whole(numbers, ids, **kwargs))}


@mutant("short_ids.resolve_many")
async def what_is_retired_is_not_found_by_its_number(
    whole: Method, numbers: Facade, texts: Sequence[str]
) -> Any:
    memory = Memory._over(access_of(numbers))
    return [
        one if one is None or await memory.get(one.id) is not None else None
        for one in await whole(numbers, texts)
    ]


@mutant("ShortIds._reserve")
async def the_last_number_is_given_again(whole: Method, numbers: Engine, tenant: str, count: int) -> Any:
    return max(1, await whole(numbers, tenant, count) - 1)


@mutant("ShortIds._of_artifacts")
async def files_have_a_sequence_of_their_own(
    whole: Method, numbers: Engine, tenant: str, wanted: Sequence[str]
) -> Any:
    return {one: place + 1 for place, one in enumerate(await whole(numbers, tenant, wanted))}
