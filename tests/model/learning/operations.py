"""Stores learn from sessions, and a model is shown what is known: each judged by the
model of the run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import TYPE_CHECKING, Any

from tests.model.learning.calls import HEARD, NOTED, Learnt
from tests.model.operations import Gone, Operation, operation
from tests.model.said import Said, Wrong
from tests.model.sessions import check
from tests.model.sessions.talk import Line, Talk, given
from tests.model.words import TOPICS

if TYPE_CHECKING:
    from tests.model.generate import Drawn, Generator
    from tests.model.run import Run

STORES = (HEARD, NOTED)
_SHOWN = re.compile(r'<entry source="here">(.*?)</entry>', re.DOTALL)


@operation
async def learn(run: Run, op: Operation) -> None:
    """A session is recorded: what is new to a store it is told, once, unless it is down
    or nobody comes to it.
    """
    talk = run.talks.get(op.tenant, op.args["session"], run.clock.now)
    if talk is None:
        raise Gone
    text, down, ends = op.args["text"], op.args["down"], op.args["ends"]
    message = None if text is None else {"id": f"l{op.number}", "role": "user", "content": text}
    said = await run.ask(op, "manager.learn", talk.id, message, down, ends=ends)
    for store in STORES:
        talk.runs.setdefault(_run_of(store), {"child_id": store, "mode": "background", "message_count": 0})[
            "status"
        ] = "queued"
    if message is not None:
        run.talks.wrote(message["content"])
        if talk.status != "active":
            said.refused("Conflict")
            await _noted(run, talk, op.worker)
            return
        talk.appended(_but(said, said.given().stored), [given(message)], [f"{op.number}.0"])
    learnt: Learnt = said.given()
    for store in STORES:
        _told(said, learnt, talk, store, tells=ends and (store not in down or not _new(talk, store)))
    _says(
        said,
        "is whole or not",
        learnt.whole,
        all(_mark(talk, store) == talk.count for store in STORES) if ends else None,
    )
    await _noted(run, talk, op.worker)


@operation
async def go_on_learning(run: Run, op: Operation) -> None:
    """Another process tells what was left in any session."""
    left = [
        talk
        for talk in run.talks.of(op.tenant, run.clock.now)
        if any(_waits(talk, store) for store in STORES)
    ]
    said = await run.ask(op, "manager.resume")
    learnt: Learnt = said.given()
    beyond = (learnt.heard.keys() | learnt.noted.keys()) - {talk.id for talk in left}
    _says(said, "tells of sessions in which nothing waits", beyond, set())
    for talk in left:
        for store in STORES:
            talk.runs.setdefault(
                _run_of(store), {"child_id": store, "mode": "background", "message_count": 0}
            )
            _told(said, learnt, talk, store, tells=True)
        await _noted(run, talk, op.worker)


@operation
async def inject(run: Run, op: Operation) -> None:
    """A model is shown what a search finds, in its order, and the question as it was."""
    scope, query, limit = op.args["scope"], op.args["query"], op.args["limit"]
    found = (await run.ask(op, "search", query, scope=scope, limit=limit, reading=True)).given()
    said = await run.ask(op, "manager.inject", scope, query, limit, reading=True)
    shown = [unescape(text) for text in _SHOWN.findall(said.given())]
    _says(
        said,
        "shows otherwise",
        shown,
        [": ".join(part for part in (hit.entry.title, hit.entry.content) if part) for hit in found],
    )
    _says(said, "changes the question", said.given().endswith(query), True)


def _told(said: Said, learnt: Learnt, talk: Talk, store: str, *, tells: bool) -> None:
    """A store was told what it had not, in order."""
    new = _new(talk, store) if tells else []
    if store == HEARD:
        _says(
            said,
            "is heard otherwise",
            learnt.heard.get(talk.id, []),
            [(int(line.number or 0) - 1, line.text) for line in new],
        )
    else:
        _says(
            said,
            "is noted otherwise",
            learnt.noted.get(talk.id, []),
            [f"{line.role}: {' '.join(line.text.split())}" for line in new],
        )
    if tells:
        talk.runs[_run_of(store)]["message_count"] = talk.count
        talk.runs[_run_of(store)]["status"] = "completed"


def _new(talk: Talk, store: str) -> list[Line]:
    """What a store has not been told; of a message that it is not told it does not
    hear, and one that is down is not asked.
    """
    return [line for line in talk.history if _is_told(line) and int(line.number or 0) > _mark(talk, store)]


def _is_told(line: Line) -> bool:
    """What somebody said, and no tool, and is not erased: also where the line has left
    the window.
    """
    return (
        line.role in ("user", "assistant")
        and not (line.is_redacted or line.is_summary or line.said["is_summary"])
        and bool(line.text.strip())
    )


async def _noted(run: Run, talk: Talk, worker: int) -> None:
    """How far stores have come is noted in the session."""
    for store in STORES:
        says = talk.runs[_run_of(store)]
        found = (
            await run.talks.ask(run, None, "runs.get", talk, _run_of(store), worker=worker, reading=True)
        ).given()
        if found is None:
            raise Wrong("how far a store has come is noted nowhere", f"{store} of {talk.id}")
        says.setdefault("created_at", found.created_at)
        check.run_of(found, _run_of(store), talk)


def _run_of(store: str) -> str:
    return f"extraction:{store}"


def _mark(talk: Talk, store: str) -> int:
    return int(talk.runs.get(_run_of(store), {}).get("message_count", 0))


def _waits(talk: Talk, store: str) -> bool:
    return bool(talk.runs.get(_run_of(store), {}).get("status") == "queued")


def _but(said: Said, value: Any) -> Said:
    return Said(said.call, said.begun, said.ended, value, said.failure)


def _says(said: Said, what: str, found: object, wanted: object) -> None:
    if found != wanted:
        said.wrong(what, f"{found}, wanted {wanted}")


# -- by chance -------------------------------------------------------------------------


def _learn(g: Generator, run: Run, tenant: str) -> Drawn | None:
    talks = run.talks.of(tenant, run.clock.now)
    if not talks:
        return None
    text = g.text("learnt") if g.chance.random() < 0.5 else None
    down = g.chance.choice(([], [], [], [HEARD], [NOTED]))
    return "learn", {
        "session": g.chance.choice(talks).id,
        "text": text,
        "down": down,
        "ends": g.chance.random() < 0.7,
    }


def _inject(g: Generator, run: Run, tenant: str) -> Drawn | None:
    from tests.model.generate import SCOPES

    return "inject", {
        "scope": g.chance.choice(SCOPES),
        "query": g.chance.choice(list(TOPICS)),
        "limit": g.chance.choice((1, 3, 5)),
    }


DRAWS: dict[str, tuple[float, Callable[[Generator, Run, str], Drawn | None]]] = {
    "learn": (1.5, _learn),
    "go_on_learning": (0.5, lambda g, run, tenant: ("go_on_learning", {})),
    "inject": (1, _inject),
}
