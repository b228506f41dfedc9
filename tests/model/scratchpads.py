"""Scratchpads: agents append to them, at once too, read and clear them; what must stand
there; and what somebody might break.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from memory.facade.resources.admin import Admin
from memory.facade.resources.scratchpads import Scratchpads
from memory.ports.record import Record
from tests.model import check
from tests.model.model import MICROSECOND
from tests.model.mutants import Method, mutant
from tests.model.operations import Operation, at_once, carried, operation
from tests.model.said import Said, Wrong
from tests.model.words import own_word, owned

if TYPE_CHECKING:
    from tests.model.generate import Drawn, Generator
    from tests.model.run import Run

AGENTS = (None, "builder", "re_viewer-2")
CAP = 4 * 2**20
FILLING = "and so it went on "
FILLINGS = (0, 70_000, 232_000)
"""How often it is said: not at all, so often that a text goes in parts, or that it has
room in a scratchpad where little else stands.
"""
WORDS_KEPT = 5_000
"""Words of scratchpads that are looked for when they are gone; a long run is not to
grow.
"""

Pad = tuple[str, str | None]
"""Tenant and agent; None: the one that is shared."""


class Pads:
    """The scratchpads of every tenant."""

    def __init__(self) -> None:
        self.texts: dict[Pad, str] = {}
        """Of those that anything was appended to, also where it was cleared."""
        self.changed: dict[Pad, tuple[datetime, datetime]] = {}
        """Within which time each was last."""
        self._words: dict[str, None] = {}

    def of(self, tenant: str) -> dict[str | None, str]:
        """Those in which anything stands, by agent."""
        return {agent: text for (owner, agent), text in self.texts.items() if owner == tenant and text}

    def appended(self, said: Said, pad: Pad, text: str) -> None:
        if not text.strip():
            said.refused("InvalidInput")
            return
        self._words |= dict.fromkeys(owned(text))
        for word in list(self._words)[:-WORDS_KEPT]:
            del self._words[word]
        stands = f"{self.texts.get(pad, '')}## {said.begun:%Y-%m-%dT%H:%M:%SZ}\n{text}\n"
        if (size := len(stands.encode())) > CAP:
            said.refused("ScratchpadFull")
            return
        said.equals(size)
        self._now_stands(said, pad, stands)

    def cleared(self, said: Said, pad: Pad) -> None:
        said.equals(bool(self.texts.get(pad)))
        if said.value:
            self._now_stands(said, pad, "")

    def _now_stands(self, said: Said, pad: Pad, text: str) -> None:
        """It changes after the change before, also where that is ahead of our clock."""
        _, before = self.changed.get(pad, (said.begun, said.begun))
        self.texts[pad], self.changed[pad] = text, (said.begun, max(said.ended, before + MICROSECOND))

    def living_words(self) -> set[str]:
        return {word for text in self.texts.values() for word in owned(text)}

    def gone_words(self) -> set[str]:
        return self._words.keys() - self.living_words()

    def stored(self, rows: Iterable[Record]) -> None:
        """The rows of what stands there and their parts; of what was cleared, and of
        the cleared copies of elsewhere, no text is left.
        """
        sizes, parts, wanted = (
            Counter[tuple[str, str]](),
            Counter[tuple[str, str]](),
            Counter[tuple[str, str]](),
        )
        for row in rows:
            place, fields = (row.key.tenant, row.scope), row.fields
            if fields.get("place") is None:
                parts[place] += 1
            else:
                sizes[place] += int(str(fields["bytes"]))
                wanted[place] += int(str(fields.get("parts") or 0))
        told = {
            (tenant, f"scratchpad:{agent or ''}"): len(text.encode())
            for (tenant, agent), text in self.texts.items()
        }
        if +sizes != +Counter(told) or parts != +wanted:
            raise Wrong("stored scratchpads are others", f"{+sizes} in {parts}, wanted {told} in {wanted}")


# -- what agents do --------------------------------------------------------------------


def draw_append(g: Generator, run: Run, tenant: str) -> Drawn | None:
    """Mostly one small text; now and then several at once, a large one, or one that
    says nothing.
    """
    filling = g.chance.choices(FILLINGS, (30, 1.5, 1))[0]
    texts = [
        f"{g.text(f'n{number}')} {own_word(g.number, f'm{number}')}"
        for number in range(g.chance.choice((1, 1, 1, 3)))
    ]
    texts = [" \n"] if g.chance.random() < 0.04 else texts
    return "append_to_scratchpad", {"agent": g.chance.choice(AGENTS), "texts": texts, "filling": filling}


def draw_of_one(kind: str) -> Callable[[Generator, Run, str], Drawn | None]:
    return lambda g, run, tenant: (kind, {"agent": g.chance.choice(AGENTS)})


DRAWS: dict[str, tuple[float, Callable[[Generator, Run, str], Drawn | None]]] = {
    "append_to_scratchpad": (2, draw_append),
    "read_scratchpad": (0.7, draw_of_one("read_scratchpad")),
    "clear_scratchpad": (0.7, draw_of_one("clear_scratchpad")),
}


@operation
async def append_to_scratchpad(run: Run, op: Operation) -> None:
    """By several workers at once they come one after the other, in the order that the
    sizes tell.
    """
    pad, filling = (op.tenant, op.args["agent"]), FILLING * op.args["filling"]
    calls = [("scratchpads.append", (filling + text, pad[1]), dict[str, Any]()) for text in op.args["texts"]]
    answers = (
        [await run.ask(op, *calls[0][:1], *calls[0][1])] if len(calls) == 1 else await at_once(run, op, calls)
    )
    inorder = sorted(
        zip(answers, calls, strict=True), key=lambda one: CAP + 1 if one[0].failure else one[0].value
    )
    for said, (_, (text, _), _) in inorder:
        run.pads.appended(said, pad, text)
    await stands(run, pad, worker=op.worker)


@operation
async def read_scratchpad(run: Run, op: Operation) -> None:
    await stands(run, (op.tenant, op.args["agent"]), worker=op.worker)


@operation
async def clear_scratchpad(run: Run, op: Operation) -> None:
    """Not while all of the tenant is held."""
    pad = (op.tenant, op.args["agent"])
    said = await run.ask(op, "scratchpads.clear", pad[1])
    if run.model.holds_all(op.tenant, f"scratchpad:{pad[1] or ''}"):
        said.refused("LegalHoldActive")
    else:
        run.pads.cleared(said, pad)
    await stands(run, pad, worker=op.worker)


# -- what must stand there -------------------------------------------------------------


async def stands(run: Run, pad: Pad, *, worker: int, elsewhere: str | None = None) -> None:
    """`elsewhere`: as it was imported for that tenant, where nothing is imported of
    what was cleared.
    """
    told = (
        await run.ask(None, "scratchpads.read", pad[1], tenant=elsewhere or pad[0], worker=worker)
    ).given()
    wanted, exists = run.pads.texts.get(pad, ""), pad in run.pads.texts
    if elsewhere is not None:
        exists = bool(wanted)
    if told.content != wanted:
        same = next(place for place, two in enumerate(zip_longest(told.content, wanted)) if two[0] != two[1])
        differs = f"from {same} on {told.content[same : same + 200]!r}, wanted {wanted[same : same + 200]!r}"
        raise Wrong(
            "a scratchpad says otherwise", f"{pad}: {len(told.content)} of {len(wanted)} letters, {differs}"
        )
    if (told.agent, told.exists, told.size, told.damaged) != (pad[1], exists, len(wanted.encode()), 0):
        raise Wrong(
            "a scratchpad is otherwise",
            f"{pad}: {told.agent}, {told.exists}, {told.size}, {told.damaged}, wanted {exists}",
        )
    within = run.pads.changed.get(pad) if elsewhere is None else None
    if within is not None and (told.updated_at is None or not within[0] <= told.updated_at <= within[1]):
        raise Wrong(
            "a scratchpad was changed at another time",
            f"{pad}: {told.updated_at}, not from {within[0]} to {within[1]}",
        )


@check.look
async def whole(run: Run, tenant: str, worker: int) -> None:
    for agent in AGENTS:
        await stands(run, (tenant, agent), worker=worker)


@carried
async def imported(run: Run, tenant: str, elsewhere: str, worker: int) -> None:
    """They stand there as here; then they are cleared."""
    for agent in AGENTS:
        await stands(run, (tenant, agent), worker=worker, elsewhere=elsewhere)
        (await run.ask(None, "scratchpads.clear", agent, tenant=elsewhere, worker=worker)).equals(
            agent in run.pads.of(tenant)
        )


# -- what somebody might break ---------------------------------------------------------


@mutant("scratchpads.append")
async def what_an_agent_notes_for_itself_is_shared(
    whole: Method, pads: Scratchpads, text: str, agent: str | None = None
) -> Any:
    return await whole(pads, text)


@mutant("scratchpads.clear")
async def a_scratchpad_is_said_to_be_cleared(
    whole: Method, pads: Scratchpads, agent: str | None = None
) -> Any:
    return bool((await pads.read(agent)).content)


@mutant("admin.export")
async def an_export_leaves_scratchpads_behind(whole: Callable[..., Any], admin: Admin, *args: Any) -> Any:
    return [line async for line in whole(admin, *args) if line["format"] != "memory-scratchpad/1"]
