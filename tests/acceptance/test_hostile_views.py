"""A restricted view in hostile hands: 500 drawn calls with ids, keys, scopes, cursors,
versions and request ids of records outside of it. Each is answered exactly as on a
memory in which these records do not exist. And none of them changes anything outside.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from memory import DocumentDelete, DocumentPut, Memory, Session
from memory.domain.agent_results import Result
from memory.domain.relation import Graph, Relation
from tests.acceptance.conftest import DEFAULT, _on_servers, asked
from tests.acceptance.support import DAY, Clock
from tests.support.depth import FIRST_SEED, NIGHTLY
from tests.support.placings import STORIES, forget

CALLS, ON_SERVERS = 500, 80
"""Calls on one file, and on servers in CI; `make nightly` draws all of them there too."""
VIEWS = {
    "exact": ["user:ada", "session:s-ada-2", "workspace:w1"],
    "subtree": ["user:ada", "session:s-ada-2", "workspace:w1", "path:teams/red/**"],
}
INSIDE = ("user:ada", "workspace:w1", "session:s-ada-2")
OUTSIDE = ("user:bob", "org:o1", "session:s-bob", "object:ticket:t1", "path:teams/blue/", "user:ada2")
NOWHERE = ("user:nobody", "session:s-none", "path:teams/redder/")
UNKNOWN_ID = "01a2299f-07e7-8bc8-ada7-1d71cbe0d842"
UUID_TEXT = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_VERSION = re.compile(r"\b[0-9a-f]{13,14}\b")
MOMENT_TEXT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d:.+Z]*")

pytestmark = pytest.mark.filterwarnings("error")


PLACES = asked([DEFAULT, *(_on_servers(one, in_ci=one is STORIES[0]) for one in STORIES)])
CASES = [
    pytest.param((place.values[0], scopes), id=f"{place.id}-{name}", marks=place.marks)
    for place in PLACES
    for name, scopes in VIEWS.items()
    if name == "subtree" or place is DEFAULT or NIGHTLY
]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """A configuration, and the scopes of a view."""
    make, scopes = request.param
    yield make(tmp_path) | {"embedder": "none", "durations": {"sweep_every": "0s"}}, scopes
    forget(tmp_path)


class Side:
    """A tenant with the records inside of the view, and what calls may name there."""

    def __init__(self, memory: Memory, scopes: list[str]) -> None:
        self.memory = memory
        self.scopes = scopes
        self.names: dict[str, str] = {}
        """The ids that the sides do not share, by what they name."""

    @property
    def view(self) -> Memory:
        return self.memory.restrict(self.scopes)

    async def fill_inside(self, *, red: bool) -> None:
        memory, names = self.memory, self.names
        scopes = [*INSIDE, *(["path:teams/red/", "path:teams/red/notes/"] if red else [])]
        for number, scope in enumerate(scopes):
            for n in range(3):
                made = await memory.write(
                    f"Ada's note {n} about tea and trains{' by rail' * (3 * number + n)}",
                    scope=scope,
                    key=f"note-{n}",
                    tags=["inside", f"n{n}"],
                    metadata={"n": n},
                    conversation_id="s-bob" if n == 1 else None,
                    number_in_conversation=3 if n == 1 else None,
                    speaker="bob" if n == 1 else None,
                    artifact_id=names.get("out:artifact:s-bob") if n == 2 else None,
                )
                names[f"entry:{number}:{n}"] = made.id
            await memory.documents.put(scope, "settings", {"theme": "dark"})
        names["relation"] = (
            await memory.relations.relate(names["entry:0:0"], "supports", names["entry:1:0"])
        ).id
        await memory.update(names["entry:0:2"], content="Ada's note 2 about coffee")
        for session, user in (("s-ada-1", "ada"), ("s-ada-2", None)):
            handle = memory.session(session, user=user)
            much = " and very hot" * int(session[-1])
            await handle.append({"role": "user", "content": f"the tea is ready{much}"}, id="m1")
            await handle.append({"role": "assistant", "content": f"thank you for tea{much}"}, id="m2")
            await handle.tasks.save(f"task-{session}", title="buy tea")
            await handle.runs.save("run-1", child_id="s-bob")
            names[f"artifact:{session}"] = (
                await memory.artifacts.put(session, "notes/tea.txt", b"tea is hot")
            ).id

    async def fill_outside_sessions(self) -> None:
        for session in ("s-bob", "s-bob-2"):
            handle = self.memory.session(session, user="bob")
            await handle.append({"role": "user", "content": "the secret tea"}, id="m1")
            await handle.tasks.save(f"task-{session}", title="secret")
            await handle.runs.save("run-1", child_id="s-ada-1")
            stored = await self.memory.artifacts.put(session, "notes/tea.txt", b"secret")
            self.names[f"out:artifact:{session}"] = stored.id

    async def fill_outside(self) -> None:
        """Write what only the whole tenant has, also links from inside to outside."""
        memory, names = self.memory, self.names
        for number, scope in enumerate(OUTSIDE):
            for n in range(3):
                made = await memory.write(
                    f"Bob's secret {n} about tea and trains",
                    scope=scope,
                    key=f"note-{n}",
                    tags=["secret", f"n{n}"],
                    conversation_id="s-ada-1" if n == 2 else None,
                    number_in_conversation=3 if n == 2 else None,
                    request_id=f"outside-{number}-{n}",
                )
                names[f"out:{number}:{n}"] = made.id
            await memory.documents.put(scope, "settings", {"secret": True})
            await memory.documents.put(scope, f"secret-{number}", b"bytes")
        for n, label in enumerate(("supports", "supersedes", "refines")):
            for source, target in (("entry:0:0", f"out:0:{n}"), (f"out:1:{n}", "entry:0:1")):
                made_link = await memory.relations.relate(names[source], label, names[target])
                names[f"out:relation:{source}:{n}"] = made_link.id
        apart = await memory.relations.relate(names["out:0:0"], "supports", names["out:1:0"])
        names["out:relation:apart"] = apart.id
        await memory.scratchpads.append("a secret", "helper")

    async def outside(self) -> Any:
        """Return everything outside of the view, to see that nothing of it changes."""
        memory, view = self.memory, self.view
        await memory.sessions.list()  # it brings the previews up to date
        seen = {entry.id async for entry in view.entries.iterate(include_retired=True)}
        entries = [
            entry.to_dict()
            async for entry in memory.entries.iterate(include_retired=True)
            if entry.id not in seen
        ]
        sessions = [
            (await memory.session(name, create=False).info(), await memory.session(name).history())
            for name in ("s-bob", "s-bob-2")
        ]
        documents = [await memory.documents.list(scope, values=True) for scope in OUTSIDE]
        links = await memory.relations.find(source_id=self.names["out:0:0"], label="supports")
        tasks = [await memory.session(name).tasks.list() for name in ("s-bob", "s-bob-2")]
        files = [await memory.artifacts.read((name, "notes/tea.txt")) for name in ("s-bob", "s-bob-2")]
        pad = await memory.scratchpads.read("helper")
        return entries, sessions, documents, links[:1], tasks, files, pad


Draw = Callable[[str], Any]
Call = Callable[[Memory, Draw], Awaitable[Any]]


class Requests:
    """Draws calls: each is made on both sides with the same names."""

    def __init__(self, rng: random.Random, names: Mapping[str, str], cursors: list[str], versions: list[str]):
        self._rng = rng
        inside = [name for name in names if not name.startswith("out:")]
        outside = [name for name in names if name.startswith("out:")]
        self._pools: dict[str, list[str]] = {
            "entry": [*_of(inside, "entry"), *_of(outside, "out:"), UNKNOWN_ID, "no id"],
            "relation": [*_of(inside, "relation"), *_of(outside, "out:relation"), UNKNOWN_ID],
            "artifact": [*_of(inside, "artifact"), *_of(outside, "out:artifact"), UNKNOWN_ID],
            "scope": [*INSIDE, *INSIDE, *OUTSIDE, *NOWHERE, "path:teams/red/", "path:teams/**"],
            "inside": [*INSIDE],
            "key": ["note-0", "note-1", "note-2", "settings", "secret-0", "secret-1", "new"],
            "session": ["s-ada-1", "s-ada-2", "s-bob", "s-bob-2", "s-none", "user:ada"],
            "user": ["ada", "bob", "nobody"],
            "message": ["m1", "m2", "m3"],
            "task": ["task-s-ada-1", "task-s-ada-2", "task-s-bob", "task-new"],
            "cursor": cursors,
            "version": [*versions, "661729536934c"],
            "request": ["outside-0-0", "outside-1-1", "request-1", "request-2"],
            "label": ["supports", "supersedes", "refines"],
        }
        self._drawn = 0

    def draw(self) -> tuple[str, Call, dict[str, list[str]]]:
        """Return a call with its name, and the values that it will be given, in order."""
        name = self._rng.choice(sorted(DRAWN))
        given = {pool: self._rng.choices(values, k=4) for pool, values in self._pools.items() if values}
        self._drawn += 1
        given["words"] = ["tea" + " by sea" * (20 + self._drawn)]
        return name, DRAWN[name], given


def _of(names: list[str], beginning: str) -> list[str]:
    return [name for name in names if name.startswith(beginning)]


async def _each(items: Any) -> list[Any]:
    return [item async for item in items]


async def _session(view: Memory, draw: Draw) -> Session:
    return view.session(draw("session"), create=False)


DRAWN: dict[str, Call] = {
    "get": lambda v, d: v.get(d("entry")),
    "get by key": lambda v, d: v.get(scope=d("scope"), key=d("key")),
    "get as of": lambda v, d: v.get(d("entry"), as_of="2200-01-01T00:00:00Z"),
    "get_many": lambda v, d: v.get_many([d("entry"), d("entry"), d("entry")]),
    "update": lambda v, d: v.update(d("entry"), content="changed"),
    "update tags": lambda v, d: v.update(d("entry"), tags=["x"], request_id=d("request")),
    "update expected": lambda v, d: v.update(d("entry"), title="t", expected_version=d("version")),
    "update artifact": lambda v, d: v.update(d("entry"), artifact_id=d("artifact")),
    "update by key": lambda v, d: v.update(scope=d("scope"), key=d("key"), title="by key"),
    "delete": lambda v, d: v.delete(d("entry")),
    "delete expected": lambda v, d: v.delete(d("entry"), expected_version=d("version")),
    "delete by key": lambda v, d: v.delete(scope=d("scope"), key=d("key"), request_id=d("request")),
    "invalidate": lambda v, d: v.entries.invalidate(d("entry")),
    "invalidate expected": lambda v, d: v.entries.invalidate(d("entry"), expected_version=d("version")),
    "write": lambda v, d: v.write(f"drawn {d('words')}", scope=d("scope")),
    "write key": lambda v, d: v.write(f"drawn {d('words')}", scope=d("scope"), key=d("key")),
    "write keep": lambda v, d: v.write("drawn", scope=d("scope"), key=d("key"), if_exists="keep"),
    "write replace": lambda v, d: v.write("drawn", scope=d("scope"), key=d("key"), if_exists="replace"),
    "write expected": lambda v, d: v.write(
        "drawn", scope=d("scope"), key=d("key"), if_exists="replace", expected_version=d("version")
    ),
    "write request": lambda v, d: v.write("drawn", scope=d("inside"), request_id=d("request")),
    "write pinned": lambda v, d: v.write("pinned", scope=d("inside"), conversation_id=d("session")),
    "write said": lambda v, d: v.write(
        "said", scope=d("inside"), conversation_id=d("session"), number_in_conversation=7
    ),
    "write artifact": lambda v, d: v.write("file", scope=d("inside"), artifact_id=d("artifact")),
    "write supersedes": lambda v, d: v.write("newer", scope=d("inside"), supersedes=[d("entry"), d("entry")]),
    "write checked": lambda v, d: v.write_with_report("tea", scope=d("inside"), detect_conflicts=True),
    "write_many": lambda v, d: v.write_many(
        [{"content": "one", "scope": d("inside"), "key": d("key")}, {"content": "two", "scope": d("scope")}]
    ),
    "retrieve": lambda v, d: v.retrieve(d("scope"), limit=3),
    "retrieve narrower": lambda v, d: v.retrieve(
        "user:ada", include_narrower=True, session_id=d("session"), limit=5
    ),
    "browse": lambda v, d: v.browse(limit=4),
    "browse scopes": lambda v, d: v.browse([d("scope"), d("inside")], include_retired=True),
    "browse conversation": lambda v, d: v.browse(conversation=d("session"), limit=2),
    "browse cursor": lambda v, d: v.browse(limit=3, cursor=d("cursor")),
    "browse filter": lambda v, d: v.browse(filter={"id": d("entry")}),
    "browse hidden": lambda v, d: v.browse(filter={"conversation_id": d("session")}),
    "browse origins": lambda v, d: v.browse(filter={"origins": {"$contains": f"source:{d('entry')}"}}),
    "search": lambda v, d: v.search("tea", scope=d("scope"), limit=4),
    "search inside": lambda v, d: v.search(
        "secret about tea", scope=[d("inside"), d("inside")], explain=True
    ),
    "search boost": lambda v, d: v.search("note", scope=d("inside"), boost={"conversation_id": d("session")}),
    "search blank": lambda v, d: v.search("", scope=d("inside"), boost={"conversation_id": d("session")}),
    "search messages": lambda v, d: v.search("tea", scope=[d("inside"), "user:ada"], messages=True),
    "search_messages": lambda v, d: v.search_messages("secret tea"),
    "search_messages user": lambda v, d: v.search_messages("tea", user=d("user")),
    "enrichment": lambda v, d: v.enrichment(d("entry")),
    "promote": lambda v, d: v.promote(d("entry"), d("scope")),
    "promote inside": lambda v, d: v.promote(d("entry"), "workspace:w1", delete_original=True),
    "compact": lambda v, d: v.compact([d("entry"), d("entry")], lambda entries: "compacted"),
    "iterate": lambda v, d: _each(v.entries.iterate(include_retired=True)),
    "iterate scope": lambda v, d: _each(v.entries.iterate(d("scope"))),
    "delete_many": lambda v, d: v.entries.delete_many({"tags": ["n2"]}, scope=d("scope")),
    "delete_many all": lambda v, d: v.entries.delete_many({"tags": {"$contains": "x"}}),
    "history": lambda v, d: v.entries.history(d("entry"), superseded=True),
    "history key": lambda v, d: v.entries.history(scope=d("scope"), key=d("key")),
    "source_messages": lambda v, d: v.entries.source_messages(d("entry")),
    "relate": lambda v, d: v.relations.relate(d("entry"), d("label"), d("entry")),
    "relate request": lambda v, d: v.relations.relate(
        d("entry"), "refines", d("entry"), request_id=d("request")
    ),
    "find": lambda v, d: v.relations.find(),
    "find source": lambda v, d: v.relations.find(source_id=d("entry"), limit=1),
    "find target": lambda v, d: v.relations.find(target_id=d("entry"), active=True),
    "expand": lambda v, d: v.relations.expand(d("entry"), depth=2),
    "expand superseded": lambda v, d: v.relations.expand(d("entry"), superseded=True),
    "expand scope": lambda v, d: v.relations.expand(d("entry"), scope=d("scope")),
    "density": lambda v, d: v.relations.density(d("entry")),
    "graph": lambda v, d: v.relations.graph(),
    "all": lambda v, d: _each(v.relations.all()),
    "unrelate": lambda v, d: v.relations.unrelate(d("relation")),
    "unrelate request": lambda v, d: v.relations.unrelate(d("relation"), request_id=d("request")),
    "sessions.get": lambda v, d: v.sessions.get(d("session")),
    "sessions.list": lambda v, d: v.sessions.list(),
    "sessions.list user": lambda v, d: v.sessions.list(user=d("user"), limit=1),
    "sessions.create": lambda v, d: v.sessions.create(d("session"), user=d("user")),
    "sessions.create request": lambda v, d: v.sessions.create(user=d("user"), request_id=d("request")),
    "sessions.update": lambda v, d: v.sessions.update(d("session"), title="t", request_id=d("request")),
    "sessions.update expected": lambda v, d: v.sessions.update(
        d("session"), title="x", expected_version=d("version")
    ),
    "sessions.delegation": lambda v, d: v.sessions.delegation(d("session")),
    "sessions.runs": lambda v, d: v.sessions.runs(session_id=d("session")),
    "sessions.runs all": lambda v, d: v.sessions.runs(),
    "sessions.end": lambda v, d: v.sessions.end(d("session")),
    "sessions.delete": lambda v, d: v.sessions.delete("s-bob" if d("user") == "bob" else "s-none"),
    "session": lambda v, d: v.session(d("session"), user=d("user")).info(),
    "session.append": lambda v, d: v.session(d("session")).append(
        {"role": "user", "content": f"drawn {d('words')}"}, id=d("message"), request_id=d("request")
    ),
    "session.context": lambda v, d: v.session(d("session"), create=False).context(500, recall="tea"),
    "session.history": lambda v, d: v.session(d("session"), create=False).history(),
    "session.search": lambda v, d: v.session(d("session"), create=False).search("tea"),
    "session.erase": lambda v, d: v.session(d("session"), create=False).erase("m9"),
    "session.fork": lambda v, d: v.session("s-ada-1", create=False).fork(session_id=d("session")),
    "session.delete": lambda v, d: v.session("s-bob-2" if d("user") == "bob" else "s-none").delete(),
    "session.resume": lambda v, d: v.session(d("session"), create=False).resume(),
    "tasks.save": lambda v, d: v.session("s-ada-1", create=False).tasks.save(d("task"), title="t"),
    "tasks.get": lambda v, d: v.session(d("session"), create=False).tasks.get(d("task")),
    "tasks.list": lambda v, d: v.session(d("session"), create=False).tasks.list(),
    "tasks.delete": lambda v, d: v.session(d("session"), create=False).tasks.delete(d("task")),
    "runs.list": lambda v, d: v.session(d("session"), create=False).runs.list(),
    "documents.put": lambda v, d: v.documents.put(d("scope"), d("key"), {"drawn": 1}),
    "documents.edit": lambda v, d: v.documents.edit(d("scope"), d("key"), lambda found: found is None),
    "documents.put new": lambda v, d: v.documents.put(d("scope"), d("key"), 1, if_exists="error"),
    "documents.put expected": lambda v, d: v.documents.put(
        d("scope"), d("key"), 1, expected_version=d("version")
    ),
    "documents.get": lambda v, d: v.documents.get(d("scope"), d("key")),
    "documents.list": lambda v, d: v.documents.list(d("scope"), values=True),
    "documents.find": lambda v, d: v.documents.find("path:teams/**", d("key")),
    "documents.delete": lambda v, d: v.documents.delete(d("scope"), d("key")),
    "documents.delete_many": lambda v, d: v.documents.delete_many(d("scope"), prefix="s"),
    "documents.apply": lambda v, d: v.documents.apply(
        [DocumentPut(d("inside"), "a", 1), DocumentDelete(d("scope"), d("key"))], atomic=False
    ),
    "artifacts.get": lambda v, d: v.artifacts.get(d("artifact")),
    "artifacts.at": lambda v, d: v.artifacts.get((d("session"), "notes/tea.txt")),
    "artifacts.read": lambda v, d: v.artifacts.read(d("artifact")),
    "artifacts.read at": lambda v, d: v.artifacts.read((d("session"), "notes/tea.txt")),
    "artifacts.list": lambda v, d: v.artifacts.list(d("session")),
    "artifacts.put": lambda v, d: v.artifacts.put(d("session"), "new.txt", b"drawn"),
    "artifacts.delete": lambda v, d: v.artifacts.delete(d("artifact")),
    "scopes.list": lambda v, d: v.scopes.list(),
    "scopes.list prefix": lambda v, d: v.scopes.list(d("scope"), max_depth=1),
    "scopes.list kind": lambda v, d: v.scopes.list(kind="user", limit=1),
    "commands": lambda v, d: v.commands.run(
        f"/mem entries\n/mem search tea\n/mem entry {d('entry')}\n/mem expand {d('entry')}\n"
        f"/mem read {d('artifact')}\n/mem entry #1\n/mem read 2",
        scope="user:ada",
        reads="tenant",
        conversation=d("session"),
    ),
    "commands add": lambda v, d: v.commands.run(
        f"/mem add entry context drawn\nby a command\n/endmem\n/mem add link {d('entry')} supports"
        f" {d('entry')}\n/mem invalidate {d('entry')}",
        scope=d("inside"),
        reads=d("scope"),
        conversation=d("session"),
    ),
    "scoped": lambda v, d: v.scoped(d("scope")).get(d("entry")),
    "scoped delete": lambda v, d: v.scoped(d("inside")).delete(d("entry")),
    "scoped update": lambda v, d: v.scoped(d("inside")).update(d("entry"), title="scoped"),
    "erase": lambda v, d: v.admin.erase(d("scope"), dry_run=True),
    "erase outside": lambda v, d: v.admin.erase("user:bob"),
    "short_ids": lambda v, d: v.short_ids.of([d("entry")]),
    "stats": lambda v, d: v.admin.stats(),
    "why": lambda v, d: v.admin.why(d("entry")),
    "where": lambda v, d: v.admin.where(d("entry")),
    "export": lambda v, d: _each(v.admin.export(d("scope"))),
    "holds": lambda v, d: v.admin.legal_holds.list(),
    "restrict": lambda v, d: v.restrict(d("scope")).browse(),
}


async def outcome(call: Call, side: Side, given: Mapping[str, list[str]]) -> Any:
    """Return what a call returns or raises, without what differs between the sides."""
    left = {pool: list(values) for pool, values in given.items()}

    def draw(pool: str) -> Any:
        name = left[pool].pop(0)
        return side.names.get(name, WHOLE_NAMES.get(name, name))

    try:
        return _plain(_sorted(await call(side.view, draw)), side)
    except Exception as error:  # noqa: BLE001 - it is the outcome
        said = {name: _plain(value, side) for name, value in sorted(vars(error).items())}
        return type(error).__name__, _plain(str(error), side), said


def _sorted(result: Any) -> Any:
    """Return a result in an order that ids do not change, where it has no other."""
    match result:
        case Graph():
            entries = sorted(result.entries, key=lambda one: (one.scope.text, one.created_at))
            return dataclasses.replace(result, entries=tuple(entries))
        case _:
            return result


WHOLE_NAMES: dict[str, str] = {}
"""The ids of outside records: the other side is given them too, and has no such records."""


def _plain(value: Any, side: Side) -> Any:
    """Return a value as plain data; ids by name, moments and versions left out."""
    match value:
        case str():
            return _text(value, side)
        case None | bool() | bytes():
            return value
        case float():
            return round(value, 6)
        case datetime():
            return "<moment>"
        case Enum():
            return value.value
        case int():
            return [type(value).__name__, int(value), _plain(getattr(value, "__dict__", {}), side)]
        case Result():  # lines of equal relevance are in the order of their ids
            return [_text(value.command, side), sorted(_text(value.text, side).splitlines()), value.is_error]
        case BaseModel():
            return _plain(value.model_dump(), side)
        case set() | frozenset():
            return sorted(str(_plain(one, side)) for one in value)
        case Exception():
            return type(value).__name__, _text(str(value), side)
        case _:
            return _plain_parts(value, side)


def _plain_parts(value: Any, side: Side) -> Any:
    """Return a collection or a dataclass as plain data."""
    if isinstance(value, Mapping):
        fields = {_text(str(name), side): _field(str(name), one, side) for name, one in value.items()}
        return {**fields, "": _plain(getattr(value, "version", None), side)}
    if isinstance(value, list | tuple):
        beside = {name: _field(name, one, side) for name, one in getattr(value, "__dict__", {}).items()}
        items = [_plain(one, side) for one in value]
        if items and isinstance(value[0], Relation):  # several may be of one moment
            items.sort(key=str)
        if items and hasattr(value[0], "score"):  # ids of two tenants order equal scores differently
            items.sort(key=lambda one: (-one["score"], str(one)))
        return [*items, beside]
    if dataclasses.is_dataclass(value):
        names = [one.name for one in dataclasses.fields(value)]
        return {name: _field(name, getattr(value, name), side) for name in names}
    return type(value).__name__


def _field(name: str, value: Any, side: Side) -> Any:
    if name == "rank":  # among equal scores
        return "<rank>"
    return "<cursor>" if name == "cursor" and isinstance(value, str) else _plain(value, side)


def difference(first: Any, second: Any, path: str = "") -> str:
    """Return where two outcomes differ first, and how."""
    if type(first) is type(second) and isinstance(first, dict) and first.keys() == second.keys():
        return next(
            (
                difference(first[one], second[one], f"{path}.{one}")
                for one in first
                if first[one] != second[one]
            ),
            "nowhere",
        )
    if type(first) is type(second) and isinstance(first, list | tuple) and len(first) == len(second):
        pairs = enumerate(zip(first, second, strict=True))
        return next((difference(*both, f"{path}[{n}]") for n, both in pairs if both[0] != both[1]), "nowhere")
    return f"{path}: {first!r} and without the outside {second!r}"


def _text(text: str, side: Side) -> str:
    known = {value: name for name, value in WHOLE_NAMES.items()}
    known |= {value: name for name, value in side.names.items()}
    text = UUID_TEXT.sub(lambda found: known.get(found[0], "<id>"), text)
    text = text.replace(side.memory.tenant, "<tenant>")
    return MOMENT_TEXT.sub("<moment>", _VERSION.sub("<version>", text))


async def test_each_call_is_answered_as_if_nothing_outside_existed(
    case: tuple[dict[str, Any], list[str]], clock: Clock
) -> None:
    config, scopes = case
    async with Memory(config, clock=clock) as memory:
        whole = Side(memory.for_tenant("tenant-whole"), scopes)
        alone = Side(memory.for_tenant("tenant-alone"), scopes)
        for side in (whole, alone):
            if side is whole:
                await side.fill_outside_sessions()
            await side.fill_inside(red="path:teams/red/**" in scopes)
            if side is whole:
                await side.fill_outside()
        shared = {name: id_ for name, id_ in whole.names.items() if name.startswith("out:")}
        WHOLE_NAMES.clear()
        WHOLE_NAMES.update(shared)
        page = await whole.memory.browse(limit=2)
        bobs = await whole.memory.retrieve("user:bob", limit=1)
        theirs = await whole.memory.browse(OUTSIDE, limit=50)
        versions = [entry.version for entry in theirs]
        cursors = [one.cursor for one in (page, bobs) if one.cursor is not None]
        rng = random.Random(FIRST_SEED)  # noqa: S311
        requests = Requests(rng, whole.names, cursors, versions)
        before = await whole.outside()
        counts: dict[str, int] = {}
        on_file = config["tiers"]["mid"].startswith("sqlite")
        for number in range(CALLS if on_file or NIGHTLY else ON_SERVERS):
            name, call, given = requests.draw()
            clock.advance(DAY / 1_000)
            first, second = [await outcome(call, side, given) for side in (whole, alone)]
            assert first == second, (number, name, given, difference(first, second))
            counts[name] = counts.get(name, 0) + 1
        after = await whole.outside()
        assert after == before, difference(*(_plain(one, whole) for one in (before, after)))
        assert number < CALLS - 1 or len(counts) > len(DRAWN) * 0.9
