"""Artifacts: files that sessions have are put, put again, read, listed and deleted, and
go with their session; and what somebody might break.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from memory.domain.artifact import Artifact
from memory.facade.resources.artifacts import Artifacts
from memory.orchestrator.storage.collections import ARTIFACTS, MANIFESTS, RESERVATIONS
from memory.ports.collections import Collection
from memory.ports.record import Record
from tests.model import check
from tests.model.mutants import Method, mutant
from tests.model.operations import Operation, operation
from tests.model.said import Said, Wrong
from tests.model.words import own_word, owned

if TYPE_CHECKING:
    from tests.model.generate import Drawn, Generator
    from tests.model.run import Run
    from tests.model.sessions.talk import Talk
    from tests.model.sessions.talks import Talks

PATHS = ("report.md", "out/data 1.csv", "out/ünï/b.bin")
MEDIA = ("text/markdown", "application/octet-stream")
FILLINGS = (0, 1_100_000)
"""Bytes before what it says: none, or so many that there are two chunks."""
WORDS_KEPT = 5_000
"""Words of files that are looked for when they are gone; a long run is not to grow."""


@dataclass(frozen=True, slots=True)
class File:
    """What a session has under a path."""

    id: str
    text: str
    filling: int
    media_type: str
    created_at: datetime
    updated_at: datetime

    @property
    def data(self) -> bytes:
        return b"." * self.filling + b" " + self.text.encode()

    def known(self, session_id: str, path: str) -> Artifact:
        data = self.data
        digest = hashlib.sha256(data).hexdigest()
        return Artifact(
            self.id, session_id, path, self.media_type, len(data), digest, self.created_at, self.updated_at
        )


class Files:
    """The files of the sessions of a run. Each is of one life of its session."""

    def __init__(self, talks: Talks) -> None:
        self._talks = talks
        self._of: dict[tuple[str, str], tuple[Talk, dict[str, File]]] = {}
        self.last: dict[tuple[str, str, str], str] = {}
        """By tenant, session and path: the id of what was there last, whether it is or
        not.
        """
        self._words: dict[str, None] = {}

    def of(self, talk: Talk) -> dict[str, File]:
        of, files = self._of.get((talk.tenant, talk.id), (None, {}))
        return files if of is talk else {}

    def put(self, talk: Talk, path: str, file: File) -> None:
        files = {**self.of(talk)}
        files[path] = file
        self._of[talk.tenant, talk.id] = talk, files
        self.last[talk.tenant, talk.id, path] = file.id
        self._words |= dict.fromkeys(owned(file.text))
        for word in list(self._words)[:-WORDS_KEPT]:
            del self._words[word]

    def all(self) -> list[tuple[Talk, File]]:
        return [(talk, file) for talk in self._talks.all.values() for file in self.of(talk).values()]

    def living_words(self) -> set[str]:
        return {word for _, file in self.all() for word in owned(file.text)}

    def gone_words(self) -> set[str]:
        return self._words.keys() - self.living_words()

    def stored(self, rows: Mapping[Collection, Sequence[Record]]) -> None:
        """A manifest for each file, the chunks that it names and no others, and room
        reserved for just these.
        """
        wanted = sorted(
            (talk.tenant, f"conversation:{talk.id}", file.id, len(file.data)) for talk, file in self.all()
        )
        found = sorted(
            (row.key.tenant, row.scope, str(row.fields["artifact_id"]), int(str(row.fields["size"])))
            for row in rows[MANIFESTS]
        )
        if found != wanted:
            raise Wrong(
                "stored artifacts are others",
                f"more {set(found) - set(wanted)}, less {set(wanted) - set(found)}, {len(found)} in all",
            )
        named = Counter(
            {
                (row.key.tenant, row.scope, str(row.fields["upload"])): int(str(row.fields["size"]))
                for row in rows[MANIFESTS]
            }
        )
        chunks = Counter[tuple[str, str, str]]()
        for row in rows[ARTIFACTS]:
            data: Any = row.fields["data"]
            chunks[row.key.tenant, row.scope, str(row.fields["upload"])] += len(data)
        if chunks != named:
            raise Wrong("stored chunks are others", f"{chunks}, wanted {named}")
        held = [row for row in rows[RESERVATIONS] if row.fields.get("upload") is not None]
        reserved = sorted(
            (row.key.tenant, str(row.fields["artifact_id"]), int(str(row.fields["bytes"]))) for row in held
        )
        if reserved != sorted((tenant, artifact_id, size) for tenant, _, artifact_id, size in wanted):
            raise Wrong("room is reserved for others", f"{reserved}, wanted that of {wanted}")


# -- what is done ----------------------------------------------------------------------


def _named(g: Generator, run: Run, tenant: str) -> dict[str, Any]:
    from tests.model.generate import SESSIONS

    talks = run.talks.of(tenant, run.clock.now)
    session = g.chance.choice(talks).id if talks and g.chance.random() < 0.9 else g.chance.choice(SESSIONS)
    return {"session": session, "path": g.chance.choice(PATHS)}


def _draw_put(g: Generator, run: Run, tenant: str) -> Drawn | None:
    says = {
        "text": own_word(g.number, "f"),
        "filling": g.chance.choices(FILLINGS, (12, 1))[0],
        "media_type": g.chance.choice(MEDIA),
    }
    return "put_file", _named(g, run, tenant) | says


DRAWS: dict[str, tuple[float, Callable[[Generator, Run, str], Drawn | None]]] = {
    "put_file": (2, _draw_put),
    "read_file": (0.6, lambda g, run, tenant: ("read_file", _named(g, run, tenant))),
    "delete_file": (
        0.9,
        lambda g, run, tenant: ("delete_file", _named(g, run, tenant) | {"by_id": g.chance.random() < 0.5}),
    ),
}


@operation
async def put_file(run: Run, op: Operation) -> None:
    """New, or in the place of what stands there, which keeps its id."""
    session, path = op.args["session"], op.args["path"]
    talk, says = (
        run.talks.get(op.tenant, session, run.clock.now),
        (op.args["text"], op.args["filling"], op.args["media_type"]),
    )
    data = b"." * says[1] + b" " + says[0].encode()
    said = await run.ask(op, "artifacts.put", session, path, data, media_type=says[2])
    if talk is None:
        said.refused("NotFound")
        return
    before = run.files.of(talk).get(path)
    if before is not None and run.model.holds_all(op.tenant, f"session:{session}"):
        said.refused("LegalHoldActive")
        return
    made: Artifact = said.given()
    file = File(made.id, *says, made.created_at, made.updated_at)
    _is_made(run, said, file, before)
    run.files.put(talk, path, file)
    said.equals(file.known(session, path))


def _is_made(run: Run, said: Said, file: File, before: File | None) -> None:
    """What the memory chooses can be true."""
    created_at = file.updated_at if before is None else before.created_at
    if file.created_at != created_at or not said.begun <= file.updated_at <= said.ended:
        said.wrong(
            "is put at another time",
            f"{file.created_at} and {file.updated_at}, before {before}, not from {said.begun} to"
            f" {said.ended}",
        )
    if file.id != before.id if before is not None else file.id in run.files.last.values():
        said.wrong("gives another id", f"{file.id}, before {before}")


@operation
async def read_file(run: Run, op: Operation) -> None:
    await looked_at(run, op.tenant, op.args["session"], op.args["path"], worker=op.worker)


@operation
async def delete_file(run: Run, op: Operation) -> None:
    """By its id or its path; what is not there any more is not deleted."""
    session, path = op.args["session"], op.args["path"]
    talk, former = (
        run.talks.get(op.tenant, session, run.clock.now),
        run.files.last.get((op.tenant, session, path)),
    )
    file = None if talk is None else run.files.of(talk).get(path)
    said = await run.ask(
        op, "artifacts.delete", former if op.args["by_id"] and former is not None else (session, path)
    )
    if file is not None and run.model.holds_all(op.tenant, f"session:{session}"):
        said.refused("LegalHoldActive")
        return
    said.equals(file is not None)
    if talk is not None:
        run.files.of(talk).pop(path, None)
    await looked_at(run, op.tenant, session, path, worker=op.worker)


async def looked_at(run: Run, tenant: str, session: str, path: str, *, worker: int) -> None:
    """By its path and by the id that it had last."""
    talk, former = run.talks.get(tenant, session, run.clock.now), run.files.last.get((tenant, session, path))
    file = None if talk is None else run.files.of(talk).get(path)
    for which in [(session, path), *([] if former is None else [former])]:
        (await run.ask(None, "artifacts.get", which, tenant=tenant, worker=worker)).equals(
            None if file is None else file.known(session, path)
        )
        said = await run.ask(None, "artifacts.read", which, tenant=tenant, worker=worker)
        if file is None:
            said.refused("NotFound")
        elif said.given() != file.data:
            said.wrong("reads other bytes", f"{len(said.value)}, wanted {len(file.data)} with {file.text}")


@check.look
async def whole(run: Run, tenant: str, worker: int) -> None:
    """Every file of every session, in the order in which they were first put, page by
    page.
    """
    for talk in run.talks.of(tenant, run.clock.now):
        found, cursor = list[Artifact](), None
        while True:
            page = (
                await run.ask(
                    None, "artifacts.list", talk.id, tenant=tenant, worker=worker, limit=2, cursor=cursor
                )
            ).given()
            found += page.artifacts
            if (cursor := page.cursor) is None or len(found) > len(PATHS):
                break
        wanted = [file.known(talk.id, path) for path, file in run.files.of(talk).items()]
        if found != sorted(wanted, key=lambda one: one.created_at):
            raise Wrong("a session has other files", f"{talk.id} of {tenant}: {found}, wanted {wanted}")
    for owner, session, path in list(run.files.last):
        if owner == tenant:
            await looked_at(run, tenant, session, path, worker=worker)


# -- what somebody might break ---------------------------------------------------------


@mutant("artifacts.delete")
async def a_file_is_said_to_be_deleted(whole: Method, artifacts: Artifacts, which: Any) -> Any:
    return await artifacts.get(which) is not None


@mutant("artifacts.put")
async def a_file_that_is_put_again_gets_another_id(
    whole: Method, artifacts: Artifacts, session_id: str, path: str, data: Any, **kwargs: Any
) -> Any:
    if await artifacts.get((session_id, path)) is not None:
        await artifacts.delete((session_id, path))
    return await whole(artifacts, session_id, path, data, **kwargs)
